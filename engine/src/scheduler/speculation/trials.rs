//! When the draft head is asked for guesses that nobody waits for, so that one learns whether they would pay.

use super::gate::Gate;

/// After so many steps without guesses some are asked for all the same, of which it is learned whether they would pay.
/// If not, they are tried again after twice as many.
const TRIAL_STEPS: u32 = 128;
/// Most steps without guesses between two trials.
const TRIAL_STEPS_MAX: u32 = 256;
/// After so many where the last trial was right: a second one says whether that was chance.
const TRIAL_STEPS_AGAIN: u32 = 8;
/// A trial was right where so much of what was compared was.
pub(super) const TRIAL_RIGHT: f64 = 0.8;

/// What was decided last.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadTrials {
    pub(super) gate: Gate,
    /// Steps with decode rows since one that asked for guesses.
    steps_without: u32,
    /// How many there are before the next trial.
    pub(super) trial_after: u32,
    last_trial: GuessTrial,
}

/// What guesses turned out to be that nobody waited for, since some were asked for.
#[derive(Clone, Copy, Debug, Default)]
struct GuessTrial {
    compared: u32,
    right: u32,
    /// The one before it was right.
    second: bool,
}

impl GuessTrial {
    fn was_right(&self) -> bool {
        self.right > 0 && f64::from(self.right) >= TRIAL_RIGHT * f64::from(self.compared)
    }
}

impl Default for HeadTrials {
    fn default() -> Self {
        Self {
            gate: Gate::without_tries(),
            steps_without: 0,
            trial_after: TRIAL_STEPS,
            last_trial: GuessTrial::default(),
        }
    }
}

impl HeadTrials {
    /// Of the first `compared` of some guesses that nobody waited for so many were right.
    pub(super) fn record(&mut self, compared: usize, right: usize) {
        self.last_trial.compared += compared as u32;
        self.last_trial.right += right as u32;
    }

    /// Is it time for a trial, where there are so many steps before one? `news`: it would be something new if that were
    /// right.
    pub(super) fn is_trial_due(&self, after: u32, news: bool) -> bool {
        let again = news && self.last_trial.was_right();
        self.steps_without >= if again { TRIAL_STEPS_AGAIN.min(after) } else { after }
    }

    /// Were two trials in a row right? Says so once.
    pub(super) fn take_hope(&mut self) -> bool {
        let hopes = self.last_trial.second && self.last_trial.was_right();
        if hopes {
            self.last_trial = GuessTrial::default();
        }
        hopes
    }

    /// A step was launched whose decode rows ask for so many guesses each; or `trial` does.
    pub(super) fn note_asked(&mut self, guesses: &[u32], trial: bool) {
        let any = guesses.iter().any(|n| *n > 0);
        if !guesses.is_empty() {
            self.steps_without = if any { 0 } else { self.steps_without.saturating_add(1) };
            self.gate.chose(any && !trial, false);
            if any {
                self.last_trial = GuessTrial { second: trial && self.last_trial.was_right(), ..GuessTrial::default() };
            }
            self.trial_after = match (any, trial) {
                (false, _) => self.trial_after,
                (true, false) => TRIAL_STEPS,
                (true, true) => TRIAL_STEPS_MAX.min(2 * self.trial_after),
            };
        }
    }
}

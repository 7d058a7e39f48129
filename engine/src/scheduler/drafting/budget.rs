//! What drafts may lose. A gate chooses by what it expects, and where a row more or a guess takes nearly what it saves,
//! chance chooses. So what steps with drafts took is held against what their tokens would have taken without, and where
//! drafts lost what they may, there are none until as much was saved up again: whatever the gate believes, they cost no
//! more than a small share of the time.
//!
//! All is counted in steps without drafts.

use crate::ids::Micros;

/// What steps with drafts may lose before anything is known of them.
const AT_FIRST: f64 = 3.0;
/// The most that they may lose of what they gained before: what sequences say changes.
const SAVED_MAX: f64 = 6.0;
/// The same while drafts gain much: what is known of times is off by less than that.
const SAVED_MAX_OF_MUCH: f64 = 24.0;
/// Drafts gain much where a step with some gives this much beyond what it takes, on average.
const MUCH: f64 = 0.5;
/// What a step without drafts adds to what they may lose.
const EARNED: f64 = 0.004;
/// Drafts gain little where a step with some gives no more than so much beyond what it takes, on average.
const CLOSE: f64 = 0.3;
/// Part of that average that a step replaces.
const CLOSE_PART: f64 = 0.1;
/// When nothing was left, they begin again with so much.
const BEGIN_AGAIN: f64 = 2.0;
/// A step counts as at most this many times what was expected of it: the machine held it up, and not its drafts. What
/// lasts is expected soon.
const HELD_UP_MAX: f64 = 2.0;
/// The same where as many rows were never drafted: then who knows.
const UNTRIED_MAX: f64 = 8.0;

/// What a step was expected to take when it was planned, microseconds.
#[derive(Clone, Copy, Debug)]
pub(in crate::scheduler) struct Toll {
    /// Its decode rows, without drafts.
    pub(in crate::scheduler) rows: u32,
    /// Without drafts.
    pub(in crate::scheduler) without_us: f64,
    /// As it is.
    pub(in crate::scheduler) expected_us: f64,
    /// A step with drafts and as many rows was seen.
    pub(in crate::scheduler) tried: bool,
    /// It has drafts, asks for guesses, or was not planned ahead because there might be some.
    pub(in crate::scheduler) drafts: bool,
}

/// What drafts may lose.
#[derive(Clone, Copy, Debug)]
pub(in crate::scheduler) struct Budget {
    left: f64,
    /// What steps with drafts gained of late, on average.
    gained: f64,
    /// Nothing was left, and not yet enough was saved up again.
    spent: bool,
    /// The last commit, if the device has had work since.
    since: Option<Micros>,
    /// A plan was held back since the last step, because something may be drafted.
    held_back: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: AT_FIRST, gained: 0.0, spent: false, since: None, held_back: false }
    }
}

impl Budget {
    /// Is there anything left to lose?
    pub(in crate::scheduler) fn allows(&self) -> bool {
        !self.spent
    }

    /// Do drafts gain little?
    pub(in crate::scheduler) fn is_close(&self) -> bool {
        self.gained < CLOSE
    }

    /// The next step is not planned ahead.
    pub(in crate::scheduler) fn hold_back(&mut self) {
        self.held_back = true;
    }

    /// A step is launched: was it held back?
    pub(in crate::scheduler) fn launch(&mut self) -> bool {
        std::mem::take(&mut self.held_back)
    }

    /// So many steps' time goes to drafts that a later one may have.
    pub(in crate::scheduler) fn pay(&mut self, steps: f64) {
        self.left -= steps;
    }

    /// A step was committed that gave so many tokens; `busy` if there is more to do. Of one without a toll nobody knows
    /// what it should take.
    pub(in crate::scheduler) fn commit(&mut self, toll: Option<Toll>, tokens: usize, now: Micros, busy: bool) {
        let since = std::mem::replace(&mut self.since, busy.then_some(now));
        let (Some(toll), Some(since)) = (toll, since) else { return };
        self.left += if toll.drafts {
            let most = if toll.tried { HELD_UP_MAX } else { UNTRIED_MAX } * toll.expected_us;
            let took = (now.since(since).0 as f64).min(most);
            let gain = tokens as f64 / f64::from(toll.rows) - took / toll.without_us;
            self.gained += CLOSE_PART * (gain - self.gained);
            gain
        } else {
            EARNED
        };
        self.left = self.left.min(if self.gained > MUCH { SAVED_MAX_OF_MUCH } else { SAVED_MAX });
        self.spent = self.left <= if self.spent { BEGIN_AGAIN } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toll(drafts: bool) -> Option<Toll> {
        Some(Toll { rows: 2, without_us: 100.0, expected_us: 200.0, tried: true, drafts })
    }

    /// A budget behind steps of (drafts, tokens, microseconds).
    fn after(steps: impl IntoIterator<Item = (bool, usize, u64)>) -> Budget {
        let (mut budget, mut now) = (Budget::default(), 0);
        budget.commit(None, 0, Micros(now), true);
        for (drafts, tokens, us) in steps {
            now += us;
            budget.commit(toll(drafts), tokens, Micros(now), true);
        }
        budget
    }

    #[test]
    fn what_loses_ends_and_begins_again_when_a_small_share_of_the_time_was_saved_up() {
        // Twice the time for as many tokens: each loses a step.
        assert!(after([(true, 2, 200); 2]).allows());
        assert!(!after([(true, 2, 200); 3]).allows());
        let waits = |steps: usize| [(true, 2, 200); 3].into_iter().chain(vec![(false, 2, 100); steps]);
        assert!(!after(waits(499)).allows());
        assert!(after(waits(502)).allows());
    }

    #[test]
    fn what_gains_goes_on_and_saves_up_no_more_than_a_few_steps() {
        let (gains, much) = ([(true, 3, 120); 500], [(true, 8, 200); 500]);
        assert!(after(much).allows() && !after(much).is_close() && after([(true, 2, 90); 20]).is_close());
        let loses = |n| [(true, 2, 200); 30].into_iter().take(n);
        assert!(!after(gains.into_iter().chain(loses(6))).allows());
        // More is kept until what comes has brought the average down.
        assert!(after(much.into_iter().chain(loses(12))).allows());
        assert!(!after(much.into_iter().chain(loses(24))).allows());
    }

    #[test]
    fn a_step_that_the_machine_held_up_does_not_end_them() {
        // Of four steps that it may count as, one gave tokens; the first step gained two.
        assert!(after([(true, 8, 200), (true, 2, 1_000_000)]).allows());
    }

    #[test]
    fn time_without_work_and_steps_of_which_nobody_knows_what_they_should_take_count_for_nothing() {
        let mut budget = Budget::default();
        for i in 0..100 {
            budget.commit(toll(true), 2, Micros(1_000_000 * i), false);
            budget.commit(None, 2, Micros(1_000_000 * i), false);
        }
        assert!(budget.allows());
    }
}

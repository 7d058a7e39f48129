//! The gate: as many drafts as make the most tokens a millisecond, by what guesses were worth and what steps took. None
//! is an answer.

use super::proposal::Proposal;

/// To begin to draft, a step must promise this many times the tokens a time that one without drafts has. What is on
/// goes on as long as it does not lose: the difference keeps chance from switching it at every step.
const BEGIN: f64 = 1.10;
/// To go on. What steps take is known to a few parts in a hundred, and the best of many numbers is also the luckiest.
const GO_ON: f64 = 1.04;
/// After so many steps with drafts come some without: what these take is not seen otherwise, and changes.
const DRAFTING_STEPS: u32 = 256;
/// Steps with drafts before some without where drafts gain little: a machine that became faster would make a loss of
/// them.
const CLOSE_STEPS: u32 = 48;
/// So many. The first ones still follow one that drafted.
const RESTING_STEPS: u32 = 6;
/// After so many steps without drafts, at first and at most, those that are offered are tried in one.
const TRIES_AFTER: u32 = 128;
const TRIES_AFTER_MAX: u32 = 2048;
/// If it should have this many times the tokens.
const WORTH_A_TRY: f64 = 3.0;

/// What was chosen last.
#[derive(Clone, Copy, Debug)]
pub(in crate::scheduler) struct Gate {
    drafts: bool,
    /// Steps with drafts since there were some without, and of those without how many are to come.
    drafted: u32,
    rests: u32,
    /// Steps without drafts since the last with some, and after how many guesses are tried all the same.
    declined: u32,
    tries_after: u32,
}

impl Default for Gate {
    fn default() -> Self {
        Self { drafts: false, drafted: 0, rests: 0, declined: 0, tries_after: TRIES_AFTER }
    }
}

impl Gate {
    /// One that tries nothing: whoever asks it has a way of its own.
    pub(in crate::scheduler) fn without_tries() -> Self {
        Self { tries_after: u32::MAX, ..Self::default() }
    }

    /// A step was launched, with drafts or without; `close` if drafts gain little.
    pub(in crate::scheduler) fn chose(&mut self, drafts: bool, close: bool) {
        // What was a rest has not shown that drafts do not pay.
        self.drafts = drafts || self.rests > 1;
        self.rests = self.rests.saturating_sub(u32::from(!drafts));
        self.drafted = if drafts { self.drafted + 1 } else { 0 };
        if self.drafted >= if close { CLOSE_STEPS } else { DRAFTING_STEPS } {
            (self.drafted, self.rests) = (0, RESTING_STEPS);
        }
        if drafts && self.tries_after != u32::MAX {
            let tried = self.declined >= self.tries_after;
            self.tries_after = if tried { (2 * self.tries_after).min(TRIES_AFTER_MAX) } else { TRIES_AFTER };
        }
        self.declined = if drafts { 0 } else { self.declined.saturating_add(1) };
    }

    /// How many tokens of each offer are worth a row, of at most `room` together, beside `rows` rows that are there
    /// anyway. `us`: what the step takes with so many drafts, so many of them of one offer, microseconds; while nobody
    /// knows, nothing is drafted.
    pub(in crate::scheduler) fn choose(
        &self,
        offers: &[Proposal],
        rows: u32,
        room: usize,
        us: impl Fn(u32, u32) -> Option<f64>,
    ) -> Vec<usize> {
        let mut granted = vec![0; offers.len()];
        let Some(without) = us(0, 0).filter(|us| *us > 0.0 && self.rests == 0) else { return granted };
        let best = ranked(offers);
        let (mut tokens, mut most, mut count) = (f64::from(rows), 0.0, 0);
        let (mut of_each, mut deepest) = (vec![0; offers.len()], 0);
        for (n, (chance, offer)) in best.iter().take(room).enumerate() {
            tokens += chance;
            of_each[*offer] += 1;
            deepest = deepest.max(of_each[*offer]);
            let rate = us(n as u32 + 1, deepest).map_or(0.0, |us| tokens / us);
            if rate > most {
                (most, count) = (rate, n + 1);
            }
        }
        let gain = most * without / f64::from(rows.max(1));
        // What was declined for long may be worth it by now. Only where much could be gained.
        let tries = self.declined >= self.tries_after && self.tries_after != u32::MAX;
        if tries && tokens >= WORTH_A_TRY * f64::from(rows) {
            count = best.len().min(room);
        } else if gain <= if self.drafts { GO_ON } else { BEGIN } {
            count = 0;
        }
        if count > 0 {
            best[..count].iter().for_each(|(_, offer)| granted[*offer] += 1);
        }
        granted
    }
}

/// What waiting for one token that is on its way may bring.
pub(in crate::scheduler) struct PlanWait {
    /// The chance that it is the one that was guessed.
    pub(in crate::scheduler) right: f64,
    /// What the wait takes, microseconds.
    pub(in crate::scheduler) us: f64,
}

impl PlanWait {
    /// Should the only row of the next step wait for its token, because all of `offer` will stand behind it if that is the
    /// one that was guessed? If not, nothing is drafted, and the wait is lost. `us`: what the step takes with so many drafts.
    pub(in crate::scheduler) fn pays(&self, offer: &Proposal, us: impl Fn(u32) -> Option<f64>) -> bool {
        let (Some(without), Some(with)) = (us(0), us(offer.tokens.len() as u32)) else { return false };
        let wrong = 1.0 - self.right;
        let tokens = 1.0 + self.right * offer.worth();
        tokens * without > GO_ON * (self.right * with + wrong * (without + self.us))
    }
}

/// All that is offered, as far as there is room.
pub(in crate::scheduler) fn fill(offers: &[Proposal], room: usize) -> Vec<usize> {
    let mut granted = vec![0; offers.len()];
    ranked(offers).iter().take(room).for_each(|(_, offer)| granted[*offer] += 1);
    granted
}

/// The chance of each offered token to count, best first, with whose it is. A token is never more likely than the one
/// before it, so the tokens of an offer come in their order.
fn ranked(offers: &[Proposal]) -> Vec<(f64, usize)> {
    let all = offers.iter().enumerate().flat_map(|(i, offer)| {
        let mut chance = 1.0;
        offer.chances.iter().map(move |share| {
            chance *= f64::from(*share);
            (chance, i)
        })
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(chances: &[f32]) -> Proposal {
        Proposal::with_chances(chances)
    }

    fn choose(gate: Gate, offers: &[Proposal], row_us: f64) -> Vec<usize> {
        let rows = offers.len() as u32;
        gate.choose(offers, rows, 16, |drafts, _| Some(1_000.0 + row_us * f64::from(rows + drafts)))
    }

    const OFF: Gate = Gate { drafts: false, drafted: 0, rests: 0, declined: 0, tries_after: TRIES_AFTER };
    const ON: Gate = Gate { drafts: true, ..OFF };

    #[test]
    fn as_many_are_drafted_as_make_the_most_tokens_a_time() {
        let likely = [offer(&[0.9; 7])];
        assert_eq!(choose(OFF, &likely, 1.0), [7], "a row costs nothing");
        assert_eq!(choose(OFF, &likely, 400.0), [5]);
        assert_eq!(choose(OFF, &likely, 1e6), [0], "a row costs a step");
        assert_eq!(choose(OFF, &[offer(&[0.02; 7])], 100.0), [0]);
    }

    #[test]
    fn the_likeliest_tokens_of_all_sequences_come_first() {
        let got = choose(OFF, &[offer(&[0.2; 7]), offer(&[0.95; 7])], 250.0);
        assert!(got[0] == 0 && got[1] > 3, "{got:?}");
        assert_eq!(fill(&[offer(&[0.2; 7]), offer(&[0.9; 4])], 5), [1, 4]);
    }

    #[test]
    fn what_one_sequence_has_beyond_the_others_costs_passes_of_its_own() {
        let offers = [offer(&[0.95; 7]), offer(&[0.9]), offer(&[0.9])];
        let us = |pass_us: f64| move |_: u32, deepest: u32| Some(1_000.0 + pass_us * f64::from(deepest));
        assert_eq!(OFF.choose(&offers, 3, 16, us(10.0)), [7, 1, 1]);
        assert_eq!(OFF.choose(&offers, 3, 16, us(400.0)), [2, 1, 1]);
    }

    #[test]
    fn what_is_on_goes_on_where_it_would_not_begin() {
        let offers = [offer(&[0.42])];
        assert_eq!((choose(OFF, &offers, 500.0), choose(ON, &offers, 500.0)), (vec![0], vec![1]));
        assert_eq!(choose(ON, &[offer(&[0.36])], 500.0), [0]);
    }

    #[test]
    fn now_and_then_there_are_steps_without_drafts_whatever_they_gain() {
        let (mut gate, likely) = (OFF, [offer(&[0.9; 7])]);
        let drafted: Vec<bool> = (0..600)
            .map(|_| {
                let drafts = choose(gate, &likely, 1.0) != [0];
                gate.chose(drafts, false);
                drafts
            })
            .collect();
        let without = drafted.iter().filter(|drafts| !**drafts).count() as u32;
        assert_eq!(without, 2 * RESTING_STEPS);
        let first = drafted.iter().position(|drafts| !drafts).unwrap();
        assert_eq!(drafted[first..].iter().position(|drafts| *drafts), Some(RESTING_STEPS as usize));
        assert_eq!(choose(gate, &[offer(&[0.42])], 500.0), [1], "and then it goes on as before");
    }

    #[test]
    fn what_was_declined_for_long_is_tried_ever_more_seldom_where_much_could_be_gained() {
        let tries = |offers: &[Proposal]| {
            let mut gate = OFF;
            let mut tried = |n: u32| {
                let drafts = choose(gate, offers, 1e6)[0] > 0;
                gate.chose(drafts, false);
                drafts.then_some(n)
            };
            (0..2_000).filter_map(&mut tried).collect::<Vec<_>>()
        };
        assert_eq!(tries(&[offer(&[0.9; 7])]), [128, 385, 898, 1_923]);
        assert_eq!(tries(&[offer(&[0.4; 3])]), [0; 0]);
    }

    #[test]
    fn a_row_waits_for_a_token_if_what_may_come_behind_it_pays_for_the_waits_in_vain() {
        let us = |drafts: u32| Some(1_000.0 + 300.0 * f64::from(drafts));
        let waits = |chances: &[f32], right, wait_us| {
            let drafts = OFF.choose(&[offer(chances)], 1, 16, |drafts, _| us(drafts))[0];
            drafts > 0 && PlanWait { right, us: wait_us }.pays(&offer(chances).cut(drafts), us)
        };
        assert!(waits(&[0.9; 7], 0.5, 200.0) && !waits(&[0.9; 7], 0.5, 2_000.0));
        assert!(!waits(&[0.9; 7], 0.05, 200.0));
        assert!(!waits(&[0.3; 7], 1.0, 0.0), "nothing would be drafted");
    }

    #[test]
    fn nothing_is_drafted_while_nobody_knows_what_steps_take_or_without_room() {
        assert_eq!(OFF.choose(&[offer(&[1.0])], 1, 16, |_, _| None), [0]);
        assert_eq!(OFF.choose(&[offer(&[1.0])], 1, 0, |_, _| Some(1.0)), [0]);
        assert_eq!(OFF.choose(&[], 0, 16, |_, _| Some(1.0)), [0; 0]);
    }
}

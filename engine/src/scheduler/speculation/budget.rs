//! What drafts may lose. A gate chooses by what it expects, and where a row more or a guess takes nearly what it saves,
//! chance chooses. So what steps with drafts took is held against what their tokens would have taken without, and where
//! drafts lost what they may, there are none until as much was saved up again: whatever the gate believes, they cost no
//! more than a small share of the time.
//!
//! The draft head and what the host looks up may lose by themselves: that one of them is wrong says nothing of the other.
//!
//! All is counted in steps without drafts. What these take changes too, with what else a machine does, and while all
//! steps have drafts nobody sees it: then drafts pay for the others' work. So where nothing is left, the late steps with
//! drafts are held, once, against what steps without turn out to take now.

use crate::drafts::{DraftKind, DraftKinds};
use crate::ids::Micros;

/// What steps with drafts may lose before anything is known of them.
const AT_FIRST: f64 = 5.0;
/// The most that they may lose of what they gained before: what sequences say changes.
const SAVED_MAX: f64 = 6.0;
/// The most that drafts may lose while they gain much: the error of what is known of times is smaller than that gain.
const SAVED_MAX_OF_MUCH: f64 = 24.0;
/// Drafts gain much where a step with some gives this much beyond what it takes, on average.
const MUCH: f64 = 0.5;
/// What a step without drafts adds to what they may lose.
const EARNED: f64 = 0.004;
/// Drafts gain little where a step with some gives no more than so much beyond what it takes, on average.
const CLOSE: f64 = 0.3;
/// Part of that average that a step replaces.
const CLOSE_PART: f64 = 0.1;
/// So many steps without drafts tell what such steps take by now; twice as many the next time.
const TELLING: u32 = 12;
/// Most steps without drafts that tell what such steps take.
const TELLING_MAX: u32 = 768;
/// Drafts go on if they gained, by that, so much beyond what a step with some took, on average.
const GAINED_ALL_THE_SAME: f64 = 0.2;
/// Part of the late steps with drafts that one replaces.
const LATE_PART: f64 = 1.0 / 32.0;
/// When nothing was left, they begin again with so much.
const BEGIN_AGAIN: f64 = 2.0;
/// Where nothing is left, guesses are compared with what comes after so many steps without; twice as many each time that
/// drafts begin again for it.
const TRIAL_AFTER: u32 = 256;
/// Most steps without drafts before guesses are compared again.
const TRIAL_AFTER_MAX: u32 = 2048;
/// Part of the share of drafts that were right that a step with some replaces at least.
const RIGHT_PART: f64 = 0.125;
/// Drafts of which more were right lost by what they took.
const RIGHT_ALL_THE_SAME: f64 = 0.6;
/// A step counts as at most this many times what was expected of it: the machine held it up, and not its drafts. What
/// lasts is expected soon.
const HELD_UP_MAX: f64 = 2.0;
/// As [`HELD_UP_MAX`], for steps with a number of rows that was never drafted: the expected time is less certain.
const UNTRIED_MAX: f64 = 8.0;
/// But as no more than a step for its own rows, one for each row that is drafted behind each of them, and so many for having
/// been waited for: the rest was the machine.
const WAITED_FOR: f64 = 1.0;

/// What a step was expected to take when it was planned, microseconds.
#[derive(Clone, Copy, Debug)]
pub(in crate::scheduler) struct ExpectedStepTime {
    /// Its decode rows, without drafts.
    pub(in crate::scheduler) rows: u32,
    /// Rows that are drafted behind them.
    pub(in crate::scheduler) drafted: u32,
    /// Expected time of its decode rows without drafts.
    pub(in crate::scheduler) without_us: f64,
    /// Expected time of the step with its drafts.
    pub(in crate::scheduler) expected_us: f64,
    /// A step with drafts and as many rows was seen.
    pub(in crate::scheduler) tried: bool,
    /// It has drafts, asks for guesses, or was not planned ahead because there might be some.
    pub(in crate::scheduler) drafts: bool,
    /// The class of proposers whose drafts the step has.
    pub(in crate::scheduler) whose: ProposerClass,
}

impl ExpectedStepTime {
    /// The most that it counts as, microseconds.
    fn most_us(&self) -> f64 {
        let held_up = if self.tried { HELD_UP_MAX } else { UNTRIED_MAX } * self.expected_us;
        held_up.min((1.0 + f64::from(self.drafted) / f64::from(self.rows) + WAITED_FOR) * self.without_us)
    }
}

/// The class of proposers that drafts come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::scheduler) enum ProposerClass {
    /// The draft head of the model.
    Head,
    /// A source on the host.
    #[default]
    LookedUp,
}

impl From<DraftKind> for ProposerClass {
    fn from(kind: DraftKind) -> Self {
        if kind.is_head() { Self::Head } else { Self::LookedUp }
    }
}

/// Late steps with drafts, on average.
#[derive(Clone, Copy, Debug, Default)]
struct RecentGains {
    /// How much of the average they are yet.
    known: f64,
    /// Tokens that a row of such steps gave.
    gave: f64,
    /// In steps without, as these were known then.
    took: f64,
    /// The last of them: its rows, and what it would have taken without.
    rows: u32,
    without_us: f64,
}

impl RecentGains {
    fn note(&mut self, expected: &ExpectedStepTime, gave: f64, took: f64) {
        (self.rows, self.without_us) = (expected.rows, expected.without_us);
        for (average, now) in [(&mut self.known, 1.0), (&mut self.gave, gave), (&mut self.took, took)] {
            *average += LATE_PART * (now - *average);
        }
    }

    /// What they gained on average, if steps without took `slower` times what was known of them.
    fn gained(&self, slower: f64) -> f64 {
        (self.gave - self.took / slower) / self.known
    }
}

/// The share of drafts that were right of late.
#[derive(Clone, Copy, Debug)]
struct Right {
    share: f64,
    /// Part of it that the next step replaces.
    part: f64,
}

impl Default for Right {
    fn default() -> Self {
        Self { share: 1.0, part: 0.5 }
    }
}

impl Right {
    fn note(&mut self, share: f64) {
        self.share += self.part * (share - self.share);
        self.part = RIGHT_PART.max(self.part / (1.0 + self.part));
    }
}

/// Steps without drafts since nothing is left.
#[derive(Clone, Copy, Debug)]
struct Telling {
    steps: u32,
    us: f64,
    /// How many are wanted.
    wanted: u32,
}

impl Telling {
    fn wanting(wanted: u32) -> Self {
        Self { steps: 0, us: 0.0, wanted }
    }
}

/// What drafts may lose.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::scheduler) struct Budgets {
    /// The budget of each class, in the order of [`ProposerClass`].
    each: [DraftBudget; 2],
    /// Class of the proposers of the last step that had drafts.
    last: ProposerClass,
    /// The last commit, if the device has had work since.
    since: Option<Micros>,
    /// A plan was held back since the last step, because something may be drafted.
    held_back: bool,
}

impl Budgets {
    /// Is there anything left to lose for what such a source guesses?
    pub(in crate::scheduler) fn allows(&self, kind: DraftKind) -> bool {
        self.allows_class(kind.into())
    }

    fn allows_class(&self, class: ProposerClass) -> bool {
        !self.each[class as usize].spent
    }

    /// Is there anything left to lose for the guesses of the draft head?
    pub(in crate::scheduler) fn allows_head(&self) -> bool {
        self.allows_class(ProposerClass::Head)
    }

    /// The kinds of sources for which there is anything left to lose.
    pub(in crate::scheduler) fn allowed(&self) -> DraftKinds {
        DraftKind::ALL.into_iter().filter(|kind| self.allows(*kind)).collect()
    }

    /// Where a draft head may lose nothing any more because its guesses were wrong: after how many steps without they are
    /// compared with what comes. That they are right says nothing where rows cost more than they bring.
    pub(in crate::scheduler) fn trial_after(&self) -> Option<u32> {
        let head = &self.each[ProposerClass::Head as usize];
        (head.spent && head.right.share < RIGHT_ALL_THE_SAME).then_some(head.trial_after)
    }

    /// What a draft head lost it lost to something else: there is something left to lose again.
    pub(in crate::scheduler) fn begin_again(&mut self) {
        let head = &mut self.each[ProposerClass::Head as usize];
        if head.spent {
            head.trial_after = (2 * head.trial_after).min(TRIAL_AFTER_MAX);
            head.begin_again();
        }
    }

    /// Did the last drafts gain little?
    pub(in crate::scheduler) fn is_close(&self) -> bool {
        self.each[self.last as usize].gained < CLOSE
    }

    /// The next step is not planned ahead.
    pub(in crate::scheduler) fn hold_back(&mut self) {
        self.held_back = true;
    }

    /// A step is launched. Was it held back, it is for those that drafted last.
    pub(in crate::scheduler) fn launch(&mut self, expected: Option<ExpectedStepTime>) -> Option<ExpectedStepTime> {
        let (held_back, expected) = (std::mem::take(&mut self.held_back), expected?);
        let whose = if expected.drafts { expected.whose } else { self.last };
        Some(ExpectedStepTime { drafts: expected.drafts || held_back, whose, ..expected })
    }

    /// So many steps' time goes to guesses of the draft head that a later one may have.
    pub(in crate::scheduler) fn pay(&mut self, steps: f64) {
        self.each[ProposerClass::Head as usize].left -= steps;
    }

    /// A step was committed that gave so many tokens; `busy` if there is more to do. A step without
    /// an expected time counts for nothing.
    pub(in crate::scheduler) fn commit(
        &mut self,
        expected: Option<ExpectedStepTime>,
        tokens: usize,
        now: Micros,
        busy: bool,
    ) {
        let since = std::mem::replace(&mut self.since, busy.then_some(now));
        let (Some(expected), Some(since)) = (expected, since) else { return };
        let us = now.since(since).0 as f64;
        if expected.drafts {
            self.last = expected.whose;
            self.each[expected.whose as usize].drafted(&expected, tokens, us);
        } else {
            self.each.iter_mut().for_each(|budget| budget.rested(&expected, us));
        }
    }
}

/// What some drafts may lose.
#[derive(Clone, Copy, Debug)]
struct DraftBudget {
    left: f64,
    /// What steps with drafts gained of late, on average.
    gained: f64,
    late: RecentGains,
    telling: Telling,
    trial_after: u32,
    right: Right,
    /// Nothing was left, and not yet enough was saved up again.
    spent: bool,
}

impl Default for DraftBudget {
    fn default() -> Self {
        let (late, telling) = (RecentGains::default(), Telling::wanting(TELLING));
        Self {
            left: AT_FIRST,
            gained: 0.0,
            late,
            telling,
            trial_after: TRIAL_AFTER,
            right: Right::default(),
            spent: false,
        }
    }
}

impl DraftBudget {
    /// A step with such drafts took so long.
    fn drafted(&mut self, expected: &ExpectedStepTime, tokens: usize, us: f64) {
        let (gave, took) = (tokens as f64 / f64::from(expected.rows), us.min(expected.most_us()) / expected.without_us);
        self.late.note(expected, gave, took);
        self.gained += CLOSE_PART * (gave - took - self.gained);
        if expected.drafted > 0 {
            self.right.note((tokens as f64 - f64::from(expected.rows)) / f64::from(expected.drafted));
        }
        self.add(gave - took);
    }

    /// A step without drafts took so long.
    fn rested(&mut self, expected: &ExpectedStepTime, us: f64) {
        self.add(EARNED);
        if self.spent && self.gained_all_the_same(expected, us) {
            self.begin_again();
        }
    }

    fn begin_again(&mut self) {
        self.left = self.left.max(BEGIN_AGAIN + EARNED);
        self.add(0.0);
    }

    fn add(&mut self, steps: f64) {
        self.left += steps;
        let most = if self.gained > MUCH { SAVED_MAX_OF_MUCH } else { SAVED_MAX };
        if self.left >= most {
            (self.left, self.telling, self.trial_after) = (most, Telling::wanting(TELLING), TRIAL_AFTER);
        }
        self.spent = self.left <= if self.spent { BEGIN_AGAIN } else { 0.0 };
    }

    /// Did late steps with drafts gain, by what steps without take now, of which this is one?
    fn gained_all_the_same(&mut self, expected: &ExpectedStepTime, us: f64) -> bool {
        let Self { late, telling, .. } = self;
        if expected.rows != late.rows {
            return false;
        }
        // A step that the machine held up tells nothing of others.
        (telling.steps, telling.us) = (telling.steps + 1, telling.us + us.min(HELD_UP_MAX * expected.expected_us));
        if telling.steps < telling.wanted {
            return false;
        }
        let slower = telling.us / f64::from(telling.steps) / late.without_us;
        self.telling = Telling::wanting((2 * telling.wanted).min(TELLING_MAX));
        late.gained(slower) > GAINED_ALL_THE_SAME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(drafts: bool) -> Option<ExpectedStepTime> {
        Some(ExpectedStepTime {
            rows: 2,
            drafted: 14,
            without_us: 100.0,
            expected_us: 200.0,
            tried: true,
            drafts,
            whose: ProposerClass::Head,
        })
    }

    /// Budgets behind steps of (drafts, tokens, microseconds).
    fn after(steps: impl IntoIterator<Item = (bool, usize, u64)>) -> Budgets {
        let (mut budget, mut now) = (Budgets::default(), 0);
        budget.commit(None, 0, Micros(now), true);
        for (drafts, tokens, us) in steps {
            now += us;
            budget.commit(expected(drafts), tokens, Micros(now), true);
        }
        budget
    }

    #[test]
    fn what_loses_ends_and_begins_again_when_a_small_share_of_the_time_was_saved_up() {
        // Twice the time for as many tokens: each loses a step.
        assert!(after([(true, 2, 200); 4]).allows_head());
        assert!(!after([(true, 2, 200); 5]).allows_head());
        let waits = |steps: usize| [(true, 2, 200); 5].into_iter().chain(vec![(false, 2, 100); steps]);
        assert!(!after(waits(499)).allows_head());
        assert!(after(waits(502)).allows_head());
    }

    #[test]
    fn what_the_draft_head_lost_is_not_what_others_may_lose() {
        let loses = after([(true, 2, 200); 5]);
        assert!(!loses.allows_head());
        assert!(loses.allows(DraftKind::Ngram) && loses.allows(DraftKind::Prediction));
    }

    #[test]
    fn what_gains_goes_on_and_saves_up_no_more_than_a_few_steps() {
        let (gains, much) = ([(true, 3, 120); 500], [(true, 8, 200); 500]);
        assert!(after(much).allows_head() && !after(much).is_close() && after([(true, 2, 90); 20]).is_close());
        let loses = |n| [(true, 2, 200); 30].into_iter().take(n);
        assert!(!after(gains.into_iter().chain(loses(6))).allows_head());
        // More is kept until what comes has brought the average down.
        assert!(after(much.into_iter().chain(loses(12))).allows_head());
        assert!(!after(much.into_iter().chain(loses(24))).allows_head());
    }

    #[test]
    fn a_step_that_the_machine_held_up_does_not_end_them() {
        // Of four steps that it may count as, one gave tokens; the first step gained two.
        assert!(after([(true, 8, 200), (true, 2, 1_000_000)]).allows_head());
    }

    #[test]
    fn where_the_machine_had_become_slower_for_all_steps_drafts_go_on_soon() {
        // Each gave two tokens for 1.5 steps' time; then the machine takes twice as long for everything.
        let fast = || vec![(true, 4, 150); 60];
        let slow = |n| fast().into_iter().chain(vec![(true, 4, 300); n]);
        assert!(!after(slow(30)).allows_head());
        let without = |us| slow(30).chain(vec![(false, 2, us); 14]);
        assert!(after(without(200)).allows_head(), "it was the machine");
        assert!(!after(without(100)).allows_head(), "it was not");
        let losing = vec![(true, 2, 200); 30].into_iter().chain(vec![(false, 2, 100); 100]);
        assert!(!after(losing).allows_head(), "they lose whatever the machine does");
    }

    #[test]
    fn time_without_work_and_steps_of_which_nobody_knows_what_they_should_take_count_for_nothing() {
        let mut budget = Budgets::default();
        for i in 0..100 {
            budget.commit(expected(true), 2, Micros(1_000_000 * i), false);
            budget.commit(None, 2, Micros(1_000_000 * i), false);
        }
        assert!(budget.allows_head());
    }
}

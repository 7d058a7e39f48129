//! When an actor of a deferred source is told of a launched step: at once, or with the tokens of the step before.

use chimere_engine::constraint::Awaiting;
use chimere_engine::ids::StepId;

/// Launched steps of which an actor is told with the tokens of a step that is still in flight, so that it is woken once
/// for both. Only rows whose tokens came earlier could be answered before that, and nobody needs those rules sooner.
#[derive(Debug, Default)]
pub(super) struct DeferredAwaits {
    launched: Vec<Awaiting>,
    /// The last step whose tokens went out.
    sampled: Option<StepId>,
}

impl DeferredAwaits {
    /// Notes a step that was launched right behind the step `before`. Gives it back where the actor has to be told of
    /// it at once, because no tokens are to come that it could go with.
    pub(super) fn launched(&mut self, step: Awaiting, before: Option<StepId>) -> Option<Awaiting> {
        if before.is_none_or(|before| self.sampled >= Some(before)) {
            return Some(step);
        }
        self.launched.push(step);
        None
    }

    /// Takes the steps of which the actor is told with the tokens of this step, oldest first.
    pub(super) fn sampled(&mut self, step: StepId) -> Vec<Awaiting> {
        self.sampled = Some(step);
        std::mem::take(&mut self.launched)
    }

    /// Forgets the launched steps, of which nobody has to be told any more.
    pub(super) fn forget(&mut self) {
        self.launched.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(id: u64) -> Awaiting {
        Awaiting { step: StepId(id), rows: Vec::new(), drafts: Default::default() }
    }

    /// `L2` launches step 2 while step 1 is in flight, `L2!` while none is; `S1` has the tokens of step 1. Then what
    /// was told: `2` at once, `(2)` with tokens.
    #[track_caller]
    fn check(events: &str, told: &str) {
        let (mut awaits, mut got) = (DeferredAwaits::default(), Vec::new());
        for event in events.split(' ') {
            let id: u64 = event.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
            if event.starts_with('L') {
                let before = (!event.ends_with('!')).then(|| StepId(id - 1));
                got.extend(awaits.launched(step(id), before).map(|step| step.step.to_string()));
            } else {
                got.extend(awaits.sampled(StepId(id)).iter().map(|step| format!("({})", step.step)));
            }
        }
        assert_eq!(got.join(" "), told);
    }

    #[test]
    fn a_step_goes_with_the_tokens_of_the_one_before_and_at_once_where_these_are_out() {
        check("L1! L2 S1 L3 S2 S3", "1 (2) (3)");
        check("L1! S1 L2 S2", "1 2");
        check("L1! L2 L3 S1 S2", "1 (2) (3)");
        check("S7 L9 S8 L10 S9", "(9) (10)");
    }

    #[test]
    fn an_actor_that_comes_new_is_told_nothing_of_the_steps_before() {
        let mut awaits = DeferredAwaits::default();
        assert_eq!(awaits.launched(step(2), Some(StepId(1))), None);
        awaits.forget();
        assert_eq!(awaits.sampled(StepId(1)), []);
    }
}

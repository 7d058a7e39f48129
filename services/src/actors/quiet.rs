//! What need not wake anybody: it lies there until its reader comes by for another reason.

use chimere_engine::constraint::Awaiting;
use chimere_engine::ids::StepId;
use parking_lot::Mutex;
use std::sync::Arc;

/// Messages that are read when their reader is awake anyway. Clones share them.
pub struct Quiet<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Quiet<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Quiet<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Quiet<T> {
    /// Puts one there. Its reader comes by once a step at least, so there are few.
    pub fn put(&self, message: T) {
        self.0.lock().push(message);
    }

    /// All that have come, in their order.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// Launched steps that can be told of with the tokens of a step that is still in flight: nothing can be answered
/// before these anyway, but for rows whose tokens came earlier, and nobody needs those sooner.
#[derive(Debug, Default)]
pub struct TokenDesk {
    launched: Vec<Awaiting>,
    /// The last step whose tokens went out.
    sampled: Option<StepId>,
}

impl TokenDesk {
    /// A step was launched right behind the step `before`. Gives it back where it has to be told of at once: no tokens
    /// are to come that it could go with.
    pub fn launched(&mut self, step: Awaiting, before: Option<StepId>) -> Option<Awaiting> {
        if before.is_none_or(|before| self.sampled >= Some(before)) {
            return Some(step);
        }
        self.launched.push(step);
        None
    }

    /// The tokens of a step go out: what goes with them, oldest first.
    pub fn sampled(&mut self, step: StepId) -> Vec<Awaiting> {
        self.sampled = Some(step);
        std::mem::take(&mut self.launched)
    }

    /// Nobody has to be told any more of what was launched.
    pub fn forget(&mut self) {
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
        let (mut desk, mut got) = (TokenDesk::default(), Vec::new());
        for event in events.split(' ') {
            let id: u64 = event.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
            if event.starts_with('L') {
                let before = (!event.ends_with('!')).then(|| StepId(id - 1));
                got.extend(desk.launched(step(id), before).map(|step| step.step.to_string()));
            } else {
                got.extend(desk.sampled(StepId(id)).iter().map(|step| format!("({})", step.step)));
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
    fn what_was_put_down_quietly_is_read_once_and_in_its_order() {
        let quiet = Quiet::default();
        quiet.put(1);
        quiet.clone().put(2);
        assert_eq!((quiet.take(), quiet.take()), (vec![1, 2], vec![]));
    }

    #[test]
    fn an_actor_that_comes_new_is_told_nothing_of_the_steps_before() {
        let mut desk = TokenDesk::default();
        assert_eq!(desk.launched(step(2), Some(StepId(1))), None);
        desk.forget();
        assert_eq!(desk.sampled(StepId(1)), []);
    }
}

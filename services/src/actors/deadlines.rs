//! By when requests have to be done: those that live, the next first.
//!
//! An actor looks at each of its timers whenever it is woken, and one for each request would stay until its time has
//! come, a day if the caller says so. So the scheduler actor has one timer, and this says when it should ring.

use chimere_engine::ids::{Micros, RequestId};
use std::collections::{BTreeSet, HashMap};

/// Deadlines of requests that live.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    of: HashMap<RequestId, Micros>,
    by_time: BTreeSet<(Micros, RequestId)>,
}

impl Deadlines {
    /// A request has one.
    pub(super) fn insert(&mut self, id: RequestId, at: Micros) {
        let before = self.of.insert(id, at);
        debug_assert_eq!(before, None, "a request has one deadline");
        self.by_time.insert((at, id));
    }

    /// A request has ended, whether it had one or not.
    pub(super) fn remove(&mut self, id: RequestId) {
        if let Some(at) = self.of.remove(&id) {
            self.by_time.remove(&(at, id));
        }
    }

    /// The next one.
    pub(super) fn next(&self) -> Option<Micros> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// A request whose deadline has passed, the longest ago, if there is any; it has none any more.
    pub(super) fn pop_passed(&mut self, now: Micros) -> Option<RequestId> {
        let (_, id) = self.by_time.first().copied().filter(|(at, _)| *at <= now)?;
        self.remove(id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_pass_in_the_order_of_their_times_and_those_that_ended_are_gone() {
        let mut all = Deadlines::default();
        for (id, at) in [(1, 50), (2, 20), (3, 20), (4, 90)] {
            all.insert(RequestId(id), Micros(at));
        }
        assert_eq!((all.next(), all.pop_passed(Micros(19))), (Some(Micros(20)), None));
        all.remove(RequestId(2));
        all.remove(RequestId(7));
        assert_eq!(all.pop_passed(Micros(60)), Some(RequestId(3)));
        assert_eq!(all.pop_passed(Micros(60)), Some(RequestId(1)));
        assert_eq!((all.pop_passed(Micros(60)), all.next()), (None, Some(Micros(90))));
        all.remove(RequestId(4));
        assert!(all.next().is_none() && all.of.is_empty(), "{all:?}");
    }
}

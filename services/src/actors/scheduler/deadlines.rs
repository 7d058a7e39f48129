//! By when requests have to be done: those that live, the next first.
//!
//! An actor looks at each of its timers whenever it is woken, and one for each request would stay until its time has
//! come, a day if the caller says so. So the scheduler actor has one timer, and this says when it should ring: at a
//! moment, whatever the service's clock does meanwhile.

use chimere_engine::ids::RequestId;
use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

/// Deadlines of requests that live.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    of: HashMap<RequestId, Instant>,
    by_time: BTreeSet<(Instant, RequestId)>,
}

impl Deadlines {
    /// A request has one.
    pub(super) fn insert(&mut self, id: RequestId, at: Instant) {
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

    /// The time of the next deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// A request whose deadline has passed, the longest ago, if there is any; it has none any more.
    pub(super) fn pop_passed(&mut self, now: Instant) -> Option<RequestId> {
        let (_, id) = self.by_time.first().copied().filter(|(at, _)| *at <= now)?;
        self.remove(id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn they_pass_in_the_order_of_their_times_and_those_that_ended_are_gone() {
        let (mut all, begin) = (Deadlines::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        for (id, seconds) in [(1, 50), (2, 20), (3, 20), (4, 90)] {
            all.insert(RequestId(id), at(seconds));
        }
        assert_eq!((all.next(), all.pop_passed(at(19))), (Some(at(20)), None));
        all.remove(RequestId(2));
        all.remove(RequestId(7));
        assert_eq!(all.pop_passed(at(60)), Some(RequestId(3)));
        assert_eq!(all.pop_passed(at(60)), Some(RequestId(1)));
        assert_eq!((all.pop_passed(at(60)), all.next()), (None, Some(at(90))));
        all.remove(RequestId(4));
        assert!(all.next().is_none() && all.of.is_empty(), "{all:?}");
    }
}

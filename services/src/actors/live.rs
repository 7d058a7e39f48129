//! The requests that have not been answered to the end yet: many HTTP threads add and remove, a few others look.

use chimere_engine::ids::RequestId;
use dashmap::DashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Live requests by id, with the name that the client or the service gave each (`x-request-id`). Clones share one
/// table.
#[derive(Clone, Debug, Default)]
pub struct LiveRequests {
    table: Arc<DashMap<RequestId, Arc<str>>>,
    next: Arc<AtomicU64>,
}

impl LiveRequests {
    /// A new id, in the table until the entry is dropped.
    pub fn enter(&self, name: Arc<str>) -> LiveEntry {
        let id = RequestId(self.next.fetch_add(1, Ordering::Relaxed));
        self.table.insert(id, name.clone());
        LiveEntry { id, name, live: self.clone() }
    }

    /// What the client calls a request.
    pub fn name(&self, id: RequestId) -> Option<Arc<str>> {
        self.table.get(&id).map(|entry| entry.clone())
    }

    /// How many there have been, those that are answered too.
    pub fn entered(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Everything has been answered.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

/// A place in the table; dropping it leaves.
#[derive(Debug)]
pub struct LiveEntry {
    /// Unique in this process.
    pub id: RequestId,
    name: Arc<str>,
    live: LiveRequests,
}

impl LiveEntry {
    /// What the client calls the request.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for LiveEntry {
    fn drop(&mut self) {
        self.live.table.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_live_until_its_entry_is_dropped() {
        let live = LiveRequests::default();
        let (a, b) = (live.enter("a".into()), live.enter("b".into()));
        assert_ne!(a.id, b.id);
        assert_eq!(live.name(b.id).as_deref(), Some("b"));
        drop(b);
        assert_eq!(live.len(), 1);
        drop(a);
        assert!(live.is_empty() && live.entered() == 2);
    }
}

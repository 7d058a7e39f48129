//! Where a request runs: what whoever cancels it goes by, whatever happens to its replica meanwhile.

use super::dispatcher::{Dispatcher, SchedulerLink};
use crate::actors::messages::Cancel;
use chimere_engine::ids::{Micros, RequestId};
use parking_lot::Mutex;
use std::sync::Arc;

/// Where one request runs. Clones are one.
#[derive(Clone)]
pub struct Route(Arc<RoutedRequest>);

struct RoutedRequest {
    id: RequestId,
    dispatcher: Dispatcher,
    state: Mutex<RouteState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct RouteState {
    /// The replica that it was given to last.
    replica: Option<usize>,
    cancelled: bool,
}

impl Route {
    pub(super) fn new(id: RequestId, dispatcher: Dispatcher) -> Self {
        Self(Arc::new(RoutedRequest { id, dispatcher, state: Mutex::default() }))
    }

    /// Gives the request to a replica by `give`, which puts a message into its scheduler's mailbox. `None` if it was
    /// cancelled before. The lock is held meanwhile, so that a later [`Cancel`] lies in the same mailbox behind it.
    pub(super) fn put<T>(&self, replica: usize, give: impl FnOnce(&SchedulerLink) -> T) -> Option<T> {
        let mut state = self.0.state.lock();
        let scheduler = self.0.dispatcher.scheduler(replica).filter(|_| !state.cancelled)?;
        state.replica = Some(replica);
        Some(give(scheduler))
    }

    /// The client went away, or has all it wants; when that was known. To a request that has ended it means nothing.
    pub fn cancel(&self, seen: Micros) {
        let mut state = self.0.state.lock();
        state.cancelled = true;
        if let Some(scheduler) = state.replica.and_then(|replica| self.0.dispatcher.scheduler(replica)) {
            scheduler.cancel.do_send(Cancel::Request(self.0.id, seen));
        }
    }

    /// A choice found a stop string; the others go on.
    pub fn cancel_choice(&self, choice: u32) {
        let state = self.0.state.lock();
        if let Some(scheduler) = state.replica.and_then(|replica| self.0.dispatcher.scheduler(replica)) {
            scheduler.cancel.do_send(Cancel::Choice(self.0.id, choice));
        }
    }

    /// False once the scheduler that had the request last is gone.
    pub fn is_connected(&self) -> bool {
        let replica = self.0.state.lock().replica;
        let scheduler = replica.and_then(|replica| self.0.dispatcher.scheduler(replica));
        scheduler.is_some_and(|scheduler| scheduler.cancel.connected())
    }
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Route").field(&self.0.id).field(&*self.0.state.lock()).finish()
    }
}

//! A request on its way from a replica whose engine is lost to another one.

use super::Route;
use crate::actors::deferred_rules::DeferredRules;
use crate::actors::messages::RequestEvent;
use crate::actors::phase::ENGINE_LOST;
use crate::metrics;
use actix::Message;
use chimere_engine::scheduler::{Event, MigratedRequest};
use tokio::sync::mpsc;

/// Scheduler actor to scheduler actor: please go on with this.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Migration {
    /// The request with all that it had.
    pub migrated: MigratedRequest,
    /// Where its events go. It has room for all that are still to come.
    pub events: mpsc::Sender<RequestEvent>,
    /// Whoever listens was told that it has started.
    pub started: bool,
    /// Its rules of deferred sources.
    pub rules: DeferredRules,
    /// Where it runs, for whoever cancels it.
    pub route: Route,
}

impl Migration {
    /// Nobody goes on with it.
    pub fn fail(self) {
        ::metrics::counter!(metrics::MIGRATED, "outcome" => "failed").increment(1);
        // Who listens no longer need not be told.
        self.events.try_send(RequestEvent::Event(Event::Failed(ENGINE_LOST.to_owned()))).ok();
    }
}

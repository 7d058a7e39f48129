//! What a scheduler actor goes by: what all of a service have in common, and where its replica stands among the others.

use super::step_log::StepLog;
use crate::actors::dispatch::Dispatcher;
use crate::actors::live::LiveRequests;
use crate::actors::phase::ReplicaPhase;
use crate::clock::Clock;
use crate::metrics::gateway::Gateway;
use crate::metrics::replicas::ReplicaMeter;
use chimere_engine::scheduler::{DraftSettings, KeyLedger, Pace, SchedulerConfig};
use std::sync::Arc;

/// What all scheduler actors of a service have in common.
#[derive(Clone)]
pub struct SchedulerSettings {
    /// Bounds of the scheduler.
    pub config: SchedulerConfig,
    /// Bounds of speculation; a replica lowers them to the drafts that its backend has room for.
    pub drafts: DraftSettings,
    /// Targets and bounds in time; the time that steps take is measured.
    pub pace: Pace,
    /// Requests that are not answered yet.
    pub live: LiveRequests,
    /// The clock that requests are timed by.
    pub clock: Clock,
    /// Metrics under the names that other engines give them.
    pub gateway: Arc<Gateway>,
    /// The log of single steps that the live view shows.
    pub step_log: Arc<StepLog>,
}

/// Where a replica stands among others.
pub struct ReplicaPlace {
    /// The phase of the replica's life.
    pub phase: ReplicaPhase,
    /// The figures that the replica tells.
    pub figures: ReplicaMeter,
    /// The dispatcher that gives requests to it, where it is one of a service.
    pub dispatcher: Option<Dispatcher>,
    /// What keys were served and what they may have, by all replicas together.
    pub ledger: Arc<KeyLedger>,
}

impl ReplicaPlace {
    /// The place of a replica without a service.
    pub fn alone() -> Self {
        Self {
            phase: ReplicaPhase::alone().0,
            figures: ReplicaMeter::alone(),
            dispatcher: None,
            ledger: Arc::default(),
        }
    }
}

//! One replica: the actors that run requests on one backend, each on a thread of its own, and the threads between them.

use crate::actors::deferred::{DeferredSource, DeferredUsers, EngramSource, GrammarSource, RulesLink, Starter};
use crate::actors::engine::outcomes::{DeferredLinks, outcomes, wait_for_steps};
use crate::actors::engine::{Build, EngineActor, Started};
use crate::actors::live::LiveRequests;
use crate::actors::phase::Phase;
use crate::actors::scheduler::SchedulerActor;
use crate::actors::scheduler::step_log::StepLog;
use crate::actors::spin_wait::SpinWait;
use crate::actors::threads;
use crate::actors::watchdog::{EngineWatch, StepLimits, Watchdog, WatchdogParts};
use crate::clock::Clock;
use crate::events::EventSink;
use crate::metrics::gateway::Gateway;
use actix::prelude::*;
use actix_rt::Arbiter;
use chimere_engine::backend::BackendInfo;
use chimere_engine::scheduler::{DraftSettings, Pace, SchedulerConfig};
use std::sync::Arc;
use tokio::sync::watch;

/// The parts that a replica is made of.
pub struct ReplicaParts {
    /// Builds the backend; it is called on the engine's thread.
    pub build: Build,
    /// The core that the engine's thread is bound to.
    pub core: Option<usize>,
    /// Bounds of the scheduler.
    pub scheduler: SchedulerConfig,
    /// Bounds of speculation; the backend lowers them to the drafts that it has room for.
    pub drafts: DraftSettings,
    /// Targets and bounds in time; the time that steps take is measured.
    pub pace: Pace,
    /// Threads that share large batches of table lookups, and as many again for rows under grammars.
    pub lookup_threads: usize,
    /// The clock that requests are timed by.
    pub clock: Clock,
    /// Requests that are not answered yet.
    pub live: LiveRequests,
    /// Metrics under the names that other engines give them.
    pub gateway: Arc<Gateway>,
    /// The log of single steps that the live view shows.
    pub step_log: Arc<StepLog>,
    /// Told what changes in the prefix cache, where somebody wants to know.
    pub events: Option<EventSink>,
    /// The time at which a step is overdue, and the function that ends the process then.
    pub watchdog: (StepLimits, fn()),
}

/// A running replica. Its threads end with [`Replica::stop`].
pub struct Replica {
    /// The actor that runs requests.
    pub scheduler: Addr<SchedulerActor>,
    /// The phase of its life: starting, ready, draining, drained or lost.
    pub phase: watch::Receiver<Phase>,
    /// The kind of backend, and the number of sequences and tokens that it can hold.
    pub info: BackendInfo,
    arbiters: [Arbiter; 4],
    _watchdog: Watchdog,
}

impl Replica {
    /// Starts a replica on the current actix system. An error names the thread that could not be started, or says why
    /// there is no backend.
    pub async fn start(parts: ReplicaParts) -> Result<Self, String> {
        let ReplicaParts {
            build,
            core,
            scheduler: config,
            drafts,
            pace,
            lookup_threads,
            clock,
            live,
            gateway,
            step_log,
            events,
            watchdog,
        } = parts;
        let (phase_tx, phase) = watch::channel(Phase::Starting);

        let engine_arbiter = threads::arbiter("chimere-engine", core).map_err(|e| format!("engine thread: {e}"))?;
        let (outcomes, launched) = outcomes();
        let Started { engine, rules, info, progress } =
            EngineActor::start_on(&engine_arbiter.handle(), build, outcomes).await?;
        let drafts = DraftSettings { room: info.drafts, ..drafts };

        let engram_arbiter = threads::arbiter("chimere-engram", None).map_err(|e| format!("Engram thread: {e}"))?;
        let grammar_arbiter = threads::arbiter("chimere-grammar", None).map_err(|e| format!("grammar thread: {e}"))?;
        let links = DeferredLinks::default();
        let tables = starter(&engram_arbiter, &rules, &clock, move || EngramSource::new(lookup_threads));
        let grammars = starter(&grammar_arbiter, &rules, &clock, move || GrammarSource::new(lookup_threads));
        let deferred =
            (DeferredUsers::new(tables, links.tables.clone()), DeferredUsers::new(grammars, links.grammars.clone()));

        let scheduler_arbiter =
            threads::arbiter("chimere-sched", None).map_err(|e| format!("scheduler thread: {e}"))?;
        let (spin_wait, watch, phases) = (SpinWait::of_scheduler(&info), EngineWatch::default(), phase_tx.clone());
        let watched = watch.clone();
        let scheduler = SchedulerActor::start_in_arbiter(&scheduler_arbiter.handle(), move |_| {
            SchedulerActor::new((config, drafts), pace, engine, deferred, phase_tx, live, clock, gateway, step_log)
                .with_spin_wait(spin_wait)
                .with_events(events)
                .with_watch(watched)
        });
        let (limits, end_process) = watchdog;
        let scheduler_link = scheduler.clone().recipient();
        let parts = WatchdogParts { watch, limits, progress, phase: phases, scheduler: scheduler_link, end_process };
        let watchdog = Watchdog::start(parts).map_err(|e| format!("watchdog's thread: {e}"))?;
        wait_for_steps(launched, links, scheduler.clone().recipient())
            .map_err(|e| format!("completion thread: {e}"))?;
        Ok(Self {
            scheduler,
            phase,
            info,
            arbiters: [engine_arbiter, scheduler_arbiter, engram_arbiter, grammar_arbiter],
            _watchdog: watchdog,
        })
    }

    /// Asks the threads of the actors to end.
    pub fn stop(&self) {
        for arbiter in &self.arbiters {
            arbiter.stop();
        }
    }

    /// Ends the threads of the actors, and waits until they have dropped what they own.
    pub fn end(self) {
        self.stop();
        // A thread that panicked has said so.
        self.arbiters.into_iter().for_each(|arbiter| drop(arbiter.join()));
    }
}

/// The parts that a deferred source is started from, on the arbiter's thread.
fn starter<S: DeferredSource>(
    arbiter: &Arbiter,
    rules: &RulesLink,
    clock: &Clock,
    make: impl Fn() -> S + Send + Sync + 'static,
) -> Starter<S> {
    Starter { arbiter: arbiter.handle(), make: Arc::new(make), rules: rules.clone(), clock: clock.clone() }
}

//! The actors that run requests, each on a thread of its own, and the threads between them.

use crate::actors::deferred::{DeferredSource, DeferredUsers, EngramSource, GrammarSource, RulesLink, Starter};
use crate::actors::engine::{Build, EngineActor, Started};
use crate::actors::live::LiveRequests;
use crate::actors::outcomes::{DeferredLinks, outcomes, wait_for_steps};
use crate::actors::phase::Phase;
use crate::actors::scheduler::SchedulerActor;
use crate::actors::spin_wait::SpinWait;
use crate::actors::step_log::StepLog;
use crate::actors::threads;
use crate::actors::watchdog::{EngineWatch, StepLimits, Watchdog, WatchdogParts};
use crate::clock::Clock;
use crate::metrics::gateway::Gateway;
use actix::prelude::*;
use actix_rt::Arbiter;
use chimere_engine::backend::BackendInfo;
use chimere_engine::scheduler::{DraftSettings, Pace, SchedulerConfig};
use std::sync::Arc;
use tokio::sync::watch;

/// What the actors are made of.
pub struct Crew {
    /// Makes the backend, on its own thread.
    pub build: Build,
    /// Core of that thread.
    pub core: Option<usize>,
    /// Bounds of the scheduler.
    pub scheduler: SchedulerConfig,
    /// What is drafted, but for the backend's word on it.
    pub drafts: DraftSettings,
    /// Its targets in time.
    pub pace: Pace,
    /// Threads that share large batches of lookups, and likewise the rows under grammars.
    pub lookup_threads: usize,
    /// What time it is.
    pub clock: Clock,
    /// Requests that are not answered yet.
    pub live: LiveRequests,
    /// Series under other engines' names.
    pub gateway: Arc<Gateway>,
    /// What single steps are shown by.
    pub step_log: Arc<StepLog>,
    /// When a step is overdue, and what ends the process then.
    pub watchdog: (StepLimits, fn()),
}

/// The running actors. Their threads end with [`Actors::stop`].
pub struct Actors {
    /// The actor that runs requests.
    pub scheduler: Addr<SchedulerActor>,
    /// Where the service stands.
    pub phase: watch::Receiver<Phase>,
    /// What computes, and what it can hold.
    pub info: BackendInfo,
    arbiters: [Arbiter; 4],
    _watchdog: Watchdog,
}

impl Actors {
    /// Starts them on the current actix system; an error names the thread that could not be had, or says why there is
    /// no backend.
    pub async fn start(crew: Crew) -> Result<Self, String> {
        let Crew {
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
            watchdog,
        } = crew;
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

    /// Ends the threads of the actors.
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

/// What it takes to start a deferred source on this thread.
fn starter<S: DeferredSource>(
    arbiter: &Arbiter,
    rules: &RulesLink,
    clock: &Clock,
    make: impl Fn() -> S + Send + Sync + 'static,
) -> Starter<S> {
    Starter { arbiter: arbiter.handle(), make: Arc::new(make), rules: rules.clone(), clock: clock.clone() }
}

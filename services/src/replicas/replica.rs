//! One replica: the actors that run requests on one backend, each on a thread of its own, and the threads between them.

use crate::actors::deferred::{DeferredSource, DeferredUsers, EngramSource, GrammarSource, RulesLink, Starter};
use crate::actors::engine::outcomes::{DeferredLinks, outcomes, wait_for_steps};
use crate::actors::engine::{Build, EngineActor, Started};
use crate::actors::scheduler::{ReplicaPlace, SchedulerActor, SchedulerSettings};
use crate::actors::spin_wait::SpinWait;
use crate::actors::threads;
use crate::actors::watchdog::{EngineWatch, StepLimits, Watchdog, WatchdogParts};
use crate::clock::Clock;
use actix::prelude::*;
use actix_rt::Arbiter;
use chimere_engine::backend::BackendInfo;
use chimere_engine::scheduler::DraftSettings;
use std::sync::Arc;

/// What all replicas of a service have in common.
#[derive(Clone)]
pub struct ReplicaSettings {
    /// What their scheduler actors go by.
    pub scheduler: SchedulerSettings,
    /// Threads that share large batches of table lookups, and as many again for rows under grammars.
    pub lookup_threads: usize,
    /// The time at which a step is overdue, and the function that ends the process then.
    pub watchdog: (StepLimits, fn()),
}

/// The parts that a replica is made of.
pub struct ReplicaParts {
    /// Builds the backend; it is called on the engine's thread.
    pub build: Build,
    /// The core that the engine's thread is bound to.
    pub core: Option<usize>,
    /// What it has in common with others.
    pub settings: ReplicaSettings,
    /// Where it stands among them.
    pub place: ReplicaPlace,
}

/// A running replica. Its threads end with [`Replica::stop`].
pub struct Replica {
    /// The actor that runs requests.
    pub scheduler: Addr<SchedulerActor>,
    /// The kind of backend, and the number of sequences and tokens that it can hold.
    pub info: BackendInfo,
    arbiters: [Arbiter; 4],
    _watchdog: Watchdog,
}

impl Replica {
    /// Starts a replica on the current actix system. An error names the thread that could not be started, or says why
    /// there is no backend.
    pub async fn start(parts: ReplicaParts) -> Result<Self, String> {
        let ReplicaParts { build, core, settings, place } = parts;
        let ReplicaSettings { scheduler: settings, lookup_threads, watchdog } = settings;
        let SchedulerSettings { drafts, clock, .. } = settings.clone();
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
        let (spin_wait, watch, phase) = (SpinWait::of_scheduler(&info), EngineWatch::default(), place.phase.clone());
        let (watched, figures) = (watch.clone(), place.figures.clone());
        let settings = SchedulerSettings { drafts, ..settings };
        let scheduler = SchedulerActor::start_in_arbiter(&scheduler_arbiter.handle(), move |_| {
            SchedulerActor::new(settings, place, engine, deferred).with_spin_wait(spin_wait).with_watch(watched)
        });
        let (limits, end_process) = watchdog;
        let scheduler_link = scheduler.clone().recipient();
        let parts = WatchdogParts { watch, limits, progress, phase, figures, scheduler: scheduler_link, end_process };
        let watchdog = Watchdog::start(parts).map_err(|e| format!("watchdog's thread: {e}"))?;
        wait_for_steps(launched, links, scheduler.clone().recipient())
            .map_err(|e| format!("completion thread: {e}"))?;
        Ok(Self {
            scheduler,
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

//! All replicas of a service, started together and ended together.

use super::replica::{Replica, ReplicaParts, ReplicaSettings};
use crate::actors::dispatch::{Dispatcher, SchedulerLink};
use crate::actors::engine::Build;
use crate::actors::messages::{Drain, Open};
use crate::actors::phase::{Phase, Phases};
use crate::actors::scheduler::{ReplicaPlace, SchedulerActor};
use crate::events::EventSink;
use crate::limits;
use crate::metrics::replicas::ReplicaMeter;
use actix::Addr;
use chimere_engine::backend::BackendInfo;
use chimere_engine::scheduler::KeyLedger;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What one replica has for itself.
pub struct ReplicaBuild {
    /// Builds the backend; it is called on the engine's thread.
    pub build: Build,
    /// The core that the engine's thread is bound to.
    pub core: Option<usize>,
}

/// The parts that the replicas of a service are made of.
pub struct ReplicasParts {
    /// One for each replica, at least one.
    pub builds: Vec<ReplicaBuild>,
    /// What all have in common.
    pub settings: ReplicaSettings,
    /// Told what changes in the prefix caches, where somebody wants to know.
    pub events: Option<EventSink>,
}

/// The replicas of a service that runs.
pub struct Replicas {
    all: Vec<Replica>,
    /// Gives requests to them.
    pub dispatcher: Dispatcher,
    /// The phase of each replica.
    pub phases: Phases,
    /// The phase of the service that they make together.
    pub phase: watch::Receiver<Phase>,
}

impl Replicas {
    /// Starts them on the current actix system, one after another: each takes its memory before the next one looks for
    /// its own.
    ///
    /// # Errors
    /// What [`Replica::start`] says, with the number of the replica where there are several.
    pub async fn start(parts: ReplicasParts) -> Result<Self, String> {
        let ReplicasParts { builds, settings, events } = parts;
        let replicas = builds.len();
        let most = limits::REPLICAS_MAX as usize;
        if !(1..=most).contains(&replicas) {
            return Err(format!("{replicas} replicas were asked for, between 1 and {most} can be had"));
        }
        let (dispatcher, (phases, phase)) =
            (Dispatcher::new(replicas, settings.scheduler.config.context, events), Phases::starting(replicas));
        let (ledger, mut all) = (Arc::<KeyLedger>::default(), Vec::<Replica>::with_capacity(replicas));
        for ((number, ReplicaBuild { build, core }), figures) in
            builds.into_iter().enumerate().zip(ReplicaMeter::of_all(replicas))
        {
            let place = ReplicaPlace {
                phase: phases.of(number),
                figures,
                dispatcher: Some(dispatcher.clone()),
                ledger: ledger.clone(),
            };
            let started = Replica::start(ReplicaParts { build, core, settings: settings.clone(), place }).await;
            match started {
                Ok(replica) => all.push(replica),
                Err(why) => {
                    all.iter().for_each(Replica::stop);
                    return Err(if replicas == 1 { why } else { format!("replica {number}: {why}") });
                }
            }
        }
        dispatcher.open(all.iter().map(|replica| link(&replica.scheduler)).collect());
        Ok(Self { all, dispatcher, phases, phase })
    }

    /// What the first one can hold; the others are like it.
    pub fn info(&self) -> &BackendInfo {
        &self.all[0].info
    }

    /// The schedulers, by number.
    pub fn schedulers(&self) -> impl Iterator<Item = &Addr<SchedulerActor>> {
        self.all.iter().map(|replica| &replica.scheduler)
    }

    /// The warm-up of all is over.
    ///
    /// # Errors
    /// If a scheduler is gone.
    pub async fn open(&self) -> Result<(), String> {
        for scheduler in self.schedulers() {
            scheduler.send(Open).await.map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Nothing new is taken, and what still runs after this time is ended.
    pub fn drain(&self, within: Duration) {
        self.schedulers().for_each(|scheduler| scheduler.do_send(Drain { within }));
    }

    /// Asks the threads of the actors to end.
    pub fn stop(&self) {
        self.all.iter().for_each(Replica::stop);
    }
}

fn link(scheduler: &Addr<SchedulerActor>) -> SchedulerLink {
    SchedulerLink {
        routed: scheduler.clone().recipient(),
        cancel: scheduler.clone().recipient(),
        migrations: scheduler.clone().recipient(),
        flush: scheduler.clone().recipient(),
    }
}

//! All replicas of a service, started together and ended together.

use super::replica::{Replica, ReplicaParts, ReplicaSettings};
use crate::actors::dispatch::{Dispatcher, SchedulerLink};
use crate::actors::engine::Build;
use crate::actors::messages::{Drain, Open};
use crate::actors::phase::{Phase, Phases};
use crate::actors::scheduler::{ReplicaPlace, SchedulerActor, SchedulerSettings};
use crate::events::EventSink;
use crate::limits;
use crate::metrics::replicas::ReplicaMeter;
use actix::Addr;
use chimere_engine::backend::BackendInfo;
use chimere_engine::scheduler::{KeyLedger, Pace, SchedulerConfig};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What one replica has for itself.
pub struct ReplicaBuild {
    /// Builds the backend; it is called on the engine's thread.
    pub build: Build,
    /// The core that the engine's thread is bound to.
    pub core: Option<usize>,
    /// Bounds of its scheduler, by the room that its device has.
    pub config: SchedulerConfig,
    /// Targets and bounds in time on its device.
    pub pace: Pace,
}

/// The parts that the replicas of a service are made of.
pub struct ReplicasParts {
    /// One for each replica, at least one.
    pub builds: Vec<ReplicaBuild>,
    /// What all have in common; the bounds and the pace of each are its own.
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
        for ((number, ReplicaBuild { build, core, config, pace }), figures) in
            builds.into_iter().enumerate().zip(ReplicaMeter::of_all(replicas))
        {
            let place = ReplicaPlace {
                phase: phases.of(number),
                figures,
                dispatcher: Some(dispatcher.clone()),
                ledger: ledger.clone(),
            };
            let scheduler = SchedulerSettings { config, pace, ..settings.scheduler.clone() };
            let settings = ReplicaSettings { scheduler, ..settings.clone() };
            let started = Replica::start(ReplicaParts { build, core, settings, place }).await;
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

    /// What the first one can hold; others may have more or less memory.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::live::LiveRequests;
    use crate::actors::watchdog::StepLimits;
    use crate::clock::Clock;
    use crate::metrics::gateway::Gateway;
    use chimere_engine::backend::{Backend, BackendError, Pending};
    use chimere_engine::constraint::StepRules;
    use chimere_engine::scheduler::{DraftSettings, PrefixConfig};
    use chimere_engine::step::{DraftRoom, StepPlan};
    use std::sync::atomic::{AtomicU32, Ordering};

    const CONFIG: SchedulerConfig = SchedulerConfig {
        slots: 2,
        pages: 8,
        step_tokens: 64,
        context: 128,
        queue_requests_max: 4,
        queue_prompt_tokens_max: 512,
        steps_in_flight_max: limits::STEPS_IN_FLIGHT_MAX,
        adapter_slots: 0,
        prefix: PrefixConfig::OFF,
    };

    /// A backend that takes no step, and counts how many of its kind there are.
    struct Counted(BackendInfo, Arc<AtomicU32>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Ordering::SeqCst);
        }
    }

    impl Backend for Counted {
        fn info(&self) -> &BackendInfo {
            &self.0
        }

        fn launch(&mut self, plan: StepPlan) -> Result<Pending, BackendError> {
            Err(BackendError::Lost { step: plan.id })
        }

        fn constrain(&mut self, rules: StepRules) -> Result<(), BackendError> {
            Err(BackendError::Lost { step: rules.step })
        }
    }

    /// A backend with so many pages, or one that says why there is none.
    fn build(pages: Result<u32, &'static str>, alive: &Arc<AtomicU32>) -> ReplicaBuild {
        let alive = alive.clone();
        let build: Build = Box::new(move || {
            let info = BackendInfo {
                device: "cuda",
                slots: CONFIG.slots,
                pages: pages?,
                checkpoints: 0,
                host_blocks: 0,
                step_rows_max: 64,
                vocab: 16,
                context: CONFIG.context,
                drafts: DraftRoom::default(),
                threads: 0,
                adapter_slots: 0,
            };
            alive.fetch_add(1, Ordering::SeqCst);
            Ok(Box::new(Counted(info, alive)))
        });
        let config = SchedulerConfig { pages: pages.unwrap_or_default(), ..CONFIG };
        ReplicaBuild { build, core: None, config, pace: Pace::default() }
    }

    async fn start(builds: Vec<ReplicaBuild>) -> Result<Replicas, String> {
        let scheduler = SchedulerSettings {
            config: CONFIG,
            drafts: DraftSettings::default(),
            pace: Pace::default(),
            live: LiveRequests::default(),
            clock: Clock::start(),
            gateway: Arc::new(Gateway::new("replicas", &CONFIG)),
            step_log: Arc::default(),
        };
        let watchdog = (StepLimits::default(), (|| {}) as fn());
        let settings = ReplicaSettings { scheduler, lookup_threads: 1, watchdog };
        Replicas::start(ReplicasParts { builds, settings, events: None }).await
    }

    #[actix_rt::test]
    async fn replicas_of_different_room_start_together() {
        let alive = Arc::<AtomicU32>::default();
        let replicas = start(vec![build(Ok(8), &alive), build(Ok(4), &alive)]).await.unwrap();
        let pages: Vec<u32> = replicas.all.iter().map(|replica| replica.info.pages).collect();
        assert_eq!((pages, alive.load(Ordering::SeqCst)), (vec![8, 4], 2));
        replicas.all.into_iter().for_each(Replica::end);
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }

    #[actix_rt::test]
    async fn one_that_does_not_start_is_named_and_those_before_it_give_back_what_they_have() {
        let alive = Arc::<AtomicU32>::default();
        let builds = vec![build(Ok(8), &alive), build(Err("GPU 1: no memory"), &alive), build(Ok(8), &alive)];
        assert_eq!(start(builds).await.err(), Some("replica 1: GPU 1: no memory".into()));
        for _ in 0..6_000 {
            if alive.load(Ordering::SeqCst) == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(alive.load(Ordering::SeqCst), 0);
        assert_eq!(start(vec![build(Err("no memory"), &alive)]).await.err(), Some("no memory".into()));
        let none = start(Vec::new()).await.err().unwrap();
        assert!(none.starts_with("0 replicas were asked for"), "{none}");
    }
}

//! The engine actor: the backend, alone on its thread. What comes of its steps goes to the scheduler by `outcomes.rs`.

pub mod outcomes;

use crate::actors::deferred::RulesLink;
use crate::actors::messages::{Launch, RulesReady};
use crate::actors::spin_wait::{SpinWait, Watchful};
use crate::limits;
use actix::prelude::*;
use actix_rt::ArbiterHandle;
use chimere_engine::backend::{Backend, BackendInfo, EarlyRules, Pending, Progress};
use outcomes::Outcomes;
use std::sync::Arc;

/// Makes the backend, on the thread that it will live on.
pub type Build = Box<dyn FnOnce() -> Result<Box<dyn Backend>, String> + Send>;

/// An engine actor that runs, and what others know it by.
pub struct Started {
    /// The actor that takes steps.
    pub engine: Addr<EngineActor>,
    /// Takes rules of deferred sources.
    pub rules: RulesLink,
    /// What its backend can hold.
    pub info: BackendInfo,
    /// Shows that its backend computes.
    pub progress: Progress,
}

/// The actor that owns the backend and launches its steps.
pub struct EngineActor {
    backend: Box<dyn Backend>,
    /// Rules whose message has not been handled: the backend may have taken them.
    early: Arc<EarlyRules>,
    spin_wait: SpinWait,
    outcomes: Outcomes,
}

impl EngineActor {
    /// Builds the backend on the arbiter's thread and starts the actor there (what `start_in_arbiter` does, for a start
    /// that can fail). Outcomes go to whoever hears them.
    pub async fn start_on(arbiter: &ArbiterHandle, build: Build, outcomes: Outcomes) -> Result<Started, String> {
        let (tx, rx) = tokio::sync::oneshot::channel();
        arbiter.spawn_fn(move || {
            let started = build().map(|mut backend| {
                let (info, progress, early) =
                    (backend.info().clone(), backend.progress(), Arc::<EarlyRules>::default());
                backend.look_for_rules(early.clone());
                let spin_wait = SpinWait::of_engine(&info);
                let engine = EngineActor { backend, early: early.clone(), spin_wait, outcomes }.start();
                let rules = RulesLink::new(engine.clone().recipient(), early);
                Started { engine, rules, info, progress }
            });
            tx.send(started).ok();
        });
        // The sender is dropped unsent only by a panic in `build`, whose message is on standard error by now.
        rx.await.unwrap_or_else(|_| Err("the backend panicked while it was built".into()))
    }
}

impl Actor for EngineActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.set_mailbox_capacity(limits::MAILBOX_MESSAGES);
    }
}

impl Watchful for EngineActor {
    fn spin_wait(&mut self) -> &mut SpinWait {
        &mut self.spin_wait
    }
}

impl Handler<Launch> for EngineActor {
    type Result = ();

    fn handle(&mut self, Launch(plan): Launch, ctx: &mut Context<Self>) {
        let step = plan.id;
        // The next one comes when this one has ended, and finds nothing else to wait for.
        let is_awaited = plan.pieces.iter().any(|piece| !piece.drafts.is_empty() || piece.guesses > 0);
        let pending = self.backend.launch(plan).unwrap_or_else(|e| Pending::new(step, move || Err(e)));
        self.outcomes.bring(pending);
        if is_awaited {
            self.stay_awake(ctx);
        }
    }
}

impl Handler<RulesReady> for EngineActor {
    type Result = ();

    fn handle(&mut self, RulesReady(step): RulesReady, _: &mut Context<Self>) {
        let Some(rules) = self.early.take(step) else { return };
        if let Err(e) = self.backend.constrain(rules) {
            self.outcomes.bring(Pending::new(step, move || Err(e)));
        }
    }
}

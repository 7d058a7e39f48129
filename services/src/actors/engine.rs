//! The engine actor: the backend, alone on its thread, and the thread that waits for what it launched.
//!
//! Whatever goes wrong on either thread arrives at the scheduler as one [`StepDone`] with an error: a launch that is
//! refused, a step that fails, a panic. There is no revival.

use super::engram::EngramLink;
use super::grammar::GrammarLink;
use super::messages::{Launch, RulesReady, StepDone, WaitFor};
use super::rules_link::RulesLink;
use super::vigil::{Vigil, Watchful};
use crate::limits;
use actix::prelude::*;
use actix_rt::ArbiterHandle;
use chimere_engine::backend::{Backend, BackendError, BackendInfo, EarlyRules, Pending};
use chimere_engine::ids::StepId;
use chimere_engine::step::Sample;
use crossbeam::channel::{Receiver, Sender};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Makes the backend, on the thread that it will live on.
pub type Build = Box<dyn FnOnce() -> Result<Box<dyn Backend>, String> + Send>;

/// Owns the backend.
pub struct EngineActor {
    backend: Box<dyn Backend>,
    /// Rules whose message has not been handled: the backend may have taken them.
    early: Arc<EarlyRules>,
    vigil: Vigil,
    /// To the completion thread. Unbounded, and never longer than the steps in flight, which the scheduler counts.
    pending: Sender<WaitFor>,
}

impl EngineActor {
    /// Builds the backend on the arbiter's thread and starts the actor there (what `start_in_arbiter` does, for a start
    /// that can fail). Outcomes go to the receiver that [`wait_for_steps`] drains.
    pub async fn start_on(
        arbiter: &ArbiterHandle,
        build: Build,
        pending: Sender<WaitFor>,
    ) -> Result<(Addr<Self>, RulesLink, BackendInfo), String> {
        let (tx, rx) = tokio::sync::oneshot::channel();
        arbiter.spawn_fn(move || {
            let started = build().map(|mut backend| {
                let (info, early) = (backend.info().clone(), Arc::<EarlyRules>::default());
                backend.look_for_rules(early.clone());
                let vigil = Vigil::beside(info.device);
                let engine = EngineActor { backend, early: early.clone(), vigil, pending }.start();
                (engine.clone(), RulesLink::new(engine.recipient(), early), info)
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
    fn vigil(&mut self) -> &mut Vigil {
        &mut self.vigil
    }
}

impl Handler<Launch> for EngineActor {
    type Result = ();

    fn handle(&mut self, Launch(plan): Launch, ctx: &mut Context<Self>) {
        let step = plan.id;
        if plan.pieces.iter().any(|piece| !piece.drafts.is_empty() || piece.guesses > 0) {
            // The next one comes when this one has ended, and finds nothing else to wait for.
            self.stay_awake(ctx);
        }
        let pending = self.backend.launch(plan).unwrap_or_else(|e| Pending::new(step, move || Err(e)));
        // Fails only when the completion thread is gone, which it is after the first error and at the end.
        self.pending.send(WaitFor(pending)).ok();
    }
}

impl Handler<RulesReady> for EngineActor {
    type Result = ();

    fn handle(&mut self, RulesReady(step): RulesReady, _: &mut Context<Self>) {
        let Some(rules) = self.early.take(step) else { return };
        if let Err(e) = self.backend.constrain(rules) {
            self.pending.send(WaitFor(Pending::new(step, move || Err(e)))).ok();
        }
    }
}

/// Who hears of tokens before the scheduler does.
#[derive(Clone, Default)]
pub struct LateLinks {
    /// Follows the sequences that use tables.
    pub tables: EngramLink,
    /// Follows those under a grammar.
    pub grammars: GrammarLink,
}

impl LateLinks {
    fn sampled(&self, step: StepId, samples: &[Sample]) {
        self.grammars.sampled(step, samples);
        self.tables.sampled(step, samples);
    }
}

/// Starts the completion thread. It ends with the first error, or when the engine actor is gone; that too is reported
/// as an error, because nobody stops that actor before the scheduler has stopped.
pub fn wait_for_steps(
    launched: Receiver<WaitFor>,
    late: LateLinks,
    scheduler: Recipient<StepDone>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name("chimere-done".into()).spawn(move || {
        let mut next = StepId(0);
        for WaitFor(pending) in launched {
            let step = pending.step();
            next = StepId(step.0 + 1);
            let outcome = catch_unwind(AssertUnwindSafe(|| pending.wait())).unwrap_or(Err(BackendError::Lost { step }));
            let lost = outcome.is_err();
            // First, because the next step may be waiting for what follows from these.
            outcome.iter().for_each(|done| late.sampled(step, &done.samples));
            scheduler.do_send(StepDone(outcome));
            if lost {
                return;
            }
        }
        scheduler.do_send(StepDone(Err(BackendError::Lost { step: next })));
    })
}

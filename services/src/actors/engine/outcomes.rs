//! How the outcomes of steps come to who waits for them: first to the deferred sources, then to the scheduler.
//!
//! A thread waits for steps that a device computes. Of a step that the engine's own thread has computed, that thread says
//! so itself: to wake another one for it takes as long as a tenth of a small model's step. Either way they come in the
//! order of the steps.
//!
//! Whatever goes wrong on a thread arrives at the scheduler as one [`StepDone`] with an error: a launch that is refused, a
//! step that fails, a panic. There is no revival.

use crate::actors::deferred::{EngramLink, GrammarLink};
use crate::actors::messages::{StepDone, WaitFor};
use actix::prelude::*;
use chimere_engine::backend::{BackendError, Pending};
use chimere_engine::ids::StepId;
use chimere_engine::step::Sample;
use crossbeam::channel::{Receiver, Sender};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The deferred sources, which hear of tokens before the scheduler does.
#[derive(Clone, Default)]
pub struct DeferredLinks {
    /// The way to the actor of the sequences that use tables.
    pub tables: EngramLink,
    /// The way to the actor of the sequences under a grammar.
    pub grammars: GrammarLink,
}

impl DeferredLinks {
    fn sampled(&self, step: StepId, samples: &[Sample]) {
        self.grammars.sampled(step, samples);
        self.tables.sampled(step, samples);
    }
}

/// The engine's end: takes launched steps.
pub struct Outcomes {
    /// To the completion thread. Unbounded, and never longer than the steps in flight, which the scheduler counts.
    launched: Sender<WaitFor>,
    way: Arc<Way>,
}

/// The completion thread's end.
pub struct Launched {
    steps: Receiver<WaitFor>,
    way: Arc<Way>,
}

/// What both have in common.
#[derive(Default)]
struct Way {
    /// `None` before the scheduler is there.
    hearer: OnceLock<Hearer>,
    /// Steps that the completion thread has not said all of.
    with_thread: AtomicUsize,
    /// The step after the last that was heard of.
    next: AtomicU64,
}

struct Hearer {
    deferred: DeferredLinks,
    scheduler: Recipient<StepDone>,
}

/// The engine's end and the completion thread's end.
pub fn outcomes() -> (Outcomes, Launched) {
    let (launched, steps) = crossbeam::channel::unbounded();
    let way = Arc::<Way>::default();
    (Outcomes { launched, way: way.clone() }, Launched { steps, way })
}

impl Outcomes {
    /// A step was launched: its outcome is told at once if it is there and none before it is being waited for.
    pub fn bring(&self, pending: Pending) {
        // The thread counts a step off when it has said all of it, and only this thread counts them on.
        let first = self.way.with_thread.load(Ordering::Acquire) == 0;
        if let Some(hearer) = self.way.hearer.get().filter(|_| first && pending.is_there()) {
            self.way.tell(hearer, pending);
            return;
        }
        self.way.with_thread.fetch_add(1, Ordering::Relaxed);
        // Fails only when the completion thread is gone, which it is after the first error and at the end.
        self.launched.send(WaitFor(pending)).ok();
    }
}

impl Way {
    /// Waits for a step and says what came of it. Returns whether the engine is lost.
    fn tell(&self, to: &Hearer, pending: Pending) -> bool {
        let step = pending.step();
        self.next.store(step.0 + 1, Ordering::Relaxed);
        let outcome = catch_unwind(AssertUnwindSafe(|| pending.wait())).unwrap_or(Err(BackendError::Lost { step }));
        let lost = outcome.is_err();
        // First, because the next step may be waiting for what follows from these.
        outcome.iter().for_each(|done| to.deferred.sampled(step, &done.samples));
        to.scheduler.do_send(StepDone(outcome));
        lost
    }
}

/// Starts the completion thread. It ends with the first error, or when the engine actor is gone; that too is reported
/// as an error, because nobody stops that actor before the scheduler has stopped.
pub fn wait_for_steps(
    launched: Launched,
    deferred: DeferredLinks,
    scheduler: Recipient<StepDone>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let Launched { steps, way } = launched;
    std::thread::Builder::new().name("chimere-done".into()).spawn(move || {
        let hearer = way.hearer.get_or_init(|| Hearer { deferred, scheduler });
        for WaitFor(pending) in steps {
            if way.tell(hearer, pending) {
                return;
            }
            way.with_thread.fetch_sub(1, Ordering::Release);
        }
        let step = StepId(way.next.load(Ordering::Relaxed));
        hearer.scheduler.do_send(StepDone(Err(BackendError::Lost { step })));
    })
}

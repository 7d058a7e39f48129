//! The way from the scheduler actor and from whoever hears of a step's outcome to the actor of a deferred source.

use super::actor::DeferredActor;
use super::awaits::DeferredAwaits;
use super::source::DeferredSource;
use crate::actors::messages::{Awaits, Sampled};
use actix::prelude::*;
use chimere_engine::ids::{SeqId, StepId};
use chimere_engine::step::Sample;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The way to the actor that runs now. Clones share it.
pub struct DeferredLink<S: DeferredSource>(Arc<Linked<S>>);

struct Linked<S: DeferredSource> {
    /// Number of requests that use the source: while there are none, a step costs little here.
    users: AtomicUsize,
    current: Mutex<Current<S>>,
}

/// The actor that runs now, and the launched steps of which it has not been told.
struct Current<S: DeferredSource> {
    actor: Option<Addr<DeferredActor<S>>>,
    awaits: DeferredAwaits,
}

impl<S: DeferredSource> Clone for DeferredLink<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: DeferredSource> Default for DeferredLink<S> {
    fn default() -> Self {
        let current = Mutex::new(Current { actor: None, awaits: DeferredAwaits::default() });
        Self(Arc::new(Linked { users: AtomicUsize::new(0), current }))
    }
}

impl<S: DeferredSource> DeferredLink<S> {
    /// Sends tokens to this actor from now on. It is not told of steps of which the actor before it was to be told.
    pub fn set(&self, actor: Addr<DeferredActor<S>>) {
        let mut current = self.0.current.lock();
        current.actor = Some(actor);
        current.awaits.forget();
    }

    /// The actor that runs now, if one was ever started.
    pub fn actor(&self) -> Option<Addr<DeferredActor<S>>> {
        self.0.current.lock().actor.clone()
    }

    /// Sets how many requests use the source. The number is raised before their first step is planned.
    pub fn set_users(&self, users: usize) {
        self.0.users.store(users, Ordering::Release);
    }

    /// Tells of a launched step in which rows wait for the source. It was launched right behind the step `before`, if
    /// that was in flight.
    pub fn launched(&self, Awaits(step): Awaits, before: Option<StepId>) {
        let (step, actor) = {
            let mut current = self.0.current.lock();
            let before = before.filter(|_| S::QUICK);
            (current.awaits.launched(step, before), current.actor.clone())
        };
        // Otherwise the actor is told of the step with the tokens of the step before.
        step.zip(actor).into_iter().for_each(|(step, actor)| actor.do_send(Awaits(step)));
    }

    /// Tells of the tokens of a finished step.
    pub fn sampled(&self, step: StepId, samples: &[Sample]) {
        let (launched, actor) = {
            let mut current = self.0.current.lock();
            (current.awaits.sampled(step), current.actor.clone())
        };
        if launched.is_empty() && self.0.users.load(Ordering::Acquire) == 0 {
            return;
        }
        let tokens: Vec<(SeqId, _)> = samples.iter().map(|s| (s.seq, s.token)).collect();
        if let Some(actor) = actor {
            actor.do_send(Sampled { launched, tokens });
        }
    }
}

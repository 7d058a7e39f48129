//! The Engram actor: tells the engine what tables change in a step, while that step's forward runs.
//!
//! The scheduler actor says who uses tables and which steps wait, the completion thread says which tokens came, and the
//! rules go to the engine actor. Nobody waits here: what is not ready is answered when its last token arrives. Should
//! this actor die, the alarm in it tells the scheduler actor, which ends the requests that use tables and starts
//! another one.

use super::messages::{Awaits, EngramLost, Follow, Forget, RulesSent, Sampled};
use super::rules_link::RulesLink;
use crate::clock::Clock;
use crate::{limits, metrics};
use actix::prelude::*;
use actix_rt::ArbiterHandle;
use chimere_engine::engram::Tracker;
use chimere_engine::ids::SeqId;
use chimere_engine::step::Sample;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Owns the tracker.
pub struct EngramActor {
    tracker: Tracker,
    rules: RulesLink,
    alarm: Alarm,
    clock: Clock,
}

/// What it takes to start the actor, once and again.
#[derive(Clone)]
pub struct Starter {
    /// Its thread, which outlives a panic in it.
    pub arbiter: ArbiterHandle,
    /// Threads that share large batches of lookups.
    pub threads: usize,
    /// Who gets the rules.
    pub rules: RulesLink,
    /// What time it is.
    pub clock: Clock,
}

impl Starter {
    /// Starts an actor that reports to the scheduler actor.
    pub fn start(&self, scheduler: Reports) -> Addr<EngramActor> {
        let Starter { threads, rules, clock, .. } = self.clone();
        EngramActor::start_in_arbiter(&self.arbiter, move |_| {
            // Without threads of its own the actor's one does it all, only slower for large batches.
            let tracker = Tracker::new(threads).unwrap_or_else(|error| {
                tracing::warn!(%error, "no threads for lookups");
                Tracker::default()
            });
            EngramActor { tracker, rules, alarm: Alarm { scheduler }, clock }
        })
    }
}

/// What the scheduler actor wants to hear, in one mailbox: nothing else is known of it here.
#[derive(Clone)]
pub struct Reports {
    /// The rules for a step are on their way to the engine.
    pub sent: Recipient<RulesSent>,
    /// The actor is gone.
    pub lost: Recipient<EngramLost>,
}

/// Tells the scheduler actor when it is dropped, and with it the actor: that is all that a panic leaves.
struct Alarm {
    scheduler: Reports,
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.scheduler.lost.do_send(EngramLost);
    }
}

/// Where the completion thread finds the actor of now. Clones share it.
#[derive(Clone, Default)]
pub struct EngramLink(Arc<Linked>);

#[derive(Default)]
struct Linked {
    /// Requests that use tables: while there are none, a step costs one load here.
    users: AtomicUsize,
    actor: RwLock<Option<Addr<EngramActor>>>,
}

impl EngramLink {
    /// From now on tokens go to this one.
    pub fn set(&self, actor: Addr<EngramActor>) {
        *self.0.actor.write() = Some(actor);
    }

    /// The actor of now, if one was ever started.
    pub fn actor(&self) -> Option<Addr<EngramActor>> {
        self.0.actor.read().clone()
    }

    /// How many requests use tables. Raised before their first step is planned.
    pub fn set_users(&self, users: usize) {
        self.0.users.store(users, Ordering::Release);
    }

    /// The tokens of a finished step.
    pub fn sampled(&self, samples: &[Sample]) {
        if self.0.users.load(Ordering::Acquire) == 0 {
            return;
        }
        let tokens: Vec<(SeqId, _)> = samples.iter().map(|s| (s.seq, s.token)).collect();
        if let Some(actor) = self.actor() {
            actor.do_send(Sampled(tokens));
        }
    }
}

impl EngramActor {
    fn answer(&mut self) {
        loop {
            let begin = self.clock.now();
            let Some(answered) = self.tracker.answer() else { return };
            let now = self.clock.now();
            ::metrics::histogram!(metrics::ENGRAM_LOOKUP_SECONDS).record(now.since(begin).0 as f64 / 1e6);
            ::metrics::counter!(metrics::ENGRAM_LOOKUPS).increment(answered.lookups);
            ::metrics::counter!(metrics::ENGRAM_HITS).increment(answered.hits);
            // In this order and with nothing between: whoever hears of a loss knows which steps have been answered.
            self.alarm.scheduler.sent.do_send(RulesSent { step: answered.rules.step, at: now });
            self.rules.send(answered.rules);
        }
    }
}

impl Actor for EngramActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.set_mailbox_capacity(limits::MAILBOX_MESSAGES);
    }
}

impl Handler<Follow> for EngramActor {
    type Result = ();

    fn handle(&mut self, msg: Follow, _: &mut Context<Self>) {
        for choice in 0..u64::from(msg.choices) {
            self.tracker.follow(SeqId(msg.first.0 + choice), &msg.prompt, msg.tables.clone());
        }
    }
}

impl Handler<Forget> for EngramActor {
    type Result = ();

    fn handle(&mut self, msg: Forget, _: &mut Context<Self>) {
        (0..u64::from(msg.choices)).for_each(|choice| self.tracker.forget(SeqId(msg.first.0 + choice)));
        self.answer();
    }
}

impl Handler<Awaits> for EngramActor {
    type Result = ();

    fn handle(&mut self, Awaits(step): Awaits, _: &mut Context<Self>) {
        self.tracker.launched(step);
        self.answer();
    }
}

impl Handler<Sampled> for EngramActor {
    type Result = ();

    fn handle(&mut self, Sampled(tokens): Sampled, _: &mut Context<Self>) {
        self.tracker.sampled(&tokens);
        self.answer();
    }
}

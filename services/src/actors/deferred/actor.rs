//! The actor of a deferred source, and what it takes to start one.

use super::polled_queue::PolledQueue;
use super::rules_link::RulesLink;
use super::source::{DeferredAnswer, DeferredSource};
use crate::actors::messages::{Awaits, DeferredLost, Follow, Forget, RulesSent, Sampled};
use crate::clock::Clock;
use crate::limits;
use actix::prelude::*;
use actix_rt::ArbiterHandle;
use chimere_engine::constraint::Source;
use chimere_engine::ids::SeqId;
use std::sync::Arc;
use std::time::Duration;

/// The actor that owns a source and answers a step as soon as its tokens are there.
pub struct DeferredActor<S: DeferredSource> {
    source: S,
    rules: RulesLink,
    alarm: LossAlarm,
    clock: Clock,
}

/// What it takes to start the actor of a source, once and again.
pub struct Starter<S> {
    /// The actor's thread, which outlives a panic in the actor.
    pub arbiter: ArbiterHandle,
    /// Makes the source, on the actor's thread.
    pub make: Arc<dyn Fn() -> S + Send + Sync>,
    /// The way by which the engine gets the rules.
    pub rules: RulesLink,
    /// The clock of the service.
    pub clock: Clock,
}

impl<S: DeferredSource> Starter<S> {
    /// Starts an actor that reports to the scheduler actor.
    pub fn start(&self, scheduler: Reports) -> Addr<DeferredActor<S>> {
        let (make, rules, clock) = (self.make.clone(), self.rules.clone(), self.clock.clone());
        DeferredActor::start_in_arbiter(&self.arbiter, move |_| {
            let alarm = LossAlarm { source: S::SOURCE, scheduler };
            DeferredActor { source: make(), rules, alarm, clock }
        })
    }
}

/// The reports that the scheduler actor wants, in one mailbox: nothing else is known of that actor here.
#[derive(Clone)]
pub struct Reports {
    /// The report that the rules for a step are on their way to the engine.
    pub sent: Recipient<RulesSent>,
    /// The reports of quick sources that rules are on their way, read when a step has ended.
    pub polled: PolledQueue<RulesSent>,
    /// The report that the actor is gone.
    pub lost: Recipient<DeferredLost>,
}

/// Tells the scheduler actor when it is dropped, and with it the actor: that is all that a panic leaves.
struct LossAlarm {
    source: Source,
    scheduler: Reports,
}

impl Drop for LossAlarm {
    fn drop(&mut self) {
        self.scheduler.lost.do_send(DeferredLost(self.source));
    }
}

impl<S: DeferredSource> DeferredActor<S> {
    fn answer(&mut self) {
        loop {
            let begin = self.clock.now();
            let Some(answer) = self.source.tracker().answer() else { return };
            let took = Duration::from_micros(self.clock.now().since(begin).0);
            let DeferredAnswer { rules, failed, forced } = self.source.report(answer, took);
            let reports = &self.alarm.scheduler;
            // The report comes before the rules, so that no client gets a token that a failed sequence had no rule for.
            // Nothing between the two can panic: the actor's loss leaves no doubt which steps have been answered.
            let sent = RulesSent { step: rules.step, source: S::SOURCE, at: self.clock.now(), forced, failed };
            if S::QUICK {
                reports.polled.put(sent)
            } else {
                reports.sent.do_send(sent)
            }
            self.rules.send(rules);
        }
    }
}

impl<S: DeferredSource> Actor for DeferredActor<S> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.set_mailbox_capacity(limits::MAILBOX_MESSAGES);
    }
}

impl<S: DeferredSource> Handler<Follow<S::Rules>> for DeferredActor<S> {
    type Result = ();

    fn handle(&mut self, msg: Follow<S::Rules>, _: &mut Context<Self>) {
        for choice in 0..msg.choices {
            let seq = SeqId(msg.first.0 + u64::from(choice));
            let sequence = self.source.begin(seq, choice, &msg.prompt, &msg.rules);
            let outputs = msg.outputs.get(choice as usize).map_or(&[][..], Vec::as_slice);
            self.source.tracker().track_behind(seq, sequence, outputs);
        }
    }
}

impl<S: DeferredSource> Handler<Forget> for DeferredActor<S> {
    type Result = ();

    fn handle(&mut self, msg: Forget, _: &mut Context<Self>) {
        (0..u64::from(msg.choices)).for_each(|choice| self.source.tracker().forget(SeqId(msg.first.0 + choice)));
        self.answer();
    }
}

impl<S: DeferredSource> Handler<Awaits> for DeferredActor<S> {
    type Result = ();

    fn handle(&mut self, Awaits(step): Awaits, _: &mut Context<Self>) {
        self.source.tracker().launched(step);
        self.answer();
    }
}

impl<S: DeferredSource> Handler<Sampled> for DeferredActor<S> {
    type Result = ();

    fn handle(&mut self, Sampled { launched, tokens }: Sampled, _: &mut Context<Self>) {
        launched.into_iter().for_each(|step| self.source.tracker().launched(step));
        self.source.tracker().sampled(&tokens);
        self.answer();
    }
}

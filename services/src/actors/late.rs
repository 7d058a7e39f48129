//! Late sources of rules as actors: they tell the engine what may be said next in a step, while that step's forward
//! runs.
//!
//! The scheduler actor says who uses a source and which steps wait, the completion thread says which tokens came, and
//! the rules go to the engine actor. Nobody waits here: what is not ready is answered when its last token arrives.
//! Should such an actor die, the alarm in it tells the scheduler actor, which ends the requests that use its source and
//! starts another one.

use super::messages::{Awaits, Follow, Forget, LateFailed, LateLost, RulesSent, Sampled};
use super::quiet::{Quiet, TokenDesk};
use super::rules_link::RulesLink;
use crate::clock::Clock;
use crate::limits;
use actix::prelude::*;
use actix_rt::ArbiterHandle;
use chimere_engine::constraint::grammar::ForcedRun;
use chimere_engine::constraint::{Awaiting, Source, StepRules};
use chimere_engine::ids::{SeqId, StepId, TokenId};
use chimere_engine::step::Sample;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What such an actor owns: plain code that follows sequences and answers steps.
pub trait LateSource: Unpin + 'static {
    /// Whose rules it says.
    const SOURCE: Source;
    /// It answers sooner than it takes to wake its thread, so it is woken once a step: it hears of steps with the tokens
    /// that these wait for, and the scheduler actor of its answers when the step is done.
    const QUICK: bool;

    /// What it is told of a request.
    type Rules: Clone + Send + 'static;

    /// Follows a sequence from its prompt on.
    fn follow(&mut self, seq: SeqId, prompt: &[TokenId], rules: &Self::Rules);

    /// Nobody asks for it any more.
    fn forget(&mut self, seq: SeqId);

    /// A step was launched whose sampler waits.
    fn launched(&mut self, step: Awaiting);

    /// Tokens of a finished step.
    fn sampled(&mut self, tokens: &[(SeqId, TokenId)]);

    /// What is said of the oldest step that waits, if all that it depends on is here.
    fn answer(&mut self, clock: &Clock) -> Option<LateAnswer>;
}

/// What a source says of a step.
pub struct LateAnswer {
    /// Rules of the source for a step.
    pub rules: StepRules,
    /// Sequences that cannot go on, and why.
    pub failed: Vec<(SeqId, String)>,
    /// Outputs of which there is no choice.
    pub forced: Vec<ForcedRun>,
}

/// Owns a source, and answers when it can.
pub struct LateActor<S: LateSource> {
    source: S,
    rules: RulesLink,
    alarm: LossAlarm,
    clock: Clock,
}

/// What it takes to start the actor of a source, once and again.
pub struct Starter<S> {
    /// Its thread, which outlives a panic in it.
    pub arbiter: ArbiterHandle,
    /// Makes the source, on that thread.
    pub make: Arc<dyn Fn() -> S + Send + Sync>,
    /// Who gets the rules.
    pub rules: RulesLink,
    /// What time it is.
    pub clock: Clock,
}

impl<S: LateSource> Starter<S> {
    /// Starts an actor that reports to the scheduler actor.
    pub fn start(&self, scheduler: Reports) -> Addr<LateActor<S>> {
        let (make, rules, clock) = (self.make.clone(), self.rules.clone(), self.clock.clone());
        LateActor::start_in_arbiter(&self.arbiter, move |_| {
            let alarm = LossAlarm { source: S::SOURCE, scheduler };
            LateActor { source: make(), rules, alarm, clock }
        })
    }
}

/// What the scheduler actor wants to hear, in one mailbox: nothing else is known of it here.
#[derive(Clone)]
pub struct Reports {
    /// The rules for a step are on their way to the engine.
    pub sent: Recipient<RulesSent>,
    /// The same from quick sources, to be read when it is wanted.
    pub quiet: Quiet<RulesSent>,
    /// A sequence cannot go on.
    pub failed: Recipient<LateFailed>,
    /// The actor is gone.
    pub lost: Recipient<LateLost>,
}

/// Tells the scheduler actor when it is dropped, and with it the actor: that is all that a panic leaves.
struct LossAlarm {
    source: Source,
    scheduler: Reports,
}

impl Drop for LossAlarm {
    fn drop(&mut self) {
        self.scheduler.lost.do_send(LateLost(self.source));
    }
}

/// Where the completion thread finds the actor of now. Clones share it.
pub struct LateLink<S: LateSource>(Arc<Linked<S>>);

struct Linked<S: LateSource> {
    /// Requests that use the source: while there are none, a step costs little here.
    users: AtomicUsize,
    desk: Mutex<Desk<S>>,
}

/// The actor of now, and what it is to be told with the next tokens.
struct Desk<S: LateSource> {
    actor: Option<Addr<LateActor<S>>>,
    tokens: TokenDesk,
}

impl<S: LateSource> Clone for LateLink<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: LateSource> Default for LateLink<S> {
    fn default() -> Self {
        let desk = Mutex::new(Desk { actor: None, tokens: TokenDesk::default() });
        Self(Arc::new(Linked { users: AtomicUsize::new(0), desk }))
    }
}

impl<S: LateSource> LateLink<S> {
    /// From now on tokens go to this one. What the one before was to be told it is not.
    pub fn set(&self, actor: Addr<LateActor<S>>) {
        let mut desk = self.0.desk.lock();
        desk.actor = Some(actor);
        desk.tokens.forget();
    }

    /// The actor of now, if one was ever started.
    pub fn actor(&self) -> Option<Addr<LateActor<S>>> {
        self.0.desk.lock().actor.clone()
    }

    /// How many requests use the source. Raised before their first step is planned.
    pub fn set_users(&self, users: usize) {
        self.0.users.store(users, Ordering::Release);
    }

    /// A step was launched in which rows wait for the source, right behind the step `before`, if that was in flight.
    pub fn launched(&self, Awaits(step): Awaits, before: Option<StepId>) {
        let (step, actor) = {
            let mut desk = self.0.desk.lock();
            let before = before.filter(|_| S::QUICK);
            (desk.tokens.launched(step, before), desk.actor.clone())
        };
        // Otherwise it is told with the tokens of the step before.
        step.zip(actor).into_iter().for_each(|(step, actor)| actor.do_send(Awaits(step)));
    }

    /// The tokens of a finished step.
    pub fn sampled(&self, step: StepId, samples: &[Sample]) {
        let (launched, actor) = {
            let mut desk = self.0.desk.lock();
            (desk.tokens.sampled(step), desk.actor.clone())
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

impl<S: LateSource> LateActor<S> {
    fn answer(&mut self) {
        while let Some(LateAnswer { rules, failed, forced }) = self.source.answer(&self.clock) {
            let reports = &self.alarm.scheduler;
            // Before their rows are sampled, so that nobody is told of a token that no rule was made for.
            failed.into_iter().for_each(|(seq, why)| reports.failed.do_send(LateFailed { seq, why }));
            // In this order and with nothing between: whoever hears of a loss knows which steps have been answered.
            let sent = RulesSent { step: rules.step, source: S::SOURCE, at: self.clock.now(), forced };
            if S::QUICK {
                reports.quiet.put(sent)
            } else {
                reports.sent.do_send(sent)
            }
            self.rules.send(rules);
        }
    }
}

impl<S: LateSource> Actor for LateActor<S> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.set_mailbox_capacity(limits::MAILBOX_MESSAGES);
    }
}

impl<S: LateSource> Handler<Follow<S::Rules>> for LateActor<S> {
    type Result = ();

    fn handle(&mut self, msg: Follow<S::Rules>, _: &mut Context<Self>) {
        for choice in 0..u64::from(msg.choices) {
            self.source.follow(SeqId(msg.first.0 + choice), &msg.prompt, &msg.rules);
        }
    }
}

impl<S: LateSource> Handler<Forget> for LateActor<S> {
    type Result = ();

    fn handle(&mut self, msg: Forget, _: &mut Context<Self>) {
        (0..u64::from(msg.choices)).for_each(|choice| self.source.forget(SeqId(msg.first.0 + choice)));
        self.answer();
    }
}

impl<S: LateSource> Handler<Awaits> for LateActor<S> {
    type Result = ();

    fn handle(&mut self, Awaits(step): Awaits, _: &mut Context<Self>) {
        self.source.launched(step);
        self.answer();
    }
}

impl<S: LateSource> Handler<Sampled> for LateActor<S> {
    type Result = ();

    fn handle(&mut self, Sampled { launched, tokens }: Sampled, _: &mut Context<Self>) {
        launched.into_iter().for_each(|step| self.source.launched(step));
        self.source.sampled(&tokens);
        self.answer();
    }
}

//! The scheduler actor: the engine's [`Pipeline`], told the time, and the channels that its events go into.
//!
//! It decides nothing itself. A message becomes a call, the call's events go out, and then each step that the pipeline
//! wants launched goes to the engine. `handlers.rs` has a call for each message.

mod deadlines;
pub mod retry;
pub mod step_log;
mod step_meter;
mod streams;
pub mod timer;

mod handlers;
mod settings;

pub use settings::{ReplicaPlace, SchedulerSettings};

use crate::actors::deferred::{DeferredSources, DeferredUsers, EngramSource, GrammarSource, Reports};
use crate::actors::deferred_rules::DeferredRules;
use crate::actors::dispatch::{Dispatcher, Migration, Route};
use crate::actors::engine::EngineActor;
use crate::actors::live::LiveRequests;
use crate::actors::messages::{Follow, Launch, Refusal, RulesSent, Submit};
use crate::actors::phase::{DEADLINE_PASSED, ENGINE_LOST, Phase, ReplicaPhase};
use crate::actors::spin_wait::{SpinWait, Watchful};
use crate::actors::watchdog::{Awaited, EngineWatch};
use crate::clock::Clock;
use crate::limits;
use actix::prelude::*;
use chimere_engine::constraint::Source;
use chimere_engine::ids::{Micros, RequestId, StepId, TokenId};
use chimere_engine::scheduler::{Event, Forecast, NextStep, Pipeline, Rejected};
use chimere_engine::step::{StepOutcome, StepPlan};
use deadlines::Deadlines;
use retry::Passes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use step_meter::{OutcomeFigures, StepMeter};
use streams::{Luggage, Sent, Streams};
use timer::Timer;

/// Owns the scheduler and the sending ends of all event channels.
pub struct SchedulerActor {
    pipeline: Pipeline,
    engine: Addr<EngineActor>,
    streams: Streams,
    /// Of requests that have a stream.
    deadlines: Deadlines,
    /// The timer for the next of them, and for when it was set.
    deadline_timer: Option<(Instant, SpawnHandle)>,
    deferred: DeferredSources,
    phase: ReplicaPhase,
    /// The one that gives requests to this replica, where there is one.
    dispatcher: Option<Dispatcher>,
    live: LiveRequests,
    clock: Clock,
    /// `None` before the start, and where there is no thread for it: then nothing is planned late.
    timer: Option<Timer>,
    /// The step for whose end the timer was set.
    timer_for: Option<StepId>,
    meter: StepMeter,
    /// Events of the step that ended last, which go out when the next one has been launched.
    undelivered: Vec<(RequestId, Event)>,
    spin_wait: SpinWait,
    /// Told which step the engine computes.
    watch: EngineWatch,
}

impl SchedulerActor {
    /// Plans for `engine`, with sources that answer steps.
    pub fn new(
        settings: SchedulerSettings,
        place: ReplicaPlace,
        engine: Addr<EngineActor>,
        deferred: (DeferredUsers<EngramSource>, DeferredUsers<GrammarSource>),
    ) -> Self {
        let SchedulerSettings { config, drafts, pace, live, clock, gateway, step_log } = settings;
        let ReplicaPlace { phase, figures, dispatcher, ledger } = place;
        let mut pipeline = Pipeline::new(config, drafts, pace).with_ledger(ledger);
        if dispatcher.as_ref().is_some_and(Dispatcher::wants_changes) {
            pipeline.note_prefix_changes();
        }
        Self {
            meter: StepMeter::new(&config, figures, gateway, step_log),
            undelivered: Vec::new(),
            spin_wait: SpinWait::default(),
            watch: EngineWatch::default(),
            pipeline,
            engine,
            streams: Streams::default(),
            deadlines: Deadlines::default(),
            deadline_timer: None,
            deferred: DeferredSources::new(deferred),
            phase,
            dispatcher,
            live,
            clock,
            timer: None,
            timer_for: None,
        }
    }

    /// This actor with a thread that stays awake so.
    pub(crate) fn with_spin_wait(self, spin_wait: SpinWait) -> Self {
        Self { spin_wait, ..self }
    }

    /// This actor under a watchdog.
    pub(crate) fn with_watch(self, watch: EngineWatch) -> Self {
        Self { watch, ..self }
    }

    /// Takes a request in, or says why not. With a place it can go on elsewhere if this engine is lost.
    fn admit(&mut self, submit: Submit, route: Option<Route>, ctx: &mut Context<Self>) -> Result<(), Refusal> {
        let Submit { request, terms, events, rules, warm_up } = submit;
        let (id, unfinished, prompt, now) =
            (request.id, request.spec.choices, request.prompt.clone(), self.clock.now());
        let uncounted = if warm_up { prompt.len() as u64 } else { 0 };
        debug_assert_eq!(request.spec.waits_for, rules.sources(), "a request that waits for a source is tracked by it");
        let foreseen = self.pipeline.foresee(&request, &terms, self.clock.now());
        foreseen.iter().for_each(|forecast| self.meter.foreseen(forecast.start_us));
        self.pipeline.admit(request, &terms, now).map_err(|reason| self.refuse(id, reason, foreseen))?;
        let foreseen_us = foreseen.map(|forecast| forecast.start_us);
        self.meter.leave_out(uncounted);
        let several = self.dispatcher.as_ref().is_some_and(Dispatcher::has_several);
        let luggage = route.filter(|_| several).map(|route| Luggage { route, rules: rules.clone() });
        self.streams.open(id, events, unfinished, foreseen_us, luggage);
        self.follow(id, unfinished, prompt, rules, Vec::new());
        self.expire_at(id, terms.deadline, ctx);
        self.pump();
        Ok(())
    }

    /// Has deferred sources follow a request that is live here, behind the outputs that its choices have had.
    fn follow(
        &mut self,
        id: RequestId,
        choices: u32,
        prompt: Arc<[TokenId]>,
        rules: DeferredRules,
        outputs: Vec<Vec<TokenId>>,
    ) {
        if let Some(first) = self.pipeline.scheduler().first_sequence(id) {
            self.deferred.follow(id, Follow { first, choices, prompt, outputs, rules });
        }
    }

    /// Sees to it that a request ends when its deadline passes.
    fn expire_at(&mut self, id: RequestId, deadline: Option<Micros>, ctx: &mut Context<Self>) {
        let Some(deadline) = deadline else { return };
        self.deadlines.insert(id, Instant::now() + Duration::from_micros(deadline.since(self.clock.now()).0));
        self.watch_deadlines(ctx);
    }

    /// Goes on with a request of a replica that is lost, or fails it where this one takes nothing any more.
    fn adopt(&mut self, migration: Migration, ctx: &mut Context<Self>) {
        if self.phase.is_lost()
            && let Some(dispatcher) = &self.dispatcher
        {
            return dispatcher.migrate(migration);
        }
        if self.pipeline.may_adopt(&migration.migrated).is_err() {
            return migration.fail();
        }
        let Migration { migrated, events, started, rules, route } = migration;
        let (id, deadline, unfinished) = (migrated.request.id, migrated.terms.deadline, migrated.choices.len() as u32);
        let (prompt, choices) = (migrated.request.prompt.clone(), migrated.request.spec.choices);
        let outputs = migrated.tokens_by_choice();
        self.pipeline.adopt(migrated, self.clock.now()).expect("it may be adopted, as was asked just now");
        self.streams.go_on(id, (events, started), unfinished, Luggage { route, rules: rules.clone() });
        self.follow(id, choices, prompt, rules, outputs);
        self.expire_at(id, deadline, ctx);
        self.meter.migrated();
        self.pump();
    }

    /// Launches what may be launched, then says how things stand.
    fn pump(&mut self) {
        while let Some(plan) = self.next_plan() {
            let awaiting = self.deferred.awaiting(&plan);
            let step = self.pipeline.launched(&plan, self.clock.now());
            self.meter.launched(&plan, step);
            let behind = step.behind;
            if self.engine.try_send(Launch(plan)).is_err() {
                self.lose("the engine thread is gone");
                return;
            }
            // Only now, or the rules could be with the engine before the step is.
            self.deferred.launched(awaiting, behind);
        }
        self.tell();
        if self.phase.is_draining() && self.pipeline.scheduler().is_idle() {
            self.go(Phase::Drained);
        }
    }

    /// The next step if it is time for it. If it is too early, the timer rings when the time has come. It may ring late
    /// or never: the end of the running step wakes this actor too, and then there is nothing to wait for.
    fn next_plan(&mut self) -> Option<StepPlan> {
        match self.pipeline.next(self.clock.now()) {
            NextStep::Launch(plan) => Some(plan),
            NextStep::Later { behind, after } => {
                if let Some(timer) = self.timer.as_ref().filter(|_| self.timer_for != Some(behind)) {
                    timer.set(Duration::from_micros(after.0));
                    self.timer_for = Some(behind);
                }
                None
            }
            NextStep::Nothing => None,
        }
    }

    /// A step has ended. Those who hear of it can wait until the next one is launched.
    fn end_step(&mut self, outcome: StepOutcome, ctx: &mut Context<Self>) {
        self.note_answers();
        let figures = OutcomeFigures::of(&outcome);
        let Some((events, finished)) = self.pipeline.done(outcome, self.clock.now()) else { return };
        // A step that ends fails nobody for another reason.
        for (id, event) in &events {
            if let Event::Failed(why) = event {
                tracing::error!(request = self.live.name(*id).as_deref(), why, "ended");
                self.meter.not_finite();
            }
        }
        self.undelivered = events;
        self.pump();
        self.meter.ended(&finished, &figures, self.pipeline.pace());
        if self.pipeline.is_serial() {
            self.stay_awake(ctx);
        }
        self.deliver_rest();
    }

    /// Hands over the events of the last step, if that has not been done.
    fn deliver_rest(&mut self) {
        let events = std::mem::take(&mut self.undelivered);
        self.deliver(events);
    }

    /// Hands events to their requests.
    fn deliver(&mut self, events: Vec<(RequestId, Event)>) {
        for (id, event) in events {
            let sent = self.streams.send(id, event, self.pipeline.scheduler(), &self.meter);
            if sent == Sent::Broken {
                self.pipeline.cancel(id);
            }
            if sent != Sent::Open {
                self.forget(id);
            }
        }
    }

    /// The engine is lost: every stream ends with an error, and the process with it.
    fn lose(&mut self, why: &str) {
        if matches!(self.phase.now(), Phase::Drained | Phase::Lost(_)) {
            return; // after the end it is stopped on purpose, and a second loss adds nothing
        }
        tracing::error!(why, "the engine is lost");
        self.meter.engine_lost();
        // What was committed was computed, and whoever goes on with a request goes on behind it.
        self.deliver_rest();
        let dispatcher = self.dispatcher.clone();
        dispatcher.iter().for_each(|dispatcher| dispatcher.lose(self.phase.number()));
        // First, so that nobody who reads the end of a stream can still find the service well.
        self.go(Phase::Lost(why.to_owned()));
        if let Some(dispatcher) = dispatcher.filter(|_| !self.phase.service_is_lost()) {
            self.hand_over(&dispatcher);
        }
        self.end_all(ENGINE_LOST);
    }

    /// Hands all requests that can go on elsewhere to other replicas, as far as they got.
    fn hand_over(&mut self, dispatcher: &Dispatcher) {
        for migrated in self.pipeline.hand_over() {
            let id = migrated.request.id;
            let left = self.streams.leave(id);
            if let Some((events, started, Luggage { route, rules })) = left {
                dispatcher.migrate(Migration { migrated, events, started, rules, route });
            } else {
                self.deliver(vec![(id, Event::Failed(ENGINE_LOST.to_owned()))]);
            }
            self.forget(id);
        }
    }

    fn end_all(&mut self, why: &str) {
        let events = self.pipeline.fail(why);
        for (id, _) in &events {
            tracing::warn!(request = self.live.name(*id).as_deref(), why, "ended");
        }
        self.deliver(events);
        self.tell();
    }

    fn forget(&mut self, id: RequestId) {
        self.streams.close(id);
        self.deadlines.remove(id);
        self.deferred.forget(id);
    }

    /// The way by which deferred sources report to this actor.
    fn reports(&self, own: &Addr<Self>) -> Reports {
        let own = own.clone();
        let (sent, lost) = (own.clone().recipient(), own.recipient());
        Reports { sent, polled: self.deferred.answers().clone(), lost }
    }

    /// Reads the reports that quick sources have left.
    fn note_answers(&mut self) {
        for sent in self.deferred.answers().take() {
            self.note_rules(sent);
        }
    }

    /// Learns that a source has answered a step. Returns whether that may change the next plan: a request ended, or
    /// outputs are forced.
    fn note_rules(&mut self, RulesSent { step, source, at, forced, failed }: RulesSent) -> bool {
        self.pipeline.answered(step, source, at);
        let mut changed = self.pipeline.forced(forced);
        for (seq, why) in failed {
            if let Some(id) = self.deferred.request_of(source, seq) {
                tracing::warn!(request = self.live.name(id).as_deref(), why, "ended");
                self.fail_request(id, why);
                changed = true;
            }
        }
        changed
    }

    /// Replaces the actor of a deferred source that died: the requests that use the source end, the others go on, and
    /// another actor answers those to come.
    fn replace(&mut self, source: Source, own: &Addr<Self>) {
        self.note_answers();
        let (failed, why) = self.deferred.replace(source, self.reports(own));
        tracing::error!(requests = failed.len(), source = source.name(), "its actor is gone; another one is started");
        self.meter.source_restarted(source);
        for id in failed {
            self.fail_request(id, why.to_owned());
        }
        // Every row that waits for the source belonged to one of those; without an answer its step would never end, nor
        // the ones behind it.
        self.pipeline.give_up(source).into_iter().for_each(|step| self.deferred.answer_for(source, step));
        self.pump();
    }

    /// Ends a request with an error.
    fn fail_request(&mut self, id: RequestId, why: String) {
        self.pipeline.cancel(id);
        self.deliver(vec![(id, Event::Failed(why))]);
    }

    fn go(&self, next: Phase) {
        self.phase.advance(next);
    }

    /// When a refused caller should come back, if its reason passes.
    fn refuse(&self, id: RequestId, reason: Rejected, foreseen: Option<Forecast>) -> Refusal {
        let scheduler = self.pipeline.scheduler();
        let Passes::In(room_in_us) = Passes::of(&reason, scheduler, self.clock.now()) else {
            return Refusal { reason, retry_after: None };
        };
        if let Some(us) = room_in_us {
            self.meter.refused(us);
        }
        retry::log(self.live.name(id).as_deref(), reason, &scheduler.stats(), foreseen, room_in_us);
        Refusal { reason, retry_after: Some(retry::after(room_in_us, rand::random_range(-1.0..=1.0))) }
    }

    /// Sets the timer for the next deadline, if none is set that rings as soon.
    fn watch_deadlines(&mut self, ctx: &mut Context<Self>) {
        let Some(next) = self.deadlines.next() else { return };
        if self.deadline_timer.is_some_and(|(at, _)| at <= next) {
            return;
        }
        if let Some((_, timer)) = self.deadline_timer.take() {
            ctx.cancel_future(timer);
        }
        let timer = ctx.run_later(next.saturating_duration_since(Instant::now()), |this, ctx| {
            this.deadline_timer = None;
            while let Some(id) = this.deadlines.pop_passed(Instant::now()) {
                this.expire(id);
            }
            this.watch_deadlines(ctx);
        });
        self.deadline_timer = Some((next, timer));
    }

    /// Ends a request whose deadline has passed, if it still lives.
    fn expire(&mut self, id: RequestId) {
        if self.pipeline.cancel(id) {
            self.deliver(vec![(id, Event::Failed(DEADLINE_PASSED.to_owned()))]);
            self.pump();
        }
    }

    /// What has to happen next: the oldest step ends, or one is planned for requests that are there.
    fn awaited(&self) -> Option<Awaited> {
        let oldest = self.pipeline.oldest();
        let step = oldest.map(|step| Awaited::Step { id: step.id, predicted_us: step.predicted_us });
        step.or_else(|| self.pipeline.scheduler().has_to_work().then_some(Awaited::Plan))
    }

    fn tell(&mut self) {
        if let Some(dispatcher) = &self.dispatcher {
            let changes = self.pipeline.take_prefix_changes();
            if !changes.is_empty() {
                dispatcher.note(self.phase.number(), changes);
            }
            if dispatcher.has_several() {
                dispatcher.tell(self.phase.number(), self.pipeline.load());
            }
        }
        self.watch.expect(self.awaited());
        let scheduler = self.pipeline.scheduler();
        self.meter.keeps(scheduler.prefix_stats());
        self.meter.has_adapters(scheduler.adapters_named());
        self.meter.stands(scheduler.stats(), scheduler.waiting_by_key());
        self.meter.drafted(scheduler.draft_totals());
    }
}

impl Watchful for SchedulerActor {
    fn spin_wait(&mut self) -> &mut SpinWait {
        &mut self.spin_wait
    }
}

impl Actor for SchedulerActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.set_mailbox_capacity(limits::MAILBOX_MESSAGES);
        self.deferred.start(&self.reports(&ctx.address()));
        self.timer = match Timer::start(ctx.address().recipient()) {
            Ok(timer) => Some(timer),
            Err(e) => {
                tracing::warn!(error = %e, "no thread for the timer; steps are planned as soon as they can be, and new prompts wait longer");
                self.pipeline.plan_at_once();
                None
            }
        };
    }
}

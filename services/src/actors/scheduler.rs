//! The scheduler actor: the engine's [`Scheduler`], told the time, and the channels that its events go into.
//!
//! It decides nothing itself. A message becomes a call, the call's events go out, and then as many steps are planned
//! and launched as may be in flight: the first at once, the second when the first is about to end, so that who comes
//! meanwhile is in it.

use super::alarm::Alarm;
use super::deadlines::Deadlines;
use super::engine::EngineActor;
use super::engram::EngramSource;
use super::grammar::GrammarSource;
use super::late::{LateSource, Reports};
use super::late_users::LateUsers;
use super::live::LiveRequests;
use super::messages::{
    Cancel, Drain, EngineOverdue, LateFailed, LateLost, Launch, Open, PlanDue, Refusal, RequestEvent, RulesSent,
    StepDone, Submit,
};
use super::phase::{DEADLINE_PASSED, Phase, SHUTTING_DOWN};
use super::quiet::Quiet;
use super::retry;
use super::step_log::StepLog;
use super::step_meter::{Ended, StepInFlight, StepMeter};
use super::vigil::{Vigil, Watchful};
use super::watchdog::{Awaited, EngineWatch};
use crate::clock::Clock;
use crate::limits;
use crate::metrics::gateway::Gateway;
use actix::prelude::*;
use chimere_engine::constraint::{Source, Sources};
use chimere_engine::ids::{Micros, RequestId, StepId};
use chimere_engine::scheduler::{
    DraftSettings, Event, Forecast, Pace, Rejected, Request, RequestTimes, Scheduler, SchedulerConfig, Terms,
};
use chimere_engine::step::{StepOutcome, StepPlan};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// What a client is told whose stream broke with the tables' thread.
const ENGRAM_LOST: &str = "the part that looks tables up failed; requests without tables go on";
/// Likewise with the grammars' thread.
const GRAMMAR_LOST: &str = "the part that follows grammars failed; requests without one go on";

/// Owns the scheduler and the sending ends of all event channels.
pub struct SchedulerActor {
    scheduler: Scheduler,
    engine: Addr<EngineActor>,
    streams: HashMap<RequestId, Stream>,
    /// Of requests that have a stream.
    deadlines: Deadlines,
    /// The timer for the next of them, and for when it was set.
    deadline_timer: Option<(Instant, SpawnHandle)>,
    tables: LateUsers<EngramSource>,
    grammars: LateUsers<GrammarSource>,
    /// Which steps quick sources have answered: read at a step's end.
    answers: Quiet<RulesSent>,
    phase: watch::Sender<Phase>,
    live: LiveRequests,
    clock: Clock,
    /// What the engine has, the first to come back first.
    steps: VecDeque<StepInFlight>,
    /// `None` before the start, and where there is no thread for it: then nothing is planned late.
    alarm: Option<Alarm>,
    /// The step for whose end the alarm was set.
    alarm_for: Option<StepId>,
    /// Targets, and what steps take.
    pace: Pace,
    meter: StepMeter,
    vigil: Vigil,
    /// Told which step the engine computes.
    watch: EngineWatch,
    /// When the last step was committed: a step's share of the engine begins there or at its own launch, whichever is
    /// later.
    committed: Micros,
    /// Since when the engine has had nothing to do, while the step that it waits for is being planned.
    waits_since: Option<Micros>,
}

/// Where a request's events go.
struct Stream {
    events: mpsc::Sender<RequestEvent>,
    started: bool,
    /// Choices without their last event; the stream is closed with the last one.
    unfinished: u32,
    /// Time to its first step as it was predicted, microseconds; `None` if it had not to wait or nobody knew.
    foreseen_us: Option<u64>,
}

impl Stream {
    /// Sends an event, before the first one also the times and what the prefix cache spared. A request that ended
    /// within its first commit has them in its last event alone: then the start is told with that.
    fn send(
        &mut self,
        event: Event,
        times: Option<(RequestTimes, u32)>,
        meter: &StepMeter,
    ) -> Result<(), mpsc::error::TrySendError<RequestEvent>> {
        if let Some((times, cached_tokens)) = times.filter(|(t, _)| t.started.is_some() && !self.started) {
            self.started = true;
            meter.started(self.foreseen_us, &times);
            self.events.try_send(RequestEvent::Started { times, cached_tokens })?;
        }
        self.events.try_send(RequestEvent::Event(event))
    }
}

impl SchedulerActor {
    /// Plans for `engine`, within `config` and `pace`, with what is drafted.
    #[expect(clippy::too_many_arguments, reason = "each is a thing of its own")]
    pub fn new(
        (config, drafts): (SchedulerConfig, DraftSettings),
        pace: Pace,
        engine: Addr<EngineActor>,
        (tables, grammars): (LateUsers<EngramSource>, LateUsers<GrammarSource>),
        phase: watch::Sender<Phase>,
        live: LiveRequests,
        clock: Clock,
        gateway: Arc<Gateway>,
        log: Arc<StepLog>,
    ) -> Self {
        Self {
            meter: StepMeter::new(&config, gateway, log),
            vigil: Vigil::default(),
            watch: EngineWatch::default(),
            scheduler: Scheduler::new(config).with_drafts(drafts),
            engine,
            streams: HashMap::new(),
            deadlines: Deadlines::default(),
            deadline_timer: None,
            tables,
            grammars,
            answers: Quiet::default(),
            phase,
            live,
            clock,
            steps: VecDeque::new(),
            alarm: None,
            alarm_for: None,
            pace,
            committed: Micros(0),
            waits_since: None,
        }
    }

    /// The same with a thread that stays awake so.
    pub(crate) fn with_vigil(self, vigil: Vigil) -> Self {
        Self { vigil, ..self }
    }

    /// The same under a watchdog.
    pub(crate) fn with_watch(self, watch: EngineWatch) -> Self {
        Self { watch, ..self }
    }

    /// Launches what may be launched, then says how things stand.
    fn pump(&mut self) {
        while let Some((plan, rows_out)) = self.plan() {
            let (tables, grammars, now) =
                (self.tables.awaiting(&plan), self.grammars.awaiting(&plan), self.clock.now());
            let mut step = self.meter.launched(&plan, &self.pace, now, rows_out, plan.waits_for());
            step.waited_since = self.waits_since.take();
            let before = self.steps.back().map(|step| step.id);
            self.steps.push_back(step);
            if self.engine.try_send(Launch(plan)).is_err() {
                self.lose("the engine thread is gone");
                return;
            }
            // Only now, or the rules could be with the engine before the step is.
            grammars.into_iter().for_each(|step| self.grammars.launched(step, before));
            tables.into_iter().for_each(|step| self.tables.launched(step, before));
        }
        self.waits_since = None;
        self.tell();
        if *self.phase.borrow() == Phase::Draining && self.scheduler.is_idle() {
            self.go(Phase::Drained);
        }
    }

    /// The next step if it is time for it, and how many decode rows sit it out.
    fn plan(&mut self) -> Option<(StepPlan, u64)> {
        if self.awaits_runs() || self.is_early() {
            return None;
        }
        let before = self.scheduler.rows_sat_out();
        let plan = self.scheduler.plan_within(self.clock.now(), &self.pace)?;
        let rows_out = self.scheduler.rows_sat_out() - before;
        self.meter.planned(rows_out);
        Some((plan, rows_out))
    }

    /// Has a step been launched whose grammars have not answered? With the answer comes which outputs they leave no
    /// choice of, and these take one step if they are known when it is planned. The answer comes early in the forward,
    /// and without it that step would not end.
    fn awaits_runs(&self) -> bool {
        self.scheduler.takes_runs() && self.steps.iter().any(|step| step.awaits.contains(Source::Grammar))
    }

    /// Is it too early to plan beside the step that runs? Then the alarm rings when the time has come. It may ring late
    /// or never: the end of that step wakes this actor too, and then there is nothing to wait for.
    fn is_early(&mut self) -> bool {
        let (Some(step), Some(alarm), 1) = (self.steps.front(), &self.alarm, self.steps.len()) else { return false };
        let (now, began) = (self.clock.now(), step.began(self.committed));
        let left = self.pace.plan_at(began, step.predicted).since(now);
        if left.0 > 0 && self.alarm_for != Some(step.id) {
            alarm.set(Duration::from_micros(left.0));
            self.alarm_for = Some(step.id);
        }
        left.0 > 0
    }

    /// What a step that has ended says, and what it was. Whoever hears of it can wait until the next one is launched.
    fn commit(&mut self, step: StepInFlight, outcome: StepOutcome) -> (Vec<(RequestId, Event)>, Ended) {
        let now = self.clock.now();
        debug_assert_eq!(Some(step.id), outcome.id, "steps come back in order");
        self.learn(&step, now.since(step.began(self.committed)), now, Micros(outcome.timing.guess_us));
        let ended = Ended::new(step, &outcome, self.committed, now);
        self.committed = now;
        self.waits_since = self.steps.is_empty().then_some(now);
        let events = self.scheduler.commit(outcome, now);
        // A step that ends fails nobody for another reason.
        for (id, event) in &events {
            if let Event::Failed(why) = event {
                tracing::error!(request = self.live.name(*id).as_deref(), why, "ended");
                self.meter.not_finite();
            }
        }
        (events, ended)
    }

    /// What a step that took so long teaches about steps to come.
    fn learn(&mut self, step: &StepInFlight, took: Micros, now: Micros, guesses: Micros) {
        let (cost, shape) = (&mut self.pace.cost, &step.shape);
        let beside = |took: Micros| Micros(took.0.saturating_sub(guesses.0));
        match step.waited_since {
            Some(since) if shape.late => cost.observe(shape, beside(now.since(since))),
            // It was planned late because drafts were hoped for. Such steps are planned ahead otherwise, and what they
            // take then is what drafts are held against.
            Some(since) => {
                cost.observe_unusual(shape, beside(took));
                cost.observe_wait(shape, beside(now.since(since)));
            }
            // What guesses make of a step beside their own time is theirs too.
            None if shape.guess_rows > 0 && !shape.late => cost.observe_unusual(shape, beside(took)),
            None => cost.observe(shape, beside(took)),
        }
        cost.observe_guesses(shape, guesses);
    }

    /// Hands events to their requests. A channel never is full, because it was sized at admission; a closed one means
    /// that the request's actor is gone, which its Cancel says too, only later.
    fn deliver(&mut self, events: Vec<(RequestId, Event)>) {
        for (id, event) in events {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let mut times = None;
            match &event {
                Event::Finished { times: last, usage, .. } => {
                    stream.unfinished -= 1;
                    times = Some((*last, usage.cached_tokens));
                }
                Event::Failed(_) => stream.unfinished = 0,
                _ if !stream.started => times = self.scheduler.times(id).zip(self.scheduler.cached_tokens(id)),
                _ => {}
            }
            let sent = stream.send(event, times, &self.meter);
            debug_assert!(
                !matches!(sent, Err(mpsc::error::TrySendError::Full(_))),
                "request {id} caused more events than it may"
            );
            if sent.is_err() {
                self.scheduler.cancel(id);
            }
            if sent.is_err() || self.streams[&id].unfinished == 0 {
                self.forget(id);
            }
        }
    }

    /// The engine is lost: every stream ends with an error, and the process with it.
    fn lose(&mut self, why: &str) {
        if matches!(*self.phase.borrow(), Phase::Drained | Phase::Lost(_)) {
            return; // after the end it is stopped on purpose, and a second loss adds nothing
        }
        tracing::error!(why, "the engine is lost");
        self.meter.engine_lost();
        // First, so that nobody who reads the end of a stream can still find the service well.
        self.go(Phase::Lost(why.to_owned()));
        self.end_all("the engine is lost");
    }

    fn end_all(&mut self, why: &str) {
        let events = self.scheduler.fail(why);
        for (id, _) in &events {
            tracing::warn!(request = self.live.name(*id).as_deref(), why, "ended");
        }
        self.steps.clear();
        self.deliver(events);
        self.tell();
    }

    fn forget(&mut self, id: RequestId) {
        self.streams.remove(&id);
        self.deadlines.remove(id);
        self.tables.forget(id);
        self.grammars.forget(id);
    }

    /// The way by which late sources report to this actor.
    fn reports(&self, own: &Addr<Self>) -> Reports {
        let own = own.clone();
        let (sent, failed, lost) = (own.clone().recipient(), own.clone().recipient(), own.recipient());
        Reports { sent, quiet: self.answers.clone(), failed, lost }
    }

    /// Reads which steps quick sources have answered.
    fn note_answers(&mut self) {
        self.answers.take().iter().for_each(|sent| self.note_answer(sent));
    }

    fn note_answer(&mut self, sent: &RulesSent) {
        if let Some(step) = self.steps.iter_mut().find(|s| s.id == sent.step) {
            step.awaits = step.awaits.without(Sources::only(sent.source));
            if sent.source == Source::Tables {
                step.rules_at = Some(sent.at);
            }
        }
    }

    /// The actor of a late source died: the requests that use it end, the others go on, and there is another one for
    /// those to come.
    fn replace(&mut self, source: Source, own: &Addr<Self>) {
        self.note_answers();
        let reports = self.reports(own);
        let (failed, why) = match source {
            Source::Tables => (restarted(&mut self.tables, reports), ENGRAM_LOST),
            _ => (restarted(&mut self.grammars, reports), GRAMMAR_LOST),
        };
        tracing::error!(requests = failed.len(), source = source.name(), "its actor is gone; another one is started");
        self.meter.late_restarted(source);
        for id in failed {
            self.scheduler.cancel(id);
            self.deliver(vec![(id, Event::Failed(why.to_owned()))]);
        }
        // Every row that waits for the source belonged to one of those; without an answer its step would never end, nor
        // the ones behind it.
        for step in self.steps.iter_mut().filter(|s| s.awaits.contains(source)) {
            step.awaits = step.awaits.without(Sources::only(source));
            match source {
                Source::Tables => self.tables.answer_for(step.id),
                _ => self.grammars.answer_for(step.id),
            }
        }
        self.pump();
    }

    fn go(&self, next: Phase) {
        self.phase.send_if_modified(|phase| phase.advance(next));
    }

    /// When a refused caller should come back, if its reason passes.
    fn refuse(&self, id: RequestId, reason: Rejected, foreseen: Option<Forecast>) -> Refusal {
        let room_in_us = match reason {
            Rejected::QueueFull { .. } | Rejected::QueueTokensFull { .. } | Rejected::KeyBusy { .. } => {
                self.scheduler.room_in_us(&reason, self.clock.now())
            }
            Rejected::KeyRate { wait_us, .. } => Some(wait_us),
            Rejected::WaitTooLong { wait_us, max_us } => Some(wait_us.saturating_sub(max_us)),
            Rejected::DeadlineUnreachable { needs_us, left_us } => Some(needs_us.saturating_sub(left_us)),
            Rejected::EmptyPrompt
            | Rejected::PromptTooLong { .. }
            | Rejected::TooManyChoices { .. }
            | Rejected::TooManyPages { .. }
            | Rejected::Draining => {
                return Refusal { reason, retry_after: None };
            }
        };
        if let Some(us) = room_in_us {
            self.meter.refused(us);
        }
        retry::log(self.live.name(id).as_deref(), reason, &self.scheduler.stats(), foreseen, room_in_us);
        Refusal { reason, retry_after: Some(retry::after(room_in_us, rand::random_range(-1.0..=1.0))) }
    }

    /// When a request will start that has to wait, as far as that is known.
    fn foresee(&self, request: &Request, terms: &Terms) -> Option<Forecast> {
        let stats = self.scheduler.stats();
        if stats.requests_new == 0 && stats.slots_free >= request.spec.choices {
            return None;
        }
        let forecast = self.scheduler.forecast(request, terms, self.clock.now(), &self.pace)?;
        self.meter.foreseen(forecast.start_us);
        Some(forecast)
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
        if self.scheduler.cancel(id) {
            self.deliver(vec![(id, Event::Failed(DEADLINE_PASSED.to_owned()))]);
            self.pump();
        }
    }

    /// What has to happen next: the oldest step ends, or one is planned for requests that are there.
    fn awaited(&self) -> Option<Awaited> {
        let step = self.steps.front().map(|step| Awaited::Step { id: step.id, predicted_us: step.predicted });
        step.or_else(|| (!self.scheduler.is_idle()).then_some(Awaited::Plan))
    }

    fn tell(&mut self) {
        self.watch.expect(self.awaited());
        self.meter.keeps(self.scheduler.prefix_stats());
        self.meter.stands(self.scheduler.stats(), self.scheduler.waiting_by_key());
        self.meter.drafted(self.scheduler.draft_totals());
    }
}

/// Starts another actor for a source, and says whose requests the last one knew.
fn restarted<S: LateSource>(users: &mut LateUsers<S>, reports: Reports) -> Vec<RequestId> {
    let failed = users.take_all();
    users.start(reports);
    failed
}

impl Watchful for SchedulerActor {
    fn vigil(&mut self) -> &mut Vigil {
        &mut self.vigil
    }
}

impl Actor for SchedulerActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.set_mailbox_capacity(limits::MAILBOX_MESSAGES);
        self.tables.start(self.reports(&ctx.address()));
        self.grammars.start(self.reports(&ctx.address()));
        self.alarm = match Alarm::start(ctx.address().recipient()) {
            Ok(alarm) => Some(alarm),
            Err(e) => {
                tracing::warn!(error = %e, "no thread for the alarm; steps are planned as soon as they can be, and new prompts wait longer");
                None
            }
        };
    }
}

impl Handler<Submit> for SchedulerActor {
    type Result = Result<(), Refusal>;

    fn handle(&mut self, msg: Submit, ctx: &mut Context<Self>) -> Self::Result {
        let Submit { request, terms, events, tables, grammar, warm_up } = msg;
        let (id, unfinished, prompt, now) =
            (request.id, request.spec.choices, request.prompt.clone(), self.clock.now());
        let uncounted = if warm_up { prompt.len() as u64 } else { 0 };
        let followed = [tables.as_ref().map(|_| Source::Tables), grammar.as_ref().map(|_| Source::Grammar)];
        let followed: Sources = followed.into_iter().flatten().collect();
        debug_assert_eq!(request.spec.waits_for, followed, "who waits for a source is followed by it");
        let foreseen = self.foresee(&request, &terms);
        self.scheduler
            .admit_under(request, &terms, now, &self.pace)
            .map_err(|reason| self.refuse(id, reason, foreseen))?;
        let foreseen_us = foreseen.map(|forecast| forecast.start_us);
        self.meter.leave_out(uncounted);
        self.streams.insert(id, Stream { events, started: false, unfinished, foreseen_us });
        if let Some(first) = self.scheduler.first_sequence(id) {
            grammar.into_iter().for_each(|g| self.grammars.follow(id, first, unfinished, prompt.clone(), g));
            tables.into_iter().for_each(|t| self.tables.follow(id, first, unfinished, prompt.clone(), t));
        }
        if let Some(deadline) = terms.deadline {
            self.deadlines.insert(id, Instant::now() + Duration::from_micros(deadline.since(now).0));
            self.watch_deadlines(ctx);
        }
        self.pump();
        Ok(())
    }
}

impl Handler<Cancel> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, msg: Cancel, _: &mut Context<Self>) {
        match msg {
            Cancel::Request(id, seen) => {
                self.scheduler.cancel(id);
                // A request that has ended has no stream left, and nothing to free.
                if self.streams.contains_key(&id) {
                    self.forget(id);
                    self.meter.cancelled(self.clock.now().since(seen));
                }
            }
            Cancel::Choice(id, choice) => {
                if self.scheduler.cancel_choice(id, choice)
                    && let Some(stream) = self.streams.get_mut(&id)
                {
                    stream.unfinished -= 1;
                    if stream.unfinished == 0 {
                        self.forget(id);
                    }
                }
            }
        }
        self.pump();
    }
}

impl Handler<StepDone> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, StepDone(outcome): StepDone, ctx: &mut Context<Self>) {
        match outcome {
            Ok(outcome) => {
                self.note_answers();
                // After the streams were ended a late step means nothing to anybody.
                let Some(step) = self.steps.pop_front() else { return };
                let (events, ended) = self.commit(step, outcome);
                self.pump();
                self.meter.ended(&ended, &self.pace);
                if self.steps.iter().any(|step| step.shape.late || step.shape.guess_rows > 0) {
                    self.stay_awake(ctx);
                }
                self.deliver(events);
            }
            Err(e) => self.lose(&e.to_string()),
        }
    }
}

impl Handler<EngineOverdue> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, EngineOverdue(why): EngineOverdue, _: &mut Context<Self>) {
        let awaits = self.steps.front().map_or(Sources::NONE, |step| step.awaits);
        let sources: Vec<_> = awaits.iter().map(Source::name).collect();
        let why = if sources.is_empty() { why } else { format!("{why}; it waits for {}", sources.join(" and ")) };
        self.lose(&why);
    }
}

impl Handler<PlanDue> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, _: PlanDue, _: &mut Context<Self>) {
        self.pump();
    }
}

impl Handler<RulesSent> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, msg: RulesSent, _: &mut Context<Self>) {
        self.note_answer(&msg);
        if msg.source == Source::Grammar && self.scheduler.takes_runs() {
            msg.forced.into_iter().for_each(|run| self.scheduler.note_run(run));
            self.pump();
        }
    }
}

impl Handler<LateFailed> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, LateFailed { seq, why }: LateFailed, _: &mut Context<Self>) {
        if let Some(id) = self.grammars.request_of(seq) {
            tracing::warn!(request = self.live.name(id).as_deref(), why, "ended");
            self.scheduler.cancel(id);
            self.deliver(vec![(id, Event::Failed(why))]);
            self.pump();
        }
    }
}

impl Handler<LateLost> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, LateLost(source): LateLost, ctx: &mut Context<Self>) {
        self.replace(source, &ctx.address());
    }
}

impl Handler<Open> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, _: Open, _: &mut Context<Self>) {
        self.go(Phase::Ready);
    }
}

impl Handler<Drain> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, msg: Drain, ctx: &mut Context<Self>) {
        self.scheduler.drain();
        self.go(Phase::Draining);
        ctx.run_later(msg.within, |this, _| {
            if *this.phase.borrow() == Phase::Draining {
                this.end_all(SHUTTING_DOWN);
                this.go(Phase::Drained);
            }
        });
        self.pump();
    }
}

//! The scheduler actor: the engine's [`Scheduler`], told the time, and the channels that its events go into.
//!
//! It decides nothing itself. A message becomes a call, the call's events go out, and then as many steps are planned and launched as
//! may be in flight: the first at once, the second when the first is about to end, so that who comes meanwhile is in it.

use super::alarm::Alarm;
use super::engine::EngineActor;
use super::guided::Guided;
use super::live::Live;
use super::messages::{Cancel, Drain, EditsSent, EngramLost, Launch, Open, PlanDue, Refusal, StepDone, Submit, Told};
use super::phase::{DEADLINE_PASSED, Phase, SHUTTING_DOWN};
use super::retry;
use crate::clock::Clock;
use crate::metrics::gateway::Gateway;
use crate::metrics::keys::Waiting;
use crate::{limits, metrics};
use actix::prelude::*;
use chimere_engine::engram::Awaiting;
use chimere_engine::ids::{Micros, RequestId, StepId};
use chimere_engine::scheduler::{
    Event, Pace, Rejected, Request, RequestTimes, Scheduler, SchedulerConfig, Stats, StepShape, Terms,
};
use chimere_engine::step::{Form, StepOutcome, StepPlan};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// What a client is told whose stream broke with the tables' thread.
const ENGRAM_LOST: &str = "the part that looks tables up failed; requests without tables go on";

/// Owns the scheduler and the sending ends of all event channels.
pub struct SchedulerActor {
    scheduler: Scheduler,
    /// Positions that one step may compute.
    step_tokens: u32,
    engine: Addr<EngineActor>,
    streams: HashMap<RequestId, Stream>,
    guided: Guided,
    phase: watch::Sender<Phase>,
    live: Live,
    clock: Clock,
    steps: VecDeque<Launched>,
    /// `None` before the start, and where there is no thread for it: then nothing is planned late.
    alarm: Option<Alarm>,
    /// The step for whose end the alarm was set.
    alarm_for: Option<StepId>,
    /// Targets, and what steps take.
    pace: Pace,
    waiting: Waiting,
    /// When the last step was committed: a step's share of the engine begins there or at its own launch, whichever is later.
    committed: Micros,
    told: Stats,
    gateway: Arc<Gateway>,
    /// Prompt tokens of the warm-up, which nobody asked for.
    uncounted: u64,
}

/// Where a request's events go.
struct Stream {
    events: mpsc::Sender<Told>,
    started: bool,
    /// Choices without their last event; the stream is closed with the last one.
    unfinished: u32,
    /// Time to its first step as it was predicted, microseconds; `None` if it had not to wait or nobody knew.
    foreseen_us: Option<u64>,
}

impl Stream {
    /// Sends an event, before the first one also the times. A request that ended within its first commit has them in its last event
    /// alone: then the start is told with that.
    fn send(&mut self, event: Event, times: Option<RequestTimes>) -> Result<(), mpsc::error::TrySendError<Told>> {
        if let Some(times) = times.filter(|t| t.started.is_some() && !self.started) {
            self.started = true;
            compare(self.foreseen_us, &times);
            self.events.try_send(Told::Started(times))?;
        }
        self.events.try_send(Told::Event(event))
    }
}

/// A step that the engine has and we have not heard back from.
struct Launched {
    id: StepId,
    kind: &'static str,
    shape: StepShape,
    /// Microseconds that it should take; `None` while that is not known.
    predicted: Option<f64>,
    at: Micros,
    /// Decode rows that sat it out.
    rows_out: u64,
    /// Its sampler waits for edits.
    awaits: bool,
    /// When they were ready.
    edits_at: Option<Micros>,
}

impl Launched {
    /// Counts edits that came after the forward was over. A step's forward begins when the step before is done or at its own launch.
    fn count_late(&self, committed: Micros, forward_us: u64) {
        let forward_end = Micros(committed.max(self.at).0 + forward_us);
        if let Some(late) = self.edits_at.map(|at| at.since(forward_end)).filter(|late| late.0 > 0) {
            ::metrics::counter!(metrics::ENGRAM_LATE).increment(1);
            ::metrics::histogram!(metrics::ENGRAM_LATE_SECONDS).record(late.0 as f64 / 1e6);
        }
    }
}

impl SchedulerActor {
    /// Plans for `engine`, within `config` and `pace`.
    #[expect(clippy::too_many_arguments, reason = "each is a thing of its own")]
    pub fn new(
        config: SchedulerConfig,
        pace: Pace,
        engine: Addr<EngineActor>,
        guided: Guided,
        phase: watch::Sender<Phase>,
        live: Live,
        clock: Clock,
        gateway: Arc<Gateway>,
    ) -> Self {
        Self {
            step_tokens: config.step_tokens,
            scheduler: Scheduler::new(config),
            engine,
            streams: HashMap::new(),
            guided,
            phase,
            live,
            clock,
            steps: VecDeque::new(),
            alarm: None,
            alarm_for: None,
            pace,
            waiting: Waiting::default(),
            committed: Micros(0),
            told: Stats::default(),
            gateway,
            uncounted: 0,
        }
    }

    /// Launches what may be launched, then says how things stand.
    fn pump(&mut self) {
        while let Some((plan, rows_out)) = self.plan() {
            let awaiting = Awaiting::of(&plan);
            let shape = self.pace.shape(&plan);
            self.steps.push_back(Launched {
                id: plan.id,
                kind: kind(&plan),
                shape,
                predicted: self.pace.cost.predict(&shape),
                at: self.clock.now(),
                rows_out,
                awaits: awaiting.is_some(),
                edits_at: None,
            });
            if self.engine.try_send(Launch(plan)).is_err() {
                self.lose("the engine thread is gone");
                return;
            }
            // Only now, or the edits could be with the engine before the step is.
            awaiting.into_iter().for_each(|step| self.guided.launched(step));
        }
        self.tell();
        if *self.phase.borrow() == Phase::Draining && self.scheduler.is_idle() {
            self.go(Phase::Drained);
        }
    }

    /// The next step if it is time for it, and how many decode rows sit it out.
    fn plan(&mut self) -> Option<(StepPlan, u64)> {
        if self.is_early() {
            return None;
        }
        let before = self.scheduler.rows_sat_out();
        let plan = self.scheduler.plan_within(self.clock.now(), &self.pace)?;
        let rows_out = self.scheduler.rows_sat_out() - before;
        ::metrics::counter!(metrics::ROWS_SAT_OUT).increment(rows_out);
        Some((plan, rows_out))
    }

    /// Is it too early to plan beside the step that runs? Then the alarm rings when it no more is. It may ring late or never: the step's
    /// end comes too, and then there is nothing to wait for.
    fn is_early(&mut self) -> bool {
        let (Some(step), Some(alarm), 1) = (self.steps.front(), &self.alarm, self.steps.len()) else { return false };
        let (now, began) = (self.clock.now(), self.committed.max(step.at));
        let left = self.pace.plan_at(began, step.predicted).since(now);
        if left.0 > 0 && self.alarm_for != Some(step.id) {
            alarm.set(Duration::from_micros(left.0));
            self.alarm_for = Some(step.id);
        }
        left.0 > 0
    }

    fn commit(&mut self, outcome: StepOutcome) {
        let now = self.clock.now();
        if let Some(step) = self.steps.pop_front() {
            debug_assert_eq!(Some(step.id), outcome.id, "steps come back in order");
            let took = outcome.timing.forward_us + outcome.timing.sample_us;
            ::metrics::histogram!(metrics::STEP_SECONDS, "kind" => step.kind).record(took as f64 / 1e6);
            ::metrics::histogram!(metrics::BATCH_ROWS).record(f64::from(step.shape.rows + step.shape.prompt_rows));
            ::metrics::counter!(metrics::STEP_ROWS, "form" => "prompt").increment(step.shape.prompt_rows.into());
            ::metrics::counter!(metrics::STEP_ROWS, "form" => "decode").increment(step.shape.rows.into());
            ::metrics::counter!(metrics::GRAPH_REPLAYS).increment(outcome.graph_replays.into());
            self.count_budget(&step);
            ::metrics::counter!(metrics::MOE_ROWS).increment(outcome.experts.rows);
            ::metrics::counter!(metrics::MOE_EXPERTS).increment(outcome.experts.experts);
            step.count_late(self.committed, outcome.timing.forward_us);
            self.learn(&step, now.since(self.committed.max(step.at)));
            self.committed = now;
        }
        let events = self.scheduler.commit(outcome, now);
        self.deliver(events);
    }

    fn count_budget(&self, step: &Launched) {
        let positions = step.shape.rows + step.shape.prompt_rows;
        let share = f64::from(positions) / f64::from(self.step_tokens);
        ::metrics::histogram!(metrics::STEP_BUDGET, "of" => "positions").record(share);
        // Without somebody who waits for a token there is no target to keep.
        if let Some(predicted) = step.predicted.filter(|_| step.shape.rows > 0 && self.pace.target_us > 0) {
            ::metrics::histogram!(metrics::STEP_BUDGET, "of" => "time").record(predicted / self.pace.target_us as f64);
        }
    }

    /// Compares what a step took with what was predicted, then learns from it. Its time is that between commits, because that is what a
    /// stream sees.
    fn learn(&mut self, step: &Launched, took: Micros) {
        let took_us = took.0 as f64;
        if let Some(predicted) = step.predicted {
            ::metrics::histogram!(metrics::STEP_PREDICTED, "kind" => step.kind).record(predicted / 1e6);
            ::metrics::histogram!(metrics::STEP_RATIO, "kind" => step.kind).record(predicted / took_us.max(1.0));
        }
        let (prompts, decodes) = (step.shape.prompt_rows > 0, step.shape.rows > 0);
        if step.rows_out > 0 {
            ::metrics::histogram!(metrics::DECODE_STALL).record(took_us / 1e6);
        } else if let Some(without) = self.pace.cost.predict(&step.shape.without_prompts()).filter(|_| prompts && decodes) {
            ::metrics::histogram!(metrics::DECODE_STALL).record((took_us - without).max(0.0) / 1e6);
        }
        self.pace.cost.observe(&step.shape, took);
    }

    /// Hands events to their requests. A channel never is full, because it was sized at admission; a closed one means that the
    /// request's actor is gone, which its Cancel says too, only later.
    fn deliver(&mut self, events: Vec<(RequestId, Event)>) {
        for (id, event) in events {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let mut times = self.scheduler.times(id);
            match &event {
                Event::Finished { times: last, .. } => {
                    stream.unfinished -= 1;
                    times = Some(*last);
                }
                Event::Failed(_) => stream.unfinished = 0,
                _ => {}
            }
            let sent = stream.send(event, times);
            debug_assert!(!matches!(sent, Err(mpsc::error::TrySendError::Full(_))), "request {id} caused more events than it may");
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
        self.guided.forget(id);
    }

    /// The Engram actor died: the requests that use tables end, the others go on, and there is another one for those to come.
    fn replace_engram(&mut self, own: Addr<Self>) {
        let failed = self.guided.take_all();
        tracing::error!(requests = failed.len(), "the Engram actor is gone; another one is started");
        ::metrics::counter!(metrics::ENGRAM_RESTARTS).increment(1);
        self.guided.start(own);
        for id in failed {
            self.scheduler.cancel(id);
            self.deliver(vec![(id, Event::Failed(ENGRAM_LOST.to_owned()))]);
        }
        // Every row that awaits edits belonged to one of those; without an answer its step would never end, nor the ones behind it.
        for step in self.steps.iter_mut().filter(|s| s.awaits && s.edits_at.is_none()) {
            step.edits_at = Some(self.clock.now());
            self.guided.answer_for(step.id);
        }
        self.pump();
    }

    fn go(&self, next: Phase) {
        self.phase.send_if_modified(|phase| phase.advance(next));
    }

    /// When a refused caller should come back, if its reason passes.
    fn refuse(&self, reason: Rejected) -> Refusal {
        let room_in_us = match reason {
            Rejected::QueueFull { .. } | Rejected::QueueTokensFull { .. } | Rejected::KeyBusy { .. } => {
                self.scheduler.room_in_us(&self.pace)
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
            ::metrics::histogram!(metrics::REFUSED_WAIT).record(us as f64 / 1e6);
        }
        Refusal { reason, retry_after: Some(retry::after(room_in_us, rand::random_range(-1.0..=1.0))) }
    }

    /// The predicted wait of a request that has to.
    fn foresee(&self, request: &Request, terms: &Terms) -> Option<u64> {
        let stats = self.scheduler.stats();
        if stats.requests_new == 0 && stats.slots_free >= request.choices {
            return None;
        }
        let forecast = self.scheduler.forecast(request, terms, &self.pace)?;
        ::metrics::histogram!(metrics::PREDICTED_WAIT).record(forecast.start_us as f64 / 1e6);
        Some(forecast.start_us)
    }

    /// Ends a request whose deadline has passed, if it still lives.
    fn expire(&mut self, id: RequestId) {
        if self.scheduler.cancel(id) {
            self.deliver(vec![(id, Event::Failed(DEADLINE_PASSED.to_owned()))]);
            self.pump();
        }
    }

    /// Gauges as they are, counters by what was added since the last time.
    fn tell(&mut self) {
        let mut now = self.scheduler.stats();
        // A request that started before the warm-up was admitted has been told in full; what is told never falls.
        now.prompt_tokens_total = now.prompt_tokens_total.saturating_sub(self.uncounted).max(self.told.prompt_tokens_total);
        ::metrics::gauge!(metrics::REQUESTS_RUNNING).set(f64::from(now.requests_running));
        ::metrics::gauge!(metrics::REQUESTS_WAITING).set(f64::from(now.requests_waiting));
        ::metrics::gauge!(metrics::KV_PAGES, "state" => "used").set(f64::from(now.pages_used));
        ::metrics::gauge!(metrics::KV_PAGES, "state" => "free").set(f64::from(now.pages_free));
        ::metrics::gauge!(metrics::STATE_SLOTS, "state" => "used").set(f64::from(now.slots_used));
        ::metrics::gauge!(metrics::STATE_SLOTS, "state" => "free").set(f64::from(now.slots_free));
        let preemptions = now.preemptions_total - self.told.preemptions_total;
        let prompt_tokens = now.prompt_tokens_total - self.told.prompt_tokens_total;
        ::metrics::counter!(metrics::PREEMPTIONS).increment(preemptions);
        ::metrics::counter!(metrics::PROMPT_TOKENS).increment(prompt_tokens);
        self.waiting.tell(&now, self.scheduler.waiting_by_key());
        self.gateway.stands(&now, preemptions, prompt_tokens);
        self.told = now;
    }
}

/// Tells how good a prediction was. Waits that are shorter than a step or two are chance.
fn compare(foreseen_us: Option<u64>, times: &RequestTimes) {
    let actual_us = times.started.map_or(0, |started| started.since(times.admitted).0);
    if let Some(foreseen_us) = foreseen_us.filter(|_| actual_us > 50_000) {
        ::metrics::histogram!(metrics::WAIT_RATIO).record(foreseen_us as f64 / actual_us as f64);
    }
}

/// What a step mostly is, for its time's label.
fn kind(plan: &StepPlan) -> &'static str {
    let prompt = plan.pieces.iter().filter(|p| p.form == Form::Chunked).count();
    match prompt {
        0 => "decode",
        n if n == plan.pieces.len() => "prefill",
        _ => "mixed",
    }
}

impl Actor for SchedulerActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.set_mailbox_capacity(limits::MAILBOX_MESSAGES);
        self.guided.start(ctx.address());
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
        let Submit { request, terms, events, guidance, warm_up } = msg;
        let (id, unfinished, prompt, now) = (request.id, request.choices, request.prompt.clone(), self.clock.now());
        let uncounted = if warm_up { prompt.len() as u64 } else { 0 };
        debug_assert_eq!(request.awaits_edits, guidance.is_some(), "who awaits edits is followed by those who make them");
        let foreseen_us = self.foresee(&request, &terms);
        self.scheduler.admit_under(request, &terms, now, &self.pace).map_err(|reason| self.refuse(reason))?;
        self.uncounted += uncounted;
        self.streams.insert(id, Stream { events, started: false, unfinished, foreseen_us });
        if let Some((guidance, first)) = guidance.zip(self.scheduler.first_sequence(id)) {
            self.guided.follow(id, first, unfinished, prompt, guidance);
        }
        if let Some(deadline) = terms.deadline {
            ctx.run_later(Duration::from_micros(deadline.since(now).0), move |this, _| this.expire(id));
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
                    ::metrics::histogram!(metrics::CANCEL_SECONDS).record(self.clock.now().since(seen).0 as f64 / 1e6);
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

    fn handle(&mut self, StepDone(outcome): StepDone, _: &mut Context<Self>) {
        match outcome {
            // After the streams were ended a late step means nothing to anybody.
            Ok(_) if self.steps.is_empty() => {}
            Ok(outcome) => {
                self.commit(outcome);
                self.pump();
            }
            Err(e) => self.lose(&e.to_string()),
        }
    }
}

impl Handler<PlanDue> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, _: PlanDue, _: &mut Context<Self>) {
        self.pump();
    }
}

impl Handler<EditsSent> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, msg: EditsSent, _: &mut Context<Self>) {
        if let Some(step) = self.steps.iter_mut().find(|s| s.id == msg.step) {
            step.edits_at = Some(msg.at);
        }
    }
}

impl Handler<EngramLost> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, _: EngramLost, ctx: &mut Context<Self>) {
        self.replace_engram(ctx.address());
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

//! The scheduler actor: the engine's [`Scheduler`], told the time, and the channels that its events go into.
//!
//! It decides nothing itself. A message becomes a call, the call's events go out, and then as many steps are planned and launched as
//! may be in flight.

use super::engine::EngineActor;
use super::guided::Guided;
use super::live::Live;
use super::messages::{Cancel, Drain, EditsSent, EngramLost, Launch, Open, Refusal, SampleWith, StepDone, Submit, Told};
use super::phase::{Phase, SHUTTING_DOWN};
use super::retry::{self, Rate};
use crate::clock::Clock;
use crate::metrics::gateway::Gateway;
use crate::{limits, metrics};
use actix::prelude::*;
use chimere_engine::engram::Awaiting;
use chimere_engine::ids::{Micros, RequestId, StepId};
use chimere_engine::scheduler::{Event, Rejected, RequestTimes, Scheduler, SchedulerConfig, Stats};
use chimere_engine::step::{Form, LogitEdits, StepOutcome, StepPlan};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// What a client is told whose stream broke with the tables' thread.
const ENGRAM_LOST: &str = "the part that looks tables up failed; requests without tables go on";

/// Owns the scheduler and the sending ends of all event channels.
pub struct SchedulerActor {
    scheduler: Scheduler,
    engine: Addr<EngineActor>,
    streams: HashMap<RequestId, Stream>,
    guided: Guided,
    phase: watch::Sender<Phase>,
    live: Live,
    clock: Clock,
    steps: VecDeque<Launched>,
    rate: Rate,
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
}

impl Stream {
    /// Sends an event, before the first one also the times. A request that ended within its first commit has them in its last event
    /// alone: then the start is told with that.
    fn send(&mut self, event: Event, times: Option<RequestTimes>) -> Result<(), mpsc::error::TrySendError<Told>> {
        if let Some(times) = times.filter(|t| t.started.is_some() && !self.started) {
            self.started = true;
            self.events.try_send(Told::Started(times))?;
        }
        self.events.try_send(Told::Event(event))
    }
}

/// A step that the engine has and we have not heard back from.
struct Launched {
    id: StepId,
    kind: &'static str,
    rows: u32,
    at: Micros,
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
    /// Plans for `engine`, within `config`.
    pub fn new(
        config: SchedulerConfig,
        engine: Addr<EngineActor>,
        guided: Guided,
        phase: watch::Sender<Phase>,
        live: Live,
        clock: Clock,
        gateway: Arc<Gateway>,
    ) -> Self {
        Self {
            scheduler: Scheduler::new(config),
            engine,
            streams: HashMap::new(),
            guided,
            phase,
            live,
            clock,
            steps: VecDeque::new(),
            rate: Rate::default(),
            committed: Micros(0),
            told: Stats::default(),
            gateway,
            uncounted: 0,
        }
    }

    /// Launches what may be launched, then says how things stand.
    fn pump(&mut self) {
        while let Some(plan) = self.scheduler.plan(self.clock.now()) {
            let awaiting = Awaiting::of(&plan);
            self.steps.push_back(Launched {
                id: plan.id,
                kind: kind(&plan),
                rows: plan.pieces.iter().map(|p| p.len()).sum(),
                at: self.clock.now(),
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

    fn commit(&mut self, outcome: StepOutcome) {
        let now = self.clock.now();
        if let Some(step) = self.steps.pop_front() {
            debug_assert_eq!(Some(step.id), outcome.id, "steps come back in order");
            let took = outcome.timing.forward_us + outcome.timing.sample_us;
            ::metrics::histogram!(metrics::STEP_SECONDS, "kind" => step.kind).record(took as f64 / 1e6);
            ::metrics::histogram!(metrics::BATCH_ROWS).record(f64::from(step.rows));
            step.count_late(self.committed, outcome.timing.forward_us);
            self.rate.add(step.rows, now.since(self.committed.max(step.at)));
            self.committed = now;
        }
        let events = self.scheduler.commit(outcome, now);
        self.deliver(events);
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
        self.end_all("the engine is lost");
        self.go(Phase::Lost(why.to_owned()));
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
            self.engine.do_send(SampleWith { step: step.id, edits: LogitEdits::default() });
        }
        self.pump();
    }

    fn go(&self, next: Phase) {
        self.phase.send_if_modified(|phase| phase.advance(next));
    }

    fn refuse(&self, reason: Rejected) -> Refusal {
        let passes = matches!(reason, Rejected::QueueFull { .. } | Rejected::QueueTokensFull { .. });
        let retry_after = passes.then(|| {
            let jitter = rand::random_range(-1.0..=1.0);
            retry::after(self.scheduler.stats().prompt_tokens_waiting, self.rate, jitter)
        });
        Refusal { reason, retry_after }
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
        self.gateway.stands(&now, preemptions, prompt_tokens);
        self.told = now;
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
    }
}

impl Handler<Submit> for SchedulerActor {
    type Result = Result<(), Refusal>;

    fn handle(&mut self, msg: Submit, _: &mut Context<Self>) -> Self::Result {
        let (id, unfinished) = (msg.request.id, msg.request.choices);
        let (uncounted, prompt) = (if msg.warm_up { msg.request.prompt.len() as u64 } else { 0 }, msg.request.prompt.clone());
        debug_assert_eq!(msg.request.awaits_edits, msg.guidance.is_some(), "who awaits edits is followed by those who make them");
        self.scheduler.admit(msg.request, self.clock.now()).map_err(|reason| self.refuse(reason))?;
        self.uncounted += uncounted;
        self.streams.insert(id, Stream { events: msg.events, started: false, unfinished });
        if let Some((guidance, first)) = msg.guidance.zip(self.scheduler.first_sequence(id)) {
            self.guided.follow(id, first, unfinished, prompt, guidance);
        }
        self.pump();
        Ok(())
    }
}

impl Handler<Cancel> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, msg: Cancel, _: &mut Context<Self>) {
        match msg {
            Cancel::Request(id) => {
                self.scheduler.cancel(id);
                self.forget(id);
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

//! The pipeline of one engine: the steps in flight, when the next one is planned, and what a finished one teaches.
//!
//! Whoever drives it asks [`Pipeline::next`] until there is nothing more to launch, hands each plan to the engine, says
//! so with [`Pipeline::launched`], and brings each outcome to [`Pipeline::done`]. Time is an argument, and nothing is
//! global: several engines have a pipeline each.

use super::forecast::Forecast;
use super::policy::cost::{Pace, StepShape};
use super::policy::ledger::Terms;
use super::request::{Event, Rejected, Request};
use super::{
    DraftSettings, FlushedEntries, KeyLedger, MigratedRequest, PrefixChange, ReplicaLoad, Scheduler, SchedulerConfig,
};
use crate::constraint::grammar::ForcedRun;
use crate::constraint::{Source, Sources};
use crate::ids::{Micros, RequestId, StepId};
use crate::step::{StepOutcome, StepPlan};
use std::collections::VecDeque;
use std::sync::Arc;

/// A scheduler, and the steps of one engine between their launch and their outcome.
#[derive(Debug)]
pub struct Pipeline {
    pub(super) scheduler: Scheduler,
    /// The targets, and the duration of steps as far as it is known.
    pub(super) pace: Pace,
    /// Launched steps without an outcome, oldest first.
    steps: VecDeque<StepInFlight>,
    /// When the last step was committed: a step's share of the engine begins there or at its own launch, whichever is
    /// later.
    committed: Micros,
    /// Since when the engine has had nothing to do, while the step that it waits for is being planned.
    idle_since: Option<Micros>,
    /// Decode rows that had paused before the last launch, since the start.
    paused_rows: u64,
}

/// The answer to the question for the next step.
#[derive(Debug)]
pub enum NextStep {
    /// The engine should run this, which [`Pipeline::launched`] has to hear of.
    Launch(StepPlan),
    /// It is too early to plan behind the only step in flight.
    Later {
        /// The step in flight. Its end is the time to ask again, if that comes first.
        behind: StepId,
        /// Time until the next step should be planned.
        after: Micros,
    },
    /// Nothing can be planned before an outcome, a request or the answer of a deferred source comes.
    Nothing,
}

/// A step that the engine has and that has not come back yet.
#[derive(Clone, Debug)]
pub struct StepInFlight {
    /// The number of the step.
    pub id: StepId,
    /// What it computes, as far as its duration depends on it.
    pub shape: StepShape,
    /// Its expected duration in microseconds; `None` while that is not known.
    pub predicted_us: Option<f64>,
    /// When it was launched.
    pub launched: Micros,
    /// The step that was in flight right before it, if there was one.
    pub behind: Option<StepId>,
    /// Decode rows that paused for it.
    pub paused_rows: u64,
    /// Sources that its sampler waits for and that have not answered.
    pub awaits: Sources,
    /// When the rules of the tables were ready.
    pub tables_at: Option<Micros>,
    /// Since when the engine had nothing to do, if it waited for this step to be planned.
    idle_since: Option<Micros>,
    /// All of its rows are of idle work: it was planned for an idle engine.
    is_idle: bool,
}

/// A step that came back.
#[derive(Debug)]
pub struct FinishedStep {
    /// As it was in flight.
    pub step: StepInFlight,
    /// When the engine began with it: when the step before was done, or at its own launch.
    pub began: Micros,
    /// From there to its end, which is the time that a stream sees.
    pub took: Micros,
}

impl Pipeline {
    /// An idle pipeline around a scheduler within these bounds, with what is drafted.
    pub fn new(config: SchedulerConfig, drafts: DraftSettings, pace: Pace) -> Self {
        Self::around(Scheduler::new(config).with_drafts(drafts), pace)
    }

    /// An idle pipeline around an idle scheduler.
    pub fn around(scheduler: Scheduler, pace: Pace) -> Self {
        let steps = VecDeque::with_capacity(scheduler.config.steps_in_flight_max as usize);
        Self { scheduler, pace, steps, committed: Micros(0), idle_since: None, paused_rows: 0 }
    }

    /// This idle pipeline with keys whose limits and shares hold over all pipelines of the ledger.
    #[must_use]
    pub fn with_ledger(self, ledger: Arc<KeyLedger>) -> Self {
        Self { scheduler: self.scheduler.with_ledger(ledger), ..self }
    }

    /// Plans each step at once from now on, as where nothing can ring when it is time to plan late.
    pub fn plan_at_once(&mut self) {
        self.pace.ahead_us = 0;
    }

    /// What to do now: launch a step, come back later, or wait for a message.
    pub fn next(&mut self, now: Micros) -> NextStep {
        if self.awaits_runs() {
            return self.nothing();
        }
        if let Some((behind, after)) = self.time_to_wait(now) {
            self.idle_since = None;
            return NextStep::Later { behind, after };
        }
        match self.scheduler.plan_within(now, &self.pace) {
            Some(plan) => NextStep::Launch(plan),
            None => self.nothing(),
        }
    }

    fn nothing(&mut self) -> NextStep {
        self.idle_since = None;
        NextStep::Nothing
    }

    /// Has a step been launched whose grammars have not answered? With the answer comes which outputs they leave no
    /// choice of, and these take one step if they are known when it is planned. The answer comes early in the forward,
    /// and without it that step would not end.
    fn awaits_runs(&self) -> bool {
        self.scheduler.takes_runs() && self.steps.iter().any(|step| step.awaits.contains(Source::Grammar))
    }

    /// The only step in flight, and how long it is too early to plan beside it, if it is.
    fn time_to_wait(&self, now: Micros) -> Option<(StepId, Micros)> {
        let step = self.steps.front().filter(|_| self.steps.len() == 1)?;
        let left = self.pace.plan_at(step.began(self.committed), step.predicted_us).since(now);
        (left.0 > 0).then_some((step.id, left))
    }

    /// The plan of [`NextStep::Launch`] goes to the engine now.
    pub fn launched(&mut self, plan: &StepPlan, now: Micros) -> &StepInFlight {
        let shape = self.pace.shape(plan);
        let paused = self.scheduler.paused_rows();
        self.steps.push_back(StepInFlight {
            id: plan.id,
            shape,
            predicted_us: self.pace.cost.predict(&shape),
            launched: now,
            behind: self.steps.back().map(|step| step.id),
            paused_rows: paused - std::mem::replace(&mut self.paused_rows, paused),
            awaits: plan.waits_for(),
            tables_at: None,
            idle_since: self.idle_since.take(),
            is_idle: self.scheduler.in_flight.back().is_some_and(|step| step.is_idle),
        });
        self.steps.back().expect("it was put there just now")
    }

    /// The outcome of the oldest step in flight came: its events, and what it was. `None` if no step is in flight any
    /// more, because all requests have failed.
    pub fn done(&mut self, outcome: StepOutcome, now: Micros) -> Option<(Vec<(RequestId, Event)>, FinishedStep)> {
        let step = self.steps.pop_front()?;
        debug_assert_eq!(Some(step.id), outcome.id, "steps come back in order");
        let began = step.began(self.committed);
        let took = now.since(began);
        self.learn(&step, took, now, Micros(outcome.timing.guess_us));
        self.committed = now;
        self.idle_since = self.steps.is_empty().then_some(now);
        let events = self.scheduler.commit(outcome, now);
        Some((events, FinishedStep { step, began, took }))
    }

    /// Learns from the duration of a step, of which `guesses` went to the draft head.
    fn learn(&mut self, step: &StepInFlight, took: Micros, now: Micros, guesses: Micros) {
        let (cost, shape) = (&mut self.pace.cost, &step.shape);
        let beside = |took: Micros| Micros(took.0.saturating_sub(guesses.0));
        match step.idle_since {
            // Nobody planned it ahead, and nobody waited for it.
            _ if step.is_idle => cost.observe_unusual(shape, took),
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

    /// A deferred source has answered what a step waits for; its rules were ready then.
    pub fn answered(&mut self, step: StepId, source: Source, at: Micros) {
        if let Some(step) = self.steps.iter_mut().find(|s| s.id == step) {
            step.awaits = step.awaits.without(Sources::only(source));
            if source == Source::Tables {
                step.tables_at = Some(at);
            }
        }
    }

    /// A deferred source will answer no step in flight any more: those that wait for it go on without.
    pub fn give_up(&mut self, source: Source) -> Vec<StepId> {
        let waiting = self.steps.iter_mut().filter(|step| step.awaits.contains(source));
        let without = waiting.map(|step| {
            step.awaits = step.awaits.without(Sources::only(source));
            step.id
        });
        without.collect()
    }

    /// Grammars leave no choice of these outputs. Tells whether the next step can be planned better with that.
    pub fn forced(&mut self, runs: Vec<ForcedRun>) -> bool {
        let wanted = self.scheduler.takes_runs();
        runs.into_iter().filter(|_| wanted).for_each(|run| self.scheduler.note_run(run));
        wanted
    }

    /// Takes a request of a certain key into the queue, or tells why not.
    pub fn admit(&mut self, request: Request, terms: &Terms, now: Micros) -> Result<(), Rejected> {
        self.scheduler.admit_under(request, terms, now, &self.pace)
    }

    /// When a request will start that has to wait, as far as that is known.
    pub fn foresee(&self, request: &Request, terms: &Terms, now: Micros) -> Option<Forecast> {
        if terms.idle {
            return None;
        }
        let stats = self.scheduler.stats();
        if stats.requests_new == 0 && stats.slots_free >= request.spec.choices {
            return None;
        }
        self.scheduler.forecast(request, terms, now, &self.pace)
    }

    /// Ends a request without further events, as [`Scheduler::cancel`] does.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        self.scheduler.cancel(id)
    }

    /// Gives up what the prefix cache keeps, as [`Scheduler::flush_prefix`] does.
    pub fn flush_prefix(&mut self) -> FlushedEntries {
        self.scheduler.flush_prefix()
    }

    /// Notes changes of the prefix cache from now on, as [`Scheduler::note_prefix_changes`] does.
    pub fn note_prefix_changes(&mut self) {
        self.scheduler.note_prefix_changes();
    }

    /// The changes of the prefix cache since the last time, as [`Scheduler::take_prefix_changes`] gives them.
    pub fn take_prefix_changes(&mut self) -> Vec<PrefixChange> {
        self.scheduler.take_prefix_changes()
    }

    /// Ends one choice without further events, as [`Scheduler::cancel_choice`] does.
    pub fn cancel_choice(&mut self, id: RequestId, choice: u32) -> bool {
        self.scheduler.cancel_choice(id, choice)
    }

    /// Admits nothing from now on, and fails idle work, as [`Scheduler::drain`] does.
    pub fn drain(&mut self, why: &str) -> Vec<(RequestId, Event)> {
        self.scheduler.drain(why)
    }

    /// Every live request fails, and outcomes that still come mean nothing. See [`Scheduler::fail`].
    pub fn fail(&mut self, why: &str) -> Vec<(RequestId, Event)> {
        self.steps.clear();
        self.scheduler.fail(why)
    }

    /// The engine is lost: gives all live requests for other pipelines to go on with, and means nothing any more by
    /// outcomes that still come. See [`Scheduler::hand_over`].
    pub fn hand_over(&mut self) -> Vec<MigratedRequest> {
        self.steps.clear();
        self.scheduler.hand_over()
    }

    /// Goes on with a request that another pipeline has handed over. See [`Scheduler::adopt`].
    pub fn adopt(&mut self, migrated: MigratedRequest, now: Micros) -> Result<(), Rejected> {
        self.scheduler.adopt(migrated, now, &self.pace)
    }

    /// May a request of another pipeline go on here? See [`Scheduler::may_adopt`].
    pub fn may_adopt(&self, migrated: &MigratedRequest) -> Result<(), Rejected> {
        self.scheduler.may_adopt(migrated)
    }

    /// How much there is to do, for whoever chooses a pipeline for the next request.
    pub fn load(&self) -> ReplicaLoad {
        self.scheduler.load(&self.pace)
    }

    /// The scheduler, for figures.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// The targets, and the duration of steps as far as it is known.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// The step whose outcome comes next.
    pub fn oldest(&self) -> Option<&StepInFlight> {
        self.steps.front()
    }

    /// Is the next step planned by what one in flight says? Then the engine stands still until its outcome was read.
    pub fn is_serial(&self) -> bool {
        self.steps.iter().any(|step| step.shape.late || step.shape.guess_rows > 0)
    }
}

impl StepInFlight {
    fn began(&self, committed: Micros) -> Micros {
        committed.max(self.launched)
    }
}

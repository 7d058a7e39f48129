//! The steps of one backend from their launch to their outcome, the same for every device: a step whose rows wait for
//! deferred rules is computed up to its logits and holds up those behind it, whose tokens may depend on it.

use super::check::check;
use super::early::EarlyRules;
use super::gathering::Gathering;
use super::{BackendError, BackendInfo, Pending};
use crate::constraint::{Constraint, Sources, StepRules};
use crate::ids::StepId;
use crate::step::{StepOutcome, StepPlan};
use crossbeam::channel::{Sender, bounded};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a backend does of its own: the two halves of a step. [`launch`] and [`constrain`] are the rest of
/// [`super::Backend`].
pub(super) trait StepDevice: Sized {
    /// A step that was computed up to its logits.
    type Forwarded;
    /// A step with its tokens on their way to the host.
    type Finished: Send + 'static;

    /// Whether a finished step is over: the launching thread itself computed it.
    const COMPUTES: bool;

    /// What it can hold.
    fn capacity(&self) -> &BackendInfo;

    /// The steps of the device that have not finished.
    fn steps(&mut self) -> &mut UnfinishedSteps<Self>;

    /// Copies and forward; the sampler too, where `rules` has every row's constraint by then.
    fn forward(&mut self, plan: &StepPlan, rules: &AwaitedRules<'_>) -> Result<Forward<Self>, BackendError>;

    /// The sampler of a step that waited, with a constraint for each sampled row in the order of its samples.
    fn finish(
        &mut self,
        forwarded: Self::Forwarded,
        constraints: &[Constraint],
    ) -> Result<Self::Finished, BackendError>;

    /// Blocks until the tokens are on the host. Called on the thread that waits for the step.
    fn outcome(finished: Self::Finished) -> Result<StepOutcome, BackendError>;
}

/// How far a step came.
pub(super) enum Forward<D: StepDevice> {
    /// Its sampler ran too.
    Finished(D::Finished),
    /// Its sampler waits for rules.
    Waits(D::Forwarded),
}

/// The unfinished steps of a device.
pub(super) struct UnfinishedSteps<D: StepDevice> {
    last: Option<StepId>,
    /// The first waits for rules, the others for the first.
    waiting: VecDeque<WaitingStep<D>>,
    early: Option<Arc<EarlyRules>>,
}

/// A step whose outcome is not there yet.
struct WaitingStep<D: StepDevice> {
    plan: StepPlan,
    rules: Gathering,
    /// `None` while nothing of it is computed.
    forwarded: Option<D::Forwarded>,
    outcome: Sender<Result<D::Finished, BackendError>>,
}

impl<D: StepDevice> Default for UnfinishedSteps<D> {
    fn default() -> Self {
        Self { last: None, waiting: VecDeque::new(), early: None }
    }
}

impl<D: StepDevice> UnfinishedSteps<D> {
    /// From now on the device finds rules there while it computes: [`AwaitedRules::within`].
    pub(super) fn look_for_rules(&mut self, early: Arc<EarlyRules>) {
        early.look();
        self.early = Some(early);
    }
}

/// Launches a step: see [`super::Backend::launch`].
pub(super) fn launch<D: StepDevice>(device: &mut D, plan: StepPlan) -> Result<Pending, BackendError> {
    let id = plan.id;
    if let Some(last) = device.steps().last.filter(|last| *last >= id) {
        return Err(BackendError::Plan { step: id, why: format!("launched after step {last}") });
    }
    check(&plan, device.capacity())?;
    let (outcome, receiver) = bounded(1);
    let steps = device.steps();
    steps.last = Some(id);
    steps.waiting.push_back(WaitingStep { rules: Gathering::of(&plan), plan, forwarded: None, outcome });
    if steps.waiting.len() == 1 {
        advance(device);
    }
    let there = D::COMPUTES && !receiver.is_empty();
    let wait = move || D::outcome(receiver.recv().unwrap_or(Err(BackendError::Lost { step: id }))?);
    Ok(Pending::new(id, wait).that_is(there))
}

/// Takes the rules of a deferred source: see [`super::Backend::constrain`].
pub(super) fn constrain<D: StepDevice>(device: &mut D, rules: StepRules) -> Result<(), BackendError> {
    let step = rules.step;
    let taken = match device.steps().waiting.iter_mut().find(|waiting| waiting.plan.id == step) {
        Some(waiting) => waiting.rules.take(rules),
        None => Err(rules),
    };
    if let Err(rules) = taken {
        return Err(BackendError::Plan { step, why: format!("no row of it awaits rules of {}", rules.source.name()) });
    }
    advance(device);
    Ok(())
}

/// Computes the steps at the head of the queue, up to one that waits for rules.
fn advance<D: StepDevice>(device: &mut D) {
    while let Some(mut first) = device.steps().waiting.pop_front() {
        match proceed(device, &mut first) {
            // A receiver that went away wants no outcome.
            Some(finished) => drop(first.outcome.send(finished)),
            None => return device.steps().waiting.push_front(first),
        }
    }
}

/// Computes of a step what can be computed; `None` if it waits then.
fn proceed<D: StepDevice>(device: &mut D, step: &mut WaitingStep<D>) -> Option<Result<D::Finished, BackendError>> {
    let WaitingStep { plan, rules, forwarded, .. } = step;
    let vocab = device.capacity().vocab;
    if forwarded.is_some() {
        let forwarded = forwarded.take_if(|_| rules.missing().is_empty())?;
        return Some(device.finish(forwarded, &rules.compose(plan, vocab)));
    }
    let early = device.steps().early.clone();
    let awaited = AwaitedRules { plan, vocab, early: early.as_deref(), gathering: Mutex::new(rules) };
    match device.forward(plan, &awaited) {
        Ok(Forward::Finished(finished)) => Some(Ok(finished)),
        Ok(Forward::Waits(waits)) => {
            *forwarded = Some(waits);
            None
        }
        Err(error) => Some(Err(error)),
    }
}

/// What is said about the rows of a step that is being computed: all of it is there, or some is on its way.
pub(super) struct AwaitedRules<'a> {
    plan: &'a StepPlan,
    vocab: u32,
    early: Option<&'a EarlyRules>,
    /// Locked by the one thread of a device that asks.
    gathering: Mutex<&'a mut Gathering>,
}

impl<'a> AwaitedRules<'a> {
    /// A constraint for each sampled row, in the order of the samples, if no rule is missing. Whoever has them must
    /// finish the step.
    pub(super) fn now(&self) -> Option<Vec<Constraint>> {
        self.after(|_, _| Vec::new())
    }

    /// Rules are missing, and they may be found while the step is computed.
    pub(super) fn may_come(&self) -> bool {
        self.early.is_some() && !self.lock().missing().is_empty()
    }

    /// As [`AwaitedRules::now`], after a look for what has come meanwhile. Whoever gets nothing looks again.
    pub(super) fn here(&self) -> Option<Vec<Constraint>> {
        self.after(|early, _| std::iter::from_fn(|| early.take(self.plan.id)).collect())
    }

    /// As [`AwaitedRules::now`], after it has looked for missing rules for so long.
    pub(super) fn within(&self, wait: Duration) -> Option<Vec<Constraint>> {
        self.after(|early, missing| early.take_within(self.plan.id, missing, wait))
    }

    /// As [`AwaitedRules::now`], with what `look` finds of the missing sources.
    fn after(&self, look: impl FnOnce(&EarlyRules, Sources) -> Vec<StepRules>) -> Option<Vec<Constraint>> {
        let mut gathering = self.lock();
        if let Some(early) = self.early {
            // What nobody waits for says nothing about these rows.
            look(early, gathering.missing()).into_iter().for_each(|rules| drop(gathering.take(rules)));
        }
        gathering.missing().is_empty().then(|| gathering.compose(self.plan, self.vocab))
    }

    fn lock(&self) -> MutexGuard<'_, &'a mut Gathering> {
        // It is whole whatever thread panicked while it held the lock.
        self.gathering.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Backend;
    use super::*;
    use crate::constraint::{Effect, RowRule, Source};
    use crate::ids::{PageId, SeqId, SlotId};
    use crate::sampling::SamplingParams;
    use crate::step::DraftRoom;
    use crate::step::{Form, Piece, PieceTokens, Sample, SampleRow, StateStart};

    pub(in super::super) fn row(seq: u64, waits_for: Sources) -> SampleRow {
        SampleRow { waits_for, ..SampleRow::new(SeqId(seq), SlotId(0), Arc::new(SamplingParams::greedy())) }
    }

    /// One piece of one token, from which all rows are sampled.
    pub(in super::super) fn plan(id: u64, samples: Vec<SampleRow>) -> StepPlan {
        let piece = Piece {
            seq: SeqId(0),
            slot: SlotId(0),
            state: StateStart::Clear,
            form: Form::Recurrent,
            start: 0,
            tokens: PieceTokens::Sampled,
            drafts: Vec::new(),
            guesses: 0,
            pages: vec![PageId(0)],
            prompt_len: 0,
            samples,
            score: None,
            experts: None,
            adapter: None,
            follows: None,
            ends: Arc::default(),
            pool_from: None,
            exports: Vec::new(),
        };
        StepPlan::new(StepId(id), vec![piece])
    }

    /// Notes what it is told to compute: `f` for a forward, `s` for a sampler with the tokens that are forced on its
    /// rows.
    struct Notes {
        capacity: BackendInfo,
        steps: UnfinishedSteps<Self>,
        noted: Vec<String>,
        /// How long its forward looks for rules.
        looks: Duration,
        fails_at: Option<StepId>,
    }

    struct Computed(StepOutcome);

    impl Notes {
        fn new() -> Self {
            let capacity = BackendInfo {
                device: "none",
                slots: 1,
                pages: 1,
                checkpoints: 0,
                host_blocks: 0,
                step_rows_max: 1,
                vocab: 100,
                context: 32,
                drafts: DraftRoom::default(),
                threads: 1,
                adapter_slots: 8,
            };
            Self {
                capacity,
                steps: UnfinishedSteps::default(),
                noted: Vec::new(),
                looks: Duration::ZERO,
                fails_at: None,
            }
        }

        fn sampled(&mut self, mut outcome: StepOutcome, constraints: &[Constraint]) -> Computed {
            for (sample, constraint) in outcome.samples.iter_mut().zip(constraints) {
                sample.token = constraint.forced.unwrap_or_default();
            }
            let tokens: Vec<_> = constraints.iter().map(|c| c.forced.map_or("-".into(), |id| id.to_string())).collect();
            self.noted.push(format!("s{}:{}", outcome.id.unwrap(), tokens.join(",")));
            Computed(outcome)
        }
    }

    impl StepDevice for Notes {
        type Forwarded = StepOutcome;
        type Finished = Computed;

        const COMPUTES: bool = true;

        fn capacity(&self) -> &BackendInfo {
            &self.capacity
        }

        fn steps(&mut self) -> &mut UnfinishedSteps<Self> {
            &mut self.steps
        }

        fn forward(&mut self, plan: &StepPlan, rules: &AwaitedRules<'_>) -> Result<Forward<Self>, BackendError> {
            self.noted.push(format!("f{}", plan.id));
            if self.fails_at == Some(plan.id) {
                return Err(BackendError::Device { step: plan.id, why: "on purpose".into() });
            }
            let sample = |row: &SampleRow| Sample {
                seq: row.seq,
                token: 0,
                logprobs: None,
                certainty: None,
                changed: None,
                yielded: Sources::NONE,
                report: None,
                finite: true,
            };
            let samples = plan.sample_rows().map(sample).collect();
            let outcome = StepOutcome { id: Some(plan.id), samples, ..StepOutcome::default() };
            let found = if rules.may_come() { rules.within(self.looks) } else { rules.now() };
            Ok(match found {
                Some(constraints) => Forward::Finished(self.sampled(outcome, &constraints)),
                None => Forward::Waits(outcome),
            })
        }

        fn finish(&mut self, forwarded: StepOutcome, constraints: &[Constraint]) -> Result<Computed, BackendError> {
            Ok(self.sampled(forwarded, constraints))
        }

        fn outcome(Computed(outcome): Computed) -> Result<StepOutcome, BackendError> {
            Ok(outcome)
        }
    }

    impl Backend for Notes {
        fn info(&self) -> &BackendInfo {
            &self.capacity
        }

        fn launch(&mut self, plan: StepPlan) -> Result<Pending, BackendError> {
            launch(self, plan)
        }

        fn constrain(&mut self, rules: StepRules) -> Result<(), BackendError> {
            constrain(self, rules)
        }
    }

    const TABLES: Sources = Sources::only(Source::Tables);

    fn force(step: u64, source: Source, token: u32) -> StepRules {
        let row = RowRule { seq: SeqId(0), output: 0, effect: Effect::Force(token) };
        StepRules { step: StepId(step), source, rows: vec![row] }
    }

    fn token(pending: Pending) -> u32 {
        pending.wait().unwrap().samples[0].token
    }

    #[test]
    fn a_step_that_waits_for_nothing_is_computed_at_once() {
        let mut device = Notes::new();
        let rules = vec![crate::constraint::Rule { source: Source::Forced, effect: Effect::Force(7) }];
        let pending = device.launch(plan(3, vec![SampleRow { rules, ..row(0, Sources::NONE) }])).unwrap();
        assert_eq!((device.noted.join(" "), pending.step(), token(pending)), ("f3 s3:7".into(), StepId(3), 7));
    }

    #[test]
    fn a_step_waits_behind_its_logits_and_the_steps_after_it_wait_for_it() {
        let mut device = Notes::new();
        let waiting = [(0, TABLES), (1, Sources::NONE), (2, TABLES), (3, Sources::NONE)];
        let [first, second, third, fourth] =
            waiting.map(|(id, waits)| device.launch(plan(id, vec![row(0, waits)])).unwrap());
        assert_eq!(device.noted.join(" "), "f0");
        device.constrain(force(0, Source::Tables, 5)).unwrap();
        assert_eq!(device.noted.join(" "), "f0 s0:5 f1 s1:- f2");
        device.constrain(force(2, Source::Tables, 6)).unwrap();
        assert_eq!(device.noted.join(" "), "f0 s0:5 f1 s1:- f2 s2:6 f3 s3:-");
        assert_eq!([first, second, third, fourth].map(token), [5, 0, 6, 0]);
    }

    #[test]
    fn a_step_with_two_deferred_sources_waits_for_both_and_takes_early_answers_too() {
        let mut device = Notes::new();
        let both = TABLES.with(Sources::only(Source::Grammar));
        let pending = [0, 1].map(|id| device.launch(plan(id, vec![row(0, both)])).unwrap());
        device.constrain(force(0, Source::Tables, 5)).unwrap();
        // The quick source may be a step ahead.
        device.constrain(force(1, Source::Grammar, 8)).unwrap();
        assert_eq!(device.noted.join(" "), "f0");
        device.constrain(force(0, Source::Grammar, 6)).unwrap();
        assert_eq!(device.noted.join(" "), "f0 s0:6 f1");
        device.constrain(StepRules::silent(StepId(1), Source::Tables)).unwrap();
        assert_eq!(pending.map(token), [6, 8]);
    }

    #[test]
    fn a_device_that_computes_finds_rules_that_came_meanwhile() {
        let (mut device, early) = (Notes::new(), Arc::new(EarlyRules::default()));
        device.looks = Duration::from_micros(1);
        device.steps.look_for_rules(early.clone());
        assert!(!early.put(force(0, Source::Tables, 5)) && !early.put(force(9, Source::Tables, 9)));
        let first = device.launch(plan(0, vec![row(0, TABLES)])).unwrap();
        let second = device.launch(plan(1, vec![row(0, TABLES)])).unwrap();
        assert_eq!(device.noted.join(" "), "f0 s0:5 f1");
        assert!(early.put(force(1, Source::Tables, 6)), "it looks no more");
        device.constrain(early.take(StepId(1)).unwrap()).unwrap();
        assert_eq!([first, second].map(token), [5, 6]);
        assert!(early.take(StepId(9)).is_some(), "another step's rules stay");
    }

    #[test]
    fn rules_for_a_step_that_awaits_none_are_refused_and_change_nothing() {
        let mut device = Notes::new();
        let pending = device.launch(plan(0, vec![row(0, TABLES)])).unwrap();
        for wrong in [force(3, Source::Tables, 1), force(0, Source::Grammar, 1)] {
            let error = device.constrain(wrong).unwrap_err().to_string();
            assert!(error.contains("awaits rules of"), "{error}");
        }
        device.constrain(force(0, Source::Tables, 5)).unwrap();
        assert_eq!(token(pending), 5);
        assert!(device.constrain(force(0, Source::Tables, 5)).is_err(), "it has been answered");
        let error = device.launch(plan(0, Vec::new())).map(drop).unwrap_err().to_string();
        assert!(error.contains("launched after step 0"), "{error}");
    }

    #[test]
    fn a_step_that_fails_tells_who_waits_for_it_and_a_lost_device_those_behind() {
        let mut device = Notes::new();
        device.fails_at = Some(StepId(1));
        let pending = [TABLES, Sources::NONE, TABLES]
            .into_iter()
            .zip(0..)
            .map(|(waits, id)| device.launch(plan(id, vec![row(0, waits)])));
        let [first, second, third]: [Pending; 3] =
            pending.collect::<Result<Vec<_>, _>>().unwrap().try_into().ok().unwrap();
        device.constrain(force(0, Source::Tables, 5)).unwrap();
        assert_eq!(token(first), 5);
        assert!(matches!(second.wait(), Err(BackendError::Device { step: StepId(1), .. })));
        drop(device);
        assert!(matches!(third.wait(), Err(BackendError::Lost { step: StepId(2) })));
    }
}

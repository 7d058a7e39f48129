//! Random arrivals, lengths, choices, priorities, cancels, tiny pools and failures: whatever happens, each choice
//! generates what it generates alone, and in the end every page and slot is free.

use super::device::{FakeDevice, VOCAB, pooled_of};
use super::{thought_of, undisturbed};
use crate::adapter::ScaledAdapter;
use crate::constraint::thinking::{Adaptive, Level, Thinking, Thought};
use crate::ids::{CacheScope, KeyId, Micros, RequestId, TokenId};
use crate::sampling::SamplingParams;
use crate::scheduler::{
    Event, FinishReason, HostBlocks, KeyLimits, NextStep, Pace, Pipeline, Pooling, PrefixConfig, PrefixTotals,
    PromptScores, Recompute, Rejected, Request, Scheduler, SchedulerConfig, Spec, Terms,
};
use crate::step::{ExpertCut, Form, StepOutcome};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Admit {
        prompt: u32,
        choices: u32,
        max_tokens: Option<u32>,
        priority: i32,
        ends: bool,
        scored: bool,
        key: u64,
        thinking: Option<Thinking>,
        /// It is idle work, if it has one choice.
        idle: bool,
    },
    /// Plans and launches as many steps as may be in flight.
    Launch,
    Commit,
    Cancel(prop::sample::Index),
    CancelChoice(prop::sample::Index, u32),
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let admit = (
        1..200u32,
        1..4u32,
        prop::option::weighted(0.9, 0..40u32),
        -1..2i32,
        any::<bool>(),
        prop::bool::weighted(0.2),
        0..3u64,
        prop::option::of(thinking()),
        prop::bool::weighted(0.4),
    )
        .prop_map(|(prompt, choices, max_tokens, priority, ends, scored, key, thinking, idle)| Op::Admit {
            prompt,
            choices,
            max_tokens,
            priority,
            ends,
            scored,
            key,
            thinking,
            idle,
        });
    prop_oneof![
        3 => admit,
        12 => Just(Op::Launch),
        12 => Just(Op::Commit),
        1 => any::<prop::sample::Index>().prop_map(Op::Cancel),
        1 => (any::<prop::sample::Index>(), 0..3u32).prop_map(|(i, choice)| Op::CancelChoice(i, choice)),
    ]
}

/// Closed with 40 and 41; 41 and 42 end it.
fn thinking() -> impl Strategy<Value = Thinking> {
    let level = || (0..4u32).prop_map(|e| Level { entropy_max: e as f32 / 2.0, top_prob_min: 0.4 });
    let adaptive =
        (1..4u32, level(), prop::option::of(level()), 0..6u32).prop_map(|(window, hold, stop, stop_tokens_min)| {
            Adaptive { window, hold, held: [9].into(), stop, stop_tokens_min }
        });
    (prop::option::of(Just(43)), prop::option::of(0..20u32), prop::option::of(adaptive)).prop_map(
        |(opens, tokens_max, adaptive)| Thinking {
            opens,
            ends: vec![41, 42],
            closing: vec![40, 41],
            tokens_max,
            adaptive,
        },
    )
}

pub(super) fn config() -> impl Strategy<Value = SchedulerConfig> {
    let host = prop::option::of(1..4u32);
    let prefix = (0..6u32, 1..2_000u64, host).prop_map(|(checkpoints, checkpoint_bytes, host)| PrefixConfig {
        checkpoints,
        checkpoint_bytes,
        page_bytes: 100,
        host: host.map_or(HostBlocks::NONE, |checkpoint| HostBlocks { bytes: 1, checkpoint, unit: 1 }),
    });
    (1..7u32, 3..24u32, 1..200u32, 64..400u32, 1..4u32, prefix).prop_map(
        |(slots, pages, step_tokens, context, steps_in_flight_max, prefix)| SchedulerConfig {
            slots,
            pages,
            step_tokens,
            context,
            queue_requests_max: 8,
            queue_prompt_tokens_max: 600,
            steps_in_flight_max,
            adapter_slots: 1 + pages as usize % 3,
            prefix,
        },
    )
}

/// Number of random worlds that [`crowds_that_share_beginnings_come_back_from_the_host`] tries.
const CROWDS: u64 = 200;

/// The device checks which rows have it.
const CUT: ExpertCut = ExpertCut { min: 1, max: 2, mass: 0.5 };

/// What a caller has seen of one request.
struct Stream {
    request: Request,
    output_max: u32,
    tokens: Vec<Vec<TokenId>>,
    finished: Vec<bool>,
    /// Choices that were cancelled, all of them with the request.
    cancelled: Vec<bool>,
    scored: u32,
    failed: bool,
    thoughts: Vec<Option<Thought>>,
    pooled: Option<Vec<f32>>,
}

pub(super) struct World {
    config: SchedulerConfig,
    /// With a target, steps are made as small as it asks for, from what earlier ones took.
    pub(super) pipeline: Pipeline,
    device: FakeDevice,
    /// Each with its duration in microseconds.
    in_flight: VecDeque<(StepOutcome, u64)>,
    streams: BTreeMap<RequestId, Stream>,
    /// Those of four in seven requests.
    adapters: Vec<ScaledAdapter>,
    clock: u64,
}

impl World {
    pub(super) fn new(config: SchedulerConfig, pace: Pace) -> Self {
        Self {
            config,
            pipeline: Pipeline::around(Scheduler::new(config), pace),
            device: FakeDevice::new(&config),
            in_flight: VecDeque::new(),
            streams: BTreeMap::new(),
            adapters: super::adapters::adapters(4).into_iter().flatten().collect(),
            clock: 0,
        }
    }

    fn now(&mut self) -> Micros {
        self.clock += 1;
        Micros(self.clock)
    }

    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Admit { prompt, choices, max_tokens, priority, ends, scored, key, thinking, idle } => {
                let id = RequestId(self.clock);
                let terms = Terms {
                    key: KeyId(*key),
                    limits: KeyLimits { weight: 1 + *key as u32, ..KeyLimits::default() },
                    idle: *idle && *choices == 1,
                    ..Terms::default()
                };
                // Some of those that want little want no token at all but their prompt's hidden state.
                let pools = *choices == 1 && max_tokens.is_some_and(|n| n < 8);
                let pool = pools.then_some(if *ends { Pooling::Mean } else { Pooling::Last });
                let spec = Spec {
                    choices: *choices,
                    max_tokens: if pools { Some(0) } else { *max_tokens },
                    sampling: Arc::new(SamplingParams { seed: id.0, certainty: true, ..SamplingParams::default() }),
                    min_tokens: id.0 as u32 % 4,
                    end_ids: if *ends { [3, 4].into() } else { Arc::default() },
                    priority: *priority,
                    score_prompt: scored.then(|| scores(*prompt)),
                    experts: Some(CUT),
                    // Some do not want drafts, others say what the answer may be.
                    drafts: !id.0.is_multiple_of(5),
                    prediction: id.0.is_multiple_of(3).then(|| (0..20).map(|i| (i * 7) % VOCAB).collect()),
                    thinking: thinking.clone().map(Arc::new),
                    pool,
                    adapter: self.adapters.get(id.0 as usize % 7).filter(|_| !terms.idle).cloned(),
                    // Two scopes, and some who neither look nor leave anything.
                    cache: Some(CacheScope(u128::from(*key))).filter(|_| *key < 2),
                    ..Spec::default()
                };
                // One of three texts, which each prompt leaves at a place of its own.
                let (text, parting) = (id.0 as u32 % 3, id.0 as u32 * 37 % 200);
                let token = |i: u32| (i * 7 + text + if i < parting { 0 } else { id.0 as u32 }) % VOCAB;
                let turns: Vec<u32> = if *ends { vec![*prompt / 3, *prompt * 2 / 3] } else { Vec::new() };
                let prompt: Vec<_> = (0..*prompt).map(token).collect();
                let request = Request::new(id, prompt, spec).with_turns(turns);
                self.admit(request, &terms);
            }
            Op::Launch => while self.launch() {},
            Op::Commit => self.commit(),
            Op::Cancel(index) => self.cancel(index, None),
            Op::CancelChoice(index, choice) => self.cancel(index, Some(*choice)),
        }
        self.pipeline.scheduler.audit();
    }

    fn admit(&mut self, request: Request, terms: &Terms) {
        let now = self.now();
        let prompt = request.prompt.len() as u32;
        let output_max = request.spec.max_tokens.unwrap_or(u32::MAX).min(self.config.context.saturating_sub(prompt));
        // A cache leaves a part of all pages to idle work.
        let spare = terms.idle && self.config.prefix.checkpoints > 0;
        let positions = if spare { self.config.pages / 32 } else { self.config.pages } * 32;
        let fits = positions >= prompt
            && (request.spec.max_tokens.is_none() || positions >= prompt + output_max.saturating_sub(1));
        match self.pipeline.admit(request.clone(), terms, now) {
            Ok(()) => {
                assert!(fits, "what can never fit is refused");
                let output_max = output_max.min(positions + 1 - prompt);
                let n = request.spec.choices as usize;
                let stream = Stream {
                    output_max,
                    tokens: vec![Vec::new(); n],
                    finished: vec![false; n],
                    cancelled: vec![false; n],
                    scored: 0,
                    failed: false,
                    thoughts: vec![None; n],
                    pooled: None,
                    request,
                };
                self.streams.insert(stream.request.id, stream);
            }
            Err(Rejected::TooManyPages { .. }) => assert!(!fits, "what fits alone is not refused for its pages"),
            Err(Rejected::PromptTooLong { max, .. }) => assert!(prompt > max),
            Err(Rejected::TooManyChoices { max, .. }) => assert!(request.spec.choices > max),
            Err(Rejected::QueueFull { waiting, max }) => assert!((max..=2 * max).contains(&waiting)),
            Err(Rejected::QueueTokensFull { waiting, got, max }) => assert!(waiting + got > max),
            Err(other) => panic!("nothing asks for this: {other}"),
        }
    }

    /// Plans a step and runs it; its outcome stays in flight.
    fn launch(&mut self) -> bool {
        let now = self.now();
        let again = format!("{:?}", self.pipeline.scheduler);
        let waited = self.pipeline.scheduler.stats().adapters_waiting > 0;
        let NextStep::Launch(plan) = self.pipeline.next(now) else {
            // Who waits for the slot of an adapter is noted.
            let waits = waited || self.pipeline.scheduler.stats().adapters_waiting > 0;
            assert!(waits || again == format!("{:?}", self.pipeline.scheduler), "no plan, no change");
            return false;
        };
        self.check_budget(&plan);
        let shape = self.pipeline.launched(&plan, now).shape;
        // A device that takes 20 us a row, now and then ten times as long.
        let slow = if plan.id.0 % 7 == 0 { 200 } else { 20 };
        let took = 100 + slow * u64::from(shape.rows + shape.prompt_rows);
        assert!(
            plan.pieces.iter().all(|piece| piece.experts.is_some() == (piece.form == Form::Recurrent)),
            "the prompt is not cut"
        );
        let outcome = self.device.run(&plan);
        self.in_flight.push_back((outcome, took));
        assert!(self.in_flight.len() as u32 <= self.config.steps_in_flight_max);
        self.pipeline.scheduler.audit();
        true
    }

    fn check_budget(&self, plan: &crate::step::StepPlan) {
        let decode = |piece: &&crate::step::Piece| piece.form == Form::Recurrent && piece.certain() == 1;
        let decodes: u32 = plan.pieces.iter().filter(decode).map(|piece| piece.len()).sum();
        let others: Vec<u32> = plan.pieces.iter().filter(|piece| !decode(piece)).map(|piece| piece.len()).collect();
        let granted: u32 = others.iter().sum();
        let within = decodes + granted <= self.config.step_tokens;
        assert!(
            within || granted == 0 || others[0] <= 64 && granted - others[0] <= self.config.step_tokens,
            "{plan:?}"
        );
        assert!(within || granted <= 64, "beyond the budget there is one unit at most: {plan:?}");
    }

    fn commit(&mut self) {
        let Some((outcome, took)) = self.in_flight.pop_front() else { return };
        self.clock += took;
        let now = self.now();
        let (events, _) = self.pipeline.done(outcome, now).expect("the step is in flight");
        for (id, event) in events {
            self.streams.get_mut(&id).expect("events are for admitted requests").take(event);
        }
    }

    fn cancel(&mut self, index: &prop::sample::Index, choice: Option<u32>) {
        if self.streams.is_empty() {
            return;
        }
        let at = index.index(self.streams.len());
        let stream = self.streams.values_mut().nth(at).unwrap();
        let id = stream.request.id;
        let open = |stream: &Stream, i: usize| !stream.finished[i] && !stream.cancelled[i] && !stream.failed;
        match choice {
            None => {
                let live = (0..stream.finished.len()).any(|i| open(stream, i));
                assert_eq!(self.pipeline.cancel(id), live, "a live request can be cancelled, and no other");
                stream.cancelled.fill(true);
            }
            Some(choice) if choice < stream.request.spec.choices => {
                let live = open(stream, choice as usize) && !stream.tokens[choice as usize].is_empty();
                assert_eq!(self.pipeline.cancel_choice(id, choice), live);
                stream.cancelled[choice as usize] |= live;
            }
            Some(_) => {}
        }
    }

    /// Somebody who may have come, and may be served already, leaves.
    fn leave(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(&RequestId(id)) {
            self.pipeline.cancel(stream.request.id);
            stream.cancelled.fill(true);
        }
    }

    /// Runs until nothing is live; fails if nothing moves any more.
    pub(super) fn finish(&mut self) {
        while !self.pipeline.scheduler.is_idle() {
            let moved = self.launch();
            assert!(moved || !self.in_flight.is_empty(), "stuck: {:#?}", self.pipeline.scheduler);
            if !moved || self.in_flight.len() as u32 == self.config.steps_in_flight_max {
                self.commit();
            }
            self.pipeline.scheduler.audit();
        }
        self.pipeline.scheduler.assert_all_is_free();
        self.streams.values().for_each(Stream::check_end);
    }

    /// The engine is lost: one event a live request, and late outcomes mean nothing.
    fn fail(&mut self) {
        for (id, event) in self.pipeline.fail("the device fell off the bus") {
            self.streams.get_mut(&id).unwrap().take(event);
        }
        self.check_lost();
        for stream in self.streams.values() {
            let ended =
                stream.finished.iter().zip(&stream.cancelled).all(|(finished, cancelled)| *finished || *cancelled);
            assert_ne!(stream.failed, ended, "a request fails if it lived");
        }
    }

    fn check_lost(&mut self) {
        while let Some((outcome, _)) = self.in_flight.pop_front() {
            assert!(self.pipeline.done(outcome.clone(), Micros(0)).is_none());
            assert_eq!(self.pipeline.scheduler.commit(outcome, Micros(0)), Vec::new());
        }
        assert!(matches!(self.pipeline.next(Micros(0)), NextStep::Nothing));
        self.pipeline.scheduler.assert_all_is_free();
    }

    /// The engine is lost, and an idle pipeline goes on with what lived.
    pub(super) fn go_on_with(&mut self, pipeline: Pipeline) {
        let migrated = self.pipeline.hand_over();
        self.check_lost();
        (self.pipeline, self.device) = (pipeline, FakeDevice::new(&self.config));
        assert!(migrated.is_sorted_by_key(|request| request.times.admitted));
        for request in migrated {
            let stream = &self.streams[&request.request.id];
            let open = |of: &usize| !stream.finished[*of] && !stream.cancelled[*of];
            let (open, all): (Vec<_>, _) =
                ((0..stream.tokens.len()).filter(open).collect(), request.tokens_by_choice());
            assert!(request.choices.iter().map(|of| of.choice as usize).eq(open.iter().copied()));
            assert!(open.iter().all(|of| all[*of] == stream.tokens[*of]), "they have what the caller was told");
            let now = self.now();
            self.pipeline.adopt(request, now).expect("it fits here as it did there");
            self.pipeline.scheduler.audit();
        }
    }
}

impl Stream {
    fn take(&mut self, event: Event) {
        assert!(!self.failed, "nothing comes after a failure");
        match event {
            Event::Token { choice, index, token, .. } => {
                assert!(
                    !self.finished[choice as usize] && !self.cancelled[choice as usize],
                    "nothing comes after the end"
                );
                assert_eq!(index as usize, self.tokens[choice as usize].len(), "outputs come in order");
                self.tokens[choice as usize].push(token);
            }
            Event::Thought { choice, thought } => {
                assert!(self.request.spec.thinking.is_some() && !self.finished[choice as usize]);
                let before = self.thoughts[choice as usize].replace(thought);
                assert_eq!(before, None, "an end is told once");
            }
            Event::Scored(scores) => {
                assert!(!scores.is_empty() && self.request.spec.score_prompt.is_some());
                let got = scores.iter().map(|score| (score.position, score.token));
                let all = scored_of(&self.request);
                let from = self.scored as usize;
                assert!(got.eq(all[from..].iter().copied().take(scores.len())), "each token is scored once, in order");
                self.scored += scores.len() as u32;
            }
            Event::Pooled(mean) => {
                assert!(self.request.spec.pool.is_some() && !self.finished[0]);
                assert_eq!(self.pooled.replace(mean), None, "a hidden state is told once");
            }
            Event::Finished { choice, reason, usage, times } => {
                let choice = choice as usize;
                assert!(!std::mem::replace(&mut self.finished[choice], true), "a choice ends once");
                let tokens = &self.tokens[choice];
                let stopped = tokens.last().is_some_and(|token| self.request.spec.end_ids.contains(token));
                assert_eq!(reason, if stopped { FinishReason::Stop } else { FinishReason::Length });
                assert_eq!(usage.output_tokens as usize, tokens.len());
                assert_eq!(usage.prompt_tokens as usize, self.request.prompt.len());
                let silent = self.request.spec.silent_rows(usage.prompt_tokens);
                let spared = if self.request.spec.cache.is_some() { silent } else { 0 };
                assert!(usage.cached_tokens.is_multiple_of(64) && usage.cached_tokens < usage.prompt_tokens);
                assert!(usage.cached_tokens <= spared, "what wants a row computes it");
                assert!(times.started.is_some_and(|started| started > times.admitted));
                assert_eq!(times.first_token.is_some(), !tokens.is_empty());
            }
            Event::Failed(_) => self.failed = true,
        }
    }

    fn check_end(&self) {
        for (choice, tokens) in (0..).zip(&self.tokens) {
            let alone = undisturbed(&self.request, choice, self.output_max);
            if self.cancelled[choice as usize] {
                assert!(alone.starts_with(tokens), "a cancelled choice has what it would have had");
            } else {
                assert_eq!(*tokens, alone, "choice {choice} of {} generates what it generates alone", self.request.id);
                let thought = self.request.spec.thinking.as_ref().and_then(|t| thought_of(t, &self.request, &alone));
                assert_eq!(self.thoughts[choice as usize], thought);
                assert!(self.finished[choice as usize]);
            }
        }
        if !self.cancelled[0] {
            let from = |pool| if pool == Pooling::Mean { 0 } else { self.request.prompt.len() - 1 };
            assert_eq!(self.pooled, self.request.spec.pool.map(|pool| pooled_of(&self.request.prompt, from(pool))));
        }
        if self.request.spec.score_prompt.is_some() && !self.cancelled[0] {
            assert_eq!(
                self.scored as usize,
                scored_of(&self.request).len(),
                "every token that was asked about is scored"
            );
        }
    }
}

/// Of every other prompt all tokens but the first, of the others those in its second half and two behind it.
fn scores(prompt: u32) -> PromptScores {
    let half = PromptScores { top: 2, from: prompt / 2, behind: [5, 5].into() };
    if prompt.is_multiple_of(2) { PromptScores::whole(2) } else { half }
}

/// Positions and tokens that a request has scored.
fn scored_of(request: &Request) -> Vec<(u32, TokenId)> {
    let asked = request.spec.score_prompt.clone().unwrap_or_default();
    let own = (0..).zip(request.prompt.iter().copied()).skip(asked.from.max(1) as usize);
    own.chain(asked.behind.iter().map(|token| (request.prompt.len() as u32, *token))).collect()
}

/// `CHIMERE_PROPTEST_CASES` runs more than the default.
pub(super) fn cases() -> ProptestConfig {
    let cases = std::env::var("CHIMERE_PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// No target, or one that a step of some hundred rows reaches; with and without passes of their own for recomputed
/// positions and for prompts.
pub(super) fn pace() -> impl Strategy<Value = Pace> {
    (prop::option::of(1..10_000u64), prop::option::of((1..20u32, 1..9u32)), any::<bool>()).prop_map(
        |(target_us, recompute, apart)| Pace {
            target_us: target_us.unwrap_or(0),
            recompute: recompute.and_then(|(passes, rows)| {
                Some(Recompute { rows: NonZeroU32::new(rows)?, passes_max: NonZeroU32::new(passes)? })
            }),
            apart,
            ..Pace::default()
        },
    )
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn every_choice_generates_what_it_generates_alone(config in config(), pace in pace(), ops in prop::collection::vec(op(), 1..150)) {
        let mut world = World::new(config, pace);
        ops.iter().for_each(|op| world.apply(op));
        world.finish();
    }

    #[test]
    fn a_lost_engine_ends_every_request_and_frees_everything(config in config(), pace in pace(), ops in prop::collection::vec(op(), 1..60)) {
        let mut world = World::new(config, pace);
        ops.iter().for_each(|op| world.apply(op));
        world.fail();
    }
}

/// Conversations that take turns on a device with room for two states: what one of them left there has gone by its next
/// turn, and comes back from the host.
#[test]
fn conversations_come_back_from_the_host() {
    let host = HostBlocks { bytes: 1, checkpoint: 1, unit: 1 };
    let prefix = PrefixConfig { checkpoints: 2, checkpoint_bytes: 1, page_bytes: 1, host };
    let config = SchedulerConfig {
        slots: 2,
        pages: 40,
        step_tokens: 128,
        context: 700,
        queue_requests_max: 8,
        queue_prompt_tokens_max: 6_000,
        steps_in_flight_max: 2,
        adapter_slots: 8,
        prefix,
    };
    let mut world = World::new(config, Pace::default());
    for round in 1..6 {
        for talk in 0..4u32 {
            let prompt: Vec<TokenId> = (0..round * 100).map(|i| (i * 7 + talk + i / 50) % VOCAB).collect();
            let spec = Spec { max_tokens: Some(3), experts: Some(CUT), cache: Some(CacheScope(0)), ..Spec::default() };
            let id = RequestId(u64::from(round * 10 + talk));
            world.admit(Request::new(id, prompt, spec).with_turns(vec![round * 100 - 20]), &Terms::default());
            (0..if talk % 2 == 0 { 2 } else { 30 }).for_each(|_| {
                world.launch();
                world.commit();
            });
        }
    }
    world.finish();
    let stats = world.pipeline.scheduler.prefix_stats();
    let PrefixTotals { loaded, saved, host_evicted, host_hit_tokens, .. } = stats.totals;
    assert!(loaded >= 8 && saved > loaded && host_evicted > 0 && host_hit_tokens >= 64 * loaded, "{stats:?}");
    assert!(stats.host_entries > 0 && stats.host_blocks <= stats.host_blocks_total, "{stats:?}");
}

/// Crowds of conversations with common beginnings, on a device with few pages and room for three states: some compute
/// what is on its way from the host for others, some leave at once.
#[test]
fn crowds_that_share_beginnings_come_back_from_the_host() {
    let host = HostBlocks { bytes: 1, checkpoint: 1, unit: 1 };
    let mut loaded = 0;
    for seed in 0..CROWDS {
        let draw = |n: u64, below: u64| super::device::mix(seed, n) % below;
        let prefix = PrefixConfig { checkpoints: 2 + draw(1, 3) as u32, checkpoint_bytes: 1, page_bytes: 1, host };
        let config = SchedulerConfig {
            slots: 9,
            pages: 40 + draw(2, 40) as u32,
            step_tokens: 100 + draw(3, 100) as u32,
            context: 700,
            queue_requests_max: 16,
            queue_prompt_tokens_max: 9_000,
            steps_in_flight_max: 1 + draw(4, 2) as u32,
            adapter_slots: 8,
            prefix,
        };
        let mut world = World::new(config, Pace::default());
        for crowd in 0..12 {
            for guest in 0..1 + draw(100 + crowd, 4) {
                let n = 1_000 + 10 * crowd + guest;
                let (text, units) = (draw(n, 2) as u32, 1 + draw(n + 2_000, 4) as u32);
                let own = draw(n + 4_000, 3) as u32;
                let prompt =
                    (0..units * 64 + 20).map(|i| (i * 7 + text + if i < units * 64 { 0 } else { own }) % VOCAB);
                let spec = Spec {
                    max_tokens: Some(1 + draw(n + 6_000, 20) as u32),
                    experts: Some(CUT),
                    cache: Some(CacheScope(0)),
                    ..Spec::default()
                };
                let request = Request::new(RequestId(n), prompt.collect::<Vec<_>>(), spec).with_turns(vec![units * 64]);
                world.admit(request, &Terms::default());
                if draw(n + 8_000, 5) == 0 {
                    world.leave(1_000 + draw(n + 9_000, n - 999));
                }
            }
            for step in 0..draw(50 + crowd, 12) {
                if draw(20_000 + 100 * crowd + step, 3) > 0 {
                    world.launch();
                } else {
                    world.commit();
                }
            }
        }
        world.finish();
        loaded += world.pipeline.scheduler.prefix_stats().totals.loaded;
    }
    assert!(loaded > CROWDS, "{loaded} entries came back");
}

//! Random arrivals, lengths, choices, priorities, cancels, tiny pools and failures: whatever happens, each choice generates what it
//! generates alone, and in the end every page and slot is free.

use super::device::{FakeDevice, VOCAB};
use super::undisturbed;
use crate::ids::{Micros, RequestId, TokenId};
use crate::sampling::SamplingParams;
use crate::scheduler::{Event, FinishReason, Rejected, Request, Scheduler, SchedulerConfig};
use crate::step::{Form, StepOutcome};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Op {
    Admit {
        prompt: u32,
        choices: u32,
        max_tokens: Option<u32>,
        priority: i32,
        ends: bool,
        scored: bool,
    },
    /// Plans and launches as many steps as may be in flight.
    Launch,
    Commit,
    Cancel(prop::sample::Index),
    CancelChoice(prop::sample::Index, u32),
}

fn op() -> impl Strategy<Value = Op> {
    let admit = (1..200u32, 1..4u32, prop::option::weighted(0.9, 0..40u32), -1..2i32, any::<bool>(), prop::bool::weighted(0.2))
        .prop_map(|(prompt, choices, max_tokens, priority, ends, scored)| Op::Admit {
            prompt,
            choices,
            max_tokens,
            priority,
            ends,
            scored,
        });
    prop_oneof![
        3 => admit,
        12 => Just(Op::Launch),
        12 => Just(Op::Commit),
        1 => any::<prop::sample::Index>().prop_map(Op::Cancel),
        1 => (any::<prop::sample::Index>(), 0..3u32).prop_map(|(i, choice)| Op::CancelChoice(i, choice)),
    ]
}

fn config() -> impl Strategy<Value = SchedulerConfig> {
    (1..7u32, 3..24u32, 1..200u32, 64..400u32, 1..4u32).prop_map(|(slots, pages, step_tokens, context, steps_in_flight_max)| {
        SchedulerConfig {
            slots,
            pages,
            step_tokens,
            context,
            queue_requests_max: 8,
            queue_prompt_tokens_max: 600,
            steps_in_flight_max,
        }
    })
}

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
}

struct World {
    config: SchedulerConfig,
    scheduler: Scheduler,
    device: FakeDevice,
    in_flight: VecDeque<StepOutcome>,
    streams: BTreeMap<RequestId, Stream>,
    clock: u64,
}

impl World {
    fn new(config: SchedulerConfig) -> Self {
        Self {
            config,
            scheduler: Scheduler::new(config),
            device: FakeDevice::new(&config),
            in_flight: VecDeque::new(),
            streams: BTreeMap::new(),
            clock: 0,
        }
    }

    fn now(&mut self) -> Micros {
        self.clock += 1;
        Micros(self.clock)
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Admit { prompt, choices, max_tokens, priority, ends, scored } => {
                let id = RequestId(self.clock);
                self.admit(Request {
                    id,
                    prompt: (0..*prompt).map(|i| (i * 7 + id.0 as u32) % VOCAB).collect(),
                    choices: *choices,
                    max_tokens: *max_tokens,
                    sampling: Arc::new(SamplingParams { seed: id.0, ..SamplingParams::default() }),
                    end_ids: if *ends { vec![3, 4] } else { Vec::new() },
                    priority: *priority,
                    score_prompt: scored.then_some(2),
                    awaits_edits: false,
                });
            }
            Op::Launch => while self.launch() {},
            Op::Commit => self.commit(),
            Op::Cancel(index) => self.cancel(index, None),
            Op::CancelChoice(index, choice) => self.cancel(index, Some(*choice)),
        }
        self.scheduler.audit();
    }

    fn admit(&mut self, request: Request) {
        let now = self.now();
        let prompt = request.prompt.len() as u32;
        let output_max = request.max_tokens.unwrap_or(u32::MAX).min(self.config.context.saturating_sub(prompt));
        let fits = self.config.pages * 32 >= prompt
            && (request.max_tokens.is_none() || { self.config.pages * 32 >= prompt + output_max.saturating_sub(1) });
        match self.scheduler.admit(request.clone(), now) {
            Ok(()) => {
                assert!(fits, "what can never fit is refused");
                let output_max = output_max.min(self.config.pages * 32 + 1 - prompt);
                let n = request.choices as usize;
                let stream = Stream {
                    output_max,
                    tokens: vec![Vec::new(); n],
                    finished: vec![false; n],
                    cancelled: vec![false; n],
                    scored: 0,
                    failed: false,
                    request,
                };
                self.streams.insert(stream.request.id, stream);
            }
            Err(Rejected::TooManyPages { .. }) => assert!(!fits, "what fits alone is not refused for its pages"),
            Err(Rejected::PromptTooLong { max, .. }) => assert!(prompt > max),
            Err(Rejected::TooManyChoices { max, .. }) => assert!(request.choices > max),
            Err(Rejected::QueueFull { waiting, max }) => assert_eq!(waiting, max),
            Err(Rejected::QueueTokensFull { waiting, got, max }) => assert!(waiting + got > max),
            Err(Rejected::Draining) => panic!("nobody drains"),
        }
    }

    /// Plans a step and runs it; its outcome stays in flight.
    fn launch(&mut self) -> bool {
        let now = self.now();
        let again = format!("{:?}", self.scheduler);
        let Some(plan) = self.scheduler.plan(now) else {
            assert_eq!(again, format!("{:?}", self.scheduler), "no plan, no change");
            return false;
        };
        self.check_budget(&plan);
        let outcome = self.device.run(&plan);
        self.in_flight.push_back(outcome);
        assert!(self.in_flight.len() as u32 <= self.config.steps_in_flight_max);
        self.scheduler.audit();
        true
    }

    fn check_budget(&self, plan: &crate::step::StepPlan) {
        let decode = |piece: &&crate::step::Piece| piece.form == Form::Recurrent && piece.len() == 1;
        let decodes = plan.pieces.iter().filter(decode).count() as u32;
        let others: Vec<u32> = plan.pieces.iter().filter(|piece| !decode(piece)).map(|piece| piece.len()).collect();
        let granted: u32 = others.iter().sum();
        let within = decodes + granted <= self.config.step_tokens;
        assert!(within || granted == 0 || others[0] <= 64 && granted - others[0] <= self.config.step_tokens, "{plan:?}");
        assert!(within || granted <= 64, "beyond the budget there is one unit at most: {plan:?}");
    }

    fn commit(&mut self) {
        let Some(outcome) = self.in_flight.pop_front() else { return };
        let now = self.now();
        for (id, event) in self.scheduler.commit(outcome, now) {
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
                assert_eq!(self.scheduler.cancel(id), live, "a live request can be cancelled, and no other");
                stream.cancelled.fill(true);
            }
            Some(choice) if choice < stream.request.choices => {
                let live = open(stream, choice as usize) && !stream.tokens[choice as usize].is_empty();
                assert_eq!(self.scheduler.cancel_choice(id, choice), live);
                stream.cancelled[choice as usize] |= live;
            }
            Some(_) => {}
        }
    }

    /// Runs until nothing is live; fails if nothing moves any more.
    fn finish(&mut self) {
        while !self.scheduler.is_idle() {
            let moved = self.launch();
            assert!(moved || !self.in_flight.is_empty(), "stuck: {:#?}", self.scheduler);
            if !moved || self.in_flight.len() as u32 == self.config.steps_in_flight_max {
                self.commit();
            }
            self.scheduler.audit();
        }
        self.scheduler.assert_all_is_free();
        self.streams.values().for_each(Stream::check_end);
    }

    /// The engine is lost: one event a live request, and late outcomes mean nothing.
    fn fail(&mut self) {
        for (id, event) in self.scheduler.fail("the device fell off the bus") {
            self.streams.get_mut(&id).unwrap().take(event);
        }
        while let Some(outcome) = self.in_flight.pop_front() {
            assert_eq!(self.scheduler.commit(outcome, Micros(0)), Vec::new());
        }
        assert_eq!(self.scheduler.plan(Micros(0)).map(|plan| plan.id), None);
        self.scheduler.assert_all_is_free();
        for stream in self.streams.values() {
            let ended = stream.finished.iter().zip(&stream.cancelled).all(|(finished, cancelled)| *finished || *cancelled);
            assert_ne!(stream.failed, ended, "a request fails if it lived");
        }
    }
}

impl Stream {
    fn take(&mut self, event: Event) {
        assert!(!self.failed, "nothing comes after a failure");
        match event {
            Event::Token { choice, index, token, .. } => {
                assert!(!self.finished[choice as usize] && !self.cancelled[choice as usize], "nothing comes after the end");
                assert_eq!(index as usize, self.tokens[choice as usize].len(), "outputs come in order");
                self.tokens[choice as usize].push(token);
            }
            Event::Scored(scores) => {
                assert!(!scores.is_empty() && self.request.score_prompt.is_some());
                for score in scores {
                    self.scored += 1;
                    assert_eq!(score.position, self.scored, "each position is scored once, in order");
                    assert_eq!(score.token, self.request.prompt[score.position as usize]);
                }
            }
            Event::Finished { choice, reason, usage, times } => {
                let choice = choice as usize;
                assert!(!std::mem::replace(&mut self.finished[choice], true), "a choice ends once");
                let tokens = &self.tokens[choice];
                let stopped = tokens.last().is_some_and(|token| self.request.end_ids.contains(token));
                assert_eq!(reason, if stopped { FinishReason::Stop } else { FinishReason::Length });
                assert_eq!(usage.output_tokens as usize, tokens.len());
                assert_eq!(usage.prompt_tokens as usize, self.request.prompt.len());
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
                assert!(self.finished[choice as usize]);
            }
        }
        if self.request.score_prompt.is_some() && !self.cancelled[0] {
            assert_eq!(self.scored + 1, self.request.prompt.len() as u32, "every prompt token but the first is scored");
        }
    }
}

/// `CHIMERE_PROPTEST_CASES` runs more than the default.
fn cases() -> ProptestConfig {
    let cases = std::env::var("CHIMERE_PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn every_choice_generates_what_it_generates_alone(config in config(), ops in prop::collection::vec(op(), 1..150)) {
        let mut world = World::new(config);
        ops.iter().for_each(|op| world.apply(op));
        world.finish();
    }

    #[test]
    fn a_lost_engine_ends_every_request_and_frees_everything(config in config(), ops in prop::collection::vec(op(), 1..60)) {
        let mut world = World::new(config);
        ops.iter().for_each(|op| world.apply(op));
        world.fail();
    }
}

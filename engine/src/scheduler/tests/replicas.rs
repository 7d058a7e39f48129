//! Several schedulers of one process: requests go from one to another when an engine is lost, and a key's limits and
//! its share hold over all of them.

use super::device::{FakeDevice, VOCAB, mix};
use super::drafts::{ROOM, drafting, guesser, mode, request};
use super::property::{World, cases, config, op, pace};
use crate::constraint::thinking::{Adaptive, Level, Thinking, Thought};
use crate::drafts::{DraftKinds, DraftMode};
use crate::ids::{KeyId, Micros, RequestId, TokenId};
use crate::sampling::{Certainty, SamplingParams};
use crate::scheduler::{
    DraftSettings, Event, FinishReason, KeyLedger, KeyLimits, NextStep, Pace, Pipeline, Pooling, PrefixConfig,
    PromptScores, Rejected, ReplicaLoad, Request, Scheduler, SchedulerConfig, Spec, Terms, Usage,
};
use crate::step::{ExpertCut, StepOutcome, TokenLogprobs};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn every_choice_generates_what_it_generates_alone_however_often_its_engine_is_lost(
        config in config(),
        pace in pace(),
        mode in prop::option::of(mode()),
        guesser in guesser(),
        lives in prop::collection::vec(prop::collection::vec(op(), 1..50), 2..5),
    ) {
        // Steps that no draft finds room in are another test's.
        let config = SchedulerConfig { step_tokens: config.step_tokens + 80, ..config };
        let settings = DraftSettings { mode: mode.unwrap_or(DraftMode::Off), kinds: DraftKinds::all(), room: ROOM };
        let start = || Pipeline::around(drafting(Scheduler::new(config), settings, guesser), pace);
        let mut world = World::new(config, pace);
        world.pipeline = start();
        for ops in lives {
            ops.iter().for_each(|op| world.apply(op));
            world.go_on_with(start());
        }
        world.finish();
    }
}

const CONFIG: SchedulerConfig = SchedulerConfig {
    slots: 6,
    pages: 600,
    step_tokens: 150,
    context: 1_000,
    queue_requests_max: 64,
    queue_prompt_tokens_max: 60_000,
    steps_in_flight_max: 2,
    adapter_slots: 2,
    prefix: PrefixConfig::OFF,
};

/// A token as a caller hears of it.
type ToldToken = (TokenId, Option<TokenLogprobs>, Option<Certainty>);

/// What a caller is told of a request, apart from when.
#[derive(Debug, Default, PartialEq)]
struct Told {
    tokens: BTreeMap<u32, Vec<ToldToken>>,
    scores: Vec<(u32, TokenId, TokenLogprobs)>,
    pooled: Option<Vec<f32>>,
    thoughts: BTreeMap<u32, Thought>,
    ends: BTreeMap<u32, (FinishReason, Usage)>,
}

impl Told {
    fn take(&mut self, event: Event) {
        match event {
            Event::Token { choice, index, token, logprobs, certainty, .. } => {
                let tokens = self.tokens.entry(choice).or_default();
                assert_eq!(tokens.len(), index as usize, "outputs come in order");
                tokens.push((token, logprobs, certainty));
            }
            Event::Scored(scores) => self.scores.extend(scores.into_iter().map(|s| (s.position, s.token, s.logprobs))),
            Event::Pooled(mean) => assert_eq!(self.pooled.replace(mean), None, "a hidden state is told once"),
            Event::Thought { choice, thought } => assert_eq!(self.thoughts.insert(choice, thought), None),
            Event::Finished { choice, reason, usage, times } => {
                assert!(times.started.is_some_and(|started| started >= times.admitted));
                assert_eq!(self.ends.insert(choice, (reason, usage)), None, "a choice ends once");
            }
            Event::Failed(why) => panic!("{why}"),
        }
    }
}

/// A scheduler and its device.
struct Replica {
    pipeline: Pipeline,
    device: FakeDevice,
    in_flight: VecDeque<StepOutcome>,
}

impl Replica {
    fn new(config: SchedulerConfig, drafts: DraftSettings, ledger: &Arc<KeyLedger>) -> Self {
        let pipeline = Pipeline::new(config, drafts, Pace::default()).with_ledger(ledger.clone());
        Self { pipeline, device: FakeDevice::new(&config), in_flight: VecDeque::new() }
    }

    /// Launches what may be launched, then ends the oldest step.
    fn step(&mut self, now: Micros) -> Vec<(RequestId, Event)> {
        while let NextStep::Launch(plan) = self.pipeline.next(now) {
            self.pipeline.launched(&plan, now);
            self.in_flight.push_back(self.device.run(&plan));
        }
        self.pipeline.scheduler.audit();
        let done = self.in_flight.pop_front().and_then(|outcome| self.pipeline.done(outcome, now));
        done.map_or_else(Vec::new, |(events, _)| events)
    }
}

const REQUESTS: u64 = 24;

/// All that shows in how a request is computed and what is told of it, in turn.
fn mixture(id: u64, adapters: &[crate::adapter::ScaledAdapter]) -> Request {
    let draw = |n: u64, below: u64| (mix(id, n) % below) as u32;
    let sure = Level { entropy_max: 1.5, top_prob_min: 0.4 };
    let adaptive = Adaptive { window: 2, hold: sure, held: [9].into(), stop: Some(sure), stop_tokens_min: 4 };
    let (ends, closing, tokens_max) = (vec![41, 42], vec![40, 41], Some(6 + draw(1, 20)));
    let thinking = Thinking { opens: None, ends, closing, tokens_max, adaptive: Some(adaptive) };
    let pools = id % 8 == 5;
    let spec = Spec {
        choices: if pools { 1 } else { 1 + draw(2, 3) },
        max_tokens: Some(if pools { 0 } else { 1 + draw(3, 50) }),
        min_tokens: draw(4, 5),
        end_ids: if id.is_multiple_of(2) { [3].into() } else { Arc::default() },
        sampling: Arc::new(SamplingParams {
            seed: id,
            logprobs: Some(0),
            certainty: true,
            ..SamplingParams::default()
        }),
        priority: draw(5, 2) as i32,
        score_prompt: (id % 4 == 1).then(|| PromptScores { top: 1, from: 3, behind: [5, 6].into() }),
        thinking: (id % 3 == 1).then(|| Arc::new(thinking)),
        experts: id.is_multiple_of(3).then_some(ExpertCut { min: 1, max: 2, mass: 0.5 }),
        adapter: adapters.get(draw(6, 5) as usize).cloned(),
        pool: pools.then_some(if id == 13 { Pooling::Last } else { Pooling::Mean }),
        prediction: (id % 5 == 2).then(|| (0..20).map(|i| i * 7 % VOCAB).collect()),
        drafts: !id.is_multiple_of(7),
        ..Spec::default()
    };
    let prompt: Vec<_> = (0..1 + draw(7, 300)).map(|i| (i * 7 + id as u32) % VOCAB).collect();
    Request::new(RequestId(id), prompt, spec)
}

/// Requests that come one after another to two replicas by turns. After `lost_after` steps the first one is lost, and
/// the other one has all of them. What was told, and how many steps it took.
fn play(drafts: DraftSettings, lost_after: Option<u64>) -> (BTreeMap<RequestId, Told>, u64) {
    let ledger = Arc::new(KeyLedger::default());
    let mut replicas = [(); 2].map(|()| Replica::new(CONFIG, drafts, &ledger));
    let adapters: Vec<_> = super::adapters::adapters(3).into_iter().flatten().collect();
    let mut told = BTreeMap::<RequestId, Told>::new();
    let (mut next, mut now) = (0, 0);
    while next < REQUESTS || replicas.iter().any(|replica| !replica.pipeline.scheduler.is_idle()) {
        now += 1;
        if next < REQUESTS && mix(now, 3).is_multiple_of(3) {
            let lost = lost_after.is_some_and(|after| now > after);
            let to = if lost { 1 } else { (next % 2) as usize };
            let terms = Terms { key: KeyId(1), ..Terms::default() };
            replicas[to].pipeline.admit(mixture(next, &adapters), &terms, Micros(now)).unwrap();
            told.insert(RequestId(next), Told::default());
            next += 1;
        }
        if lost_after == Some(now) {
            let live = ledger.live_requests(KeyId(1));
            let migrated = replicas[0].pipeline.hand_over();
            replicas[0].pipeline.scheduler.assert_all_is_free();
            assert_eq!(ledger.live_requests(KeyId(1)), live, "they keep their places");
            for request in migrated {
                replicas[1].pipeline.may_adopt(&request).unwrap();
                replicas[1].pipeline.adopt(request, Micros(now)).unwrap();
            }
            assert_eq!(ledger.live_requests(KeyId(1)), live);
        }
        for replica in &mut replicas {
            for (id, event) in replica.step(Micros(now)) {
                told.get_mut(&id).unwrap().take(event);
            }
        }
    }
    assert_eq!(ledger.live_requests(KeyId(1)), 0);
    (told, now)
}

#[test]
fn what_callers_are_told_is_the_same_whenever_an_engine_is_lost() {
    let fixed = DraftSettings { mode: DraftMode::Fixed(3), kinds: DraftKinds::all(), room: ROOM };
    for drafts in [DraftSettings::default(), fixed] {
        let (want, steps) = play(drafts, None);
        let tokens: usize = want.values().flat_map(|told| told.tokens.values()).map(Vec::len).sum();
        assert!(tokens > 500 && steps > 60, "{tokens} tokens in {steps} steps");
        for lost_after in (1..steps).step_by(2) {
            let (got, _) = play(drafts, Some(lost_after));
            for (id, told) in &want {
                assert_eq!(&got[id], told, "request {id}, an engine is lost after {lost_after} steps of {steps}");
            }
        }
    }
}

fn idle(ledger: &Arc<KeyLedger>, config: SchedulerConfig) -> Replica {
    Replica::new(config, DraftSettings::default(), ledger)
}

#[test]
fn a_request_that_was_admitted_earlier_goes_first_also_where_it_comes_later() {
    let ledger = Arc::default();
    let one_slot = SchedulerConfig { slots: 1, ..CONFIG };
    let [mut lost, mut other] = [(); 2].map(|()| idle(&ledger, one_slot));
    other.pipeline.admit(request(1, 20, 5), &Terms::default(), Micros(1)).unwrap();
    lost.pipeline.admit(request(2, 20, 5), &Terms::default(), Micros(2)).unwrap();
    other.pipeline.admit(request(3, 20, 5), &Terms::default(), Micros(3)).unwrap();
    other.step(Micros(4));
    lost.pipeline.hand_over().into_iter().for_each(|request| other.pipeline.adopt(request, Micros(5)).unwrap());
    let mut ended = Vec::new();
    while !other.pipeline.scheduler.is_idle() {
        let events = other.step(Micros(6)).into_iter();
        ended.extend(events.filter(|(_, event)| matches!(event, Event::Finished { .. })).map(|(id, _)| id.0));
    }
    assert_eq!(ended, [1, 2, 3]);
}

#[test]
fn a_request_from_elsewhere_is_refused_only_where_it_cannot_run() {
    let ledger = Arc::default();
    let handed_over = || {
        let mut lost = idle(&ledger, CONFIG);
        let spec = Spec { max_tokens: None, ..Spec::default() };
        lost.pipeline.admit(Request { spec: spec.into(), ..request(1, 90, 0) }, &Terms::default(), Micros(0)).unwrap();
        (0..20).for_each(|now| drop(lost.step(Micros(now))));
        lost.pipeline.hand_over().remove(0)
    };
    let tokens = handed_over().choices[0].tokens.len() as u32;
    assert!(tokens > 10);
    let adopt =
        |context| idle(&ledger, SchedulerConfig { context, ..CONFIG }).pipeline.adopt(handed_over(), Micros(30));
    adopt(90 + tokens + 1).unwrap();
    let too_long = Err(Rejected::PromptTooLong { got: 90 + tokens, max: 89 + tokens });
    assert_eq!(adopt(90 + tokens), too_long);
    let mut full = idle(&ledger, SchedulerConfig { queue_requests_max: 1, ..CONFIG });
    full.pipeline.admit(request(2, 20, 5), &Terms::default(), Micros(0)).unwrap();
    full.pipeline.adopt(handed_over(), Micros(30)).expect("it has a place already");
    full.pipeline.drain("draining");
    assert_eq!(full.pipeline.may_adopt(&handed_over()), Err(Rejected::Draining));
    assert_eq!(full.pipeline.adopt(handed_over(), Micros(30)), Err(Rejected::Draining));
}

#[test]
fn a_keys_limits_hold_over_all_schedulers_also_while_its_requests_move() {
    let ledger = Arc::default();
    let [mut lost, mut other] = [(); 2].map(|()| idle(&ledger, CONFIG));
    let limits = KeyLimits { requests: 3, tokens_per_minute: 1_000, ..KeyLimits::default() };
    let terms = Terms { key: KeyId(7), limits, ..Terms::default() };
    lost.pipeline.admit(request(1, 100, 5), &terms, Micros(0)).unwrap();
    lost.pipeline.admit(request(2, 100, 5), &terms, Micros(0)).unwrap();
    other.pipeline.admit(request(3, 100, 5), &terms, Micros(0)).unwrap();
    let busy = Err(Rejected::KeyBusy { live: 3, max: 3 });
    assert_eq!(other.pipeline.admit(request(4, 100, 5), &terms, Micros(0)), busy);
    let mut migrated = lost.pipeline.hand_over();
    assert_eq!(other.pipeline.admit(request(4, 100, 5), &terms, Micros(0)), busy, "two are on their way");
    drop(migrated.pop());
    other.pipeline.admit(request(4, 100, 5), &terms, Micros(0)).expect("one was given up on its way");
    other.pipeline.adopt(migrated.remove(0), Micros(0)).expect("it has a place already");
    while !other.pipeline.scheduler.is_idle() {
        other.step(Micros(0));
    }
    assert_eq!(ledger.live_requests(KeyId(7)), 0);
    // Four prompts of 100 were taken, one of them for nobody, and three outputs of 5.
    let rate = |wait_us| Err(Rejected::KeyRate { max: 1_000, wait_us });
    assert_eq!(other.pipeline.admit(request(5, 600, 5), &terms, Micros(0)), rate(900_000));
}

/// What two replicas serve two keys in many steps, when the first key asks both and the second one the second only:
/// prompts that end there, by replica and key.
fn served_by(ledgers: [Arc<KeyLedger>; 2]) -> [[u32; 2]; 2] {
    let config = SchedulerConfig { slots: 2, step_tokens: 128, ..CONFIG };
    let mut replicas = ledgers.each_ref().map(|ledger| idle(ledger, config));
    let (mut served, mut id) = ([[0; 2]; 2], 0);
    let mut keys = BTreeMap::new();
    for now in 0..400 {
        for (at, replica) in replicas.iter_mut().enumerate() {
            for key in 0..=at {
                while !replica.pipeline.scheduler.waiting_by_key().any(|(of, _)| of.0 == key as u64) {
                    let terms = Terms { key: KeyId(key as u64), ..Terms::default() };
                    id += 1;
                    keys.insert(RequestId(id), key);
                    replica.pipeline.admit(request(id, 128, 1), &terms, Micros(now)).unwrap();
                }
            }
            for (id, event) in replica.step(Micros(now)) {
                served[at][keys[&id]] += u32::from(matches!(event, Event::Finished { .. }));
            }
        }
    }
    served
}

#[test]
fn a_key_that_another_engine_serves_is_behind_on_this_one() {
    let one = Arc::<KeyLedger>::default();
    let [[first, _], [same, other]] = served_by([one.clone(), one]);
    assert!(other * 10 > first * 9 && same * 10 < other, "{first} and {same} of the one key, {other} of the other");
    let [[first, _], [same, other]] = served_by([Arc::default(), Arc::default()]);
    assert!(same.abs_diff(other) * 10 < other && first > 300, "the shared ledger is what does it: {same}, {other}");
}

#[test]
fn a_load_says_what_is_to_be_done_and_how_long_it_takes() {
    let ledger = Arc::default();
    let mut replica = idle(&ledger, SchedulerConfig { slots: 2, ..CONFIG });
    assert_eq!(replica.pipeline.load(), ReplicaLoad { slots_free: 2, ..ReplicaLoad::default() }, "nothing is known");
    for id in 1..=3 {
        replica.pipeline.admit(request(id, 200, 40 * id as u32), &Terms::default(), Micros(0)).unwrap();
    }
    let load = replica.pipeline.load();
    assert_eq!((load.prompt_tokens, load.sequences_waiting, load.slots_free), (600, 3, 2));
    let NextStep::Launch(plan) = replica.pipeline.next(Micros(0)) else { panic!("prompts wait") };
    let load = replica.pipeline.load();
    let computed: u64 = plan.pieces.iter().map(|piece| u64::from(piece.len())).sum();
    assert!(computed > 0 && load.prompt_tokens == 600 - computed, "{load:?}");
    replica.pipeline.launched(&plan, Micros(0));
    replica.in_flight.push_back(replica.device.run(&plan));
    let mut now = 0;
    while replica.pipeline.scheduler.stats().requests_waiting > 0 {
        now += 10_000;
        replica.step(Micros(now));
    }
    replica.pipeline.admit(request(4, 200, 40), &Terms::default(), Micros(now)).unwrap();
    let load = replica.pipeline.load();
    assert!(load.prompt_token_us > 0.0 && load.step_us > 0.0, "{load:?}");
    assert!((5_000.0..20_000.0).contains(&load.step_us), "{load:?}");
}

/// The tokens of a request among these events.
fn tokens_of(events: &[(RequestId, Event)], id: u64) -> Vec<TokenId> {
    let of = events.iter().filter(|(of, _)| of.0 == id);
    of.filter_map(|(_, event)| if let Event::Token { token, .. } = event { Some(*token) } else { None }).collect()
}

#[test]
fn idle_work_of_a_lost_engine_goes_on_as_idle_work_that_no_key_and_no_load_knows_of() {
    let ledger = Arc::default();
    let [mut lost, mut other] = [(); 2].map(|()| idle(&ledger, CONFIG));
    let terms = Terms { key: KeyId(7), idle: true, ..Terms::default() };
    let [reads, waits] = [request(1, 90, 30), request(2, 90, 30)];
    for request in [&reads, &waits] {
        lost.pipeline.admit(request.clone(), &terms, Micros(0)).unwrap();
    }
    let mut events: Vec<_> = (0..12).flat_map(|now| lost.step(Micros(now))).collect();
    assert!((1..30).contains(&tokens_of(&events, 1).len()), "it has begun and has not ended");
    assert_eq!(ledger.live_requests(KeyId(7)), 0);
    let load = lost.pipeline.load();
    let asked = (load.prompt_tokens, load.recomputed_tokens, load.sequences_waiting, load.sequences_running);
    assert_eq!((asked, load.slots_free), ((0, 0, 0, 0), CONFIG.slots), "{load:?}");
    other.pipeline.admit(request(3, 90, 30), &Terms::default(), Micros(12)).unwrap();
    for migrated in lost.pipeline.hand_over() {
        other.pipeline.adopt(migrated, Micros(12)).unwrap();
    }
    lost.pipeline.scheduler.assert_all_is_free();
    assert_eq!((ledger.live_requests(KeyId(7)), other.pipeline.load().sequences_waiting), (0, 1));
    let before = events.len();
    while !other.pipeline.scheduler.is_idle() {
        events.extend(other.step(Micros(13)));
    }
    assert_eq!(events[before].0.0, 3, "whoever has a key goes first");
    for request in [&reads, &waits] {
        let all = super::undisturbed(request, 0, 30);
        assert_eq!(tokens_of(&events, request.id.0), all, "request {} has what it has alone", request.id);
    }
}

#[test]
fn requests_move_between_threads() {
    fn crosses<T: Send>() {}
    crosses::<crate::scheduler::MigratedRequest>();
    crosses::<Arc<KeyLedger>>();
    crosses::<ReplicaLoad>();
}

//! Idle work: nobody else can tell that it is there but by the time that a step takes, and that by little.

use super::device::{FakeDevice, VOCAB};
use super::property::{cases, config};
use super::simulation::{Client, Seen, Setting, cpu, gpu, percentile};
use super::trace::check;
use super::undisturbed;
use crate::constraint::{Source, Sources};
use crate::ids::{CacheScope, KeyId, Micros, RequestId, TokenId};
use crate::sampling::SamplingParams;
use crate::scheduler::{
    CostModel, Event, HostBlocks, Pace, PrefixConfig, Rejected, Request, Scheduler, SchedulerConfig, Spec, StepShape,
    Terms,
};
use crate::step::{StepOutcome, StepPlan};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

#[test]
fn it_stops_within_a_step_and_goes_on_where_it_was() {
    check(
        "A prompt 150 max 2 idle; @2 B prompt 100 max 2",
        "A[0..64] | B[0..100] | B+1 B=length | A[64..128] | A[128..150] | A+1 A=length",
    );
}

#[test]
fn a_slot_that_somebody_wants_is_not_its_own() {
    check(
        "slots 1; A prompt 64 max 3 idle; @3 B prompt 10 max 2",
        "A[0..64] | A+1 | B[0..10] ~A | B+1 B=length | A[0..64] | A+2 A=length | -",
    );
}

#[test]
fn the_youngest_loses_its_pages_first_and_a_parked_one_computes_them_again() {
    check(
        "pages 4; A prompt 40 max 4 idle; B prompt 30 max 4 idle; @3 C prompt 40 max 2",
        "A[0..40] | A+1 B[0..30] | C[0..40] ~B | C+1 C=length | A+1 B[0..30] | A+1 B+1 A=length | B+1 | B+1 B=length",
    );
}

#[test]
fn two_that_keep_each_other_from_a_page_go_on_one_after_the_other() {
    check(
        "pages 3; A prompt 30 max 40 idle; B prompt 20 max 20 idle; after 35",
        "A+1 ~B | A+1 | A+1 | A+1 | A+1 A=length | B[0..20] | B+13",
    );
}

#[test]
fn it_leaves_room_in_the_queue_and_the_queue_leaves_it_waiting() {
    check(
        "slots 1; queue 1; A prompt 64 max 2 idle; B prompt 10 max 2; C prompt 10; D prompt 10 idle",
        "C!queue D!queue B[0..10] | B+1 B=length | A[0..64] | A+1 A=length | -",
    );
}

#[test]
fn it_ends_at_once_when_the_service_does() {
    check(
        "A prompt 150 max 2 idle; B prompt 20 max 9 idle; @2 C prompt 10 max 3; @3 drain; @3 D prompt 10 idle",
        "A[0..64] | C[0..10] | A=failed B=failed D!draining C+1 | C+1 C=length | -",
    );
}

#[test]
fn what_needs_more_pages_than_a_full_cache_leaves_is_refused() {
    let config = SchedulerConfig { pages: 320, ..CONFIG };
    let mut scheduler = Scheduler::new(config);
    let mut admit = |id, prompt: usize, max_tokens| {
        let spec = Spec { max_tokens, ..Spec::default() };
        let terms = Terms { idle: true, ..Terms::default() };
        scheduler.admit_under(Request::new(RequestId(id), vec![1; prompt], spec), &terms, Micros(0), &Pace::default())
    };
    assert_eq!(admit(1, 300, Some(22)), Err(Rejected::TooManyPages { got: 11, max: 10 }));
    assert_eq!(admit(2, 300, Some(21)), Ok(()));
    assert_eq!(admit(3, 300, None), Ok(()), "who asks for the rest gets what fits");
}

const CONFIG: SchedulerConfig = SchedulerConfig {
    slots: 4,
    pages: 128,
    step_tokens: 200,
    context: 1_000,
    queue_requests_max: 64,
    queue_prompt_tokens_max: 60_000,
    steps_in_flight_max: 1,
    adapter_slots: 0,
    prefix: PrefixConfig { checkpoints: 4, checkpoint_bytes: 1, page_bytes: 1, host: HostBlocks::NONE },
};

/// What a cache that has filled up leaves is enough for idle work, which takes nothing from it.
#[test]
fn it_runs_where_the_prefix_cache_has_filled_up_and_costs_it_no_entry() {
    let config = SchedulerConfig { pages: 64, prefix: PrefixConfig { checkpoints: 64, ..CONFIG.prefix }, ..CONFIG };
    let mut side = Side::new(config, Pace::default());
    for id in 0..20 {
        let spec = Spec { max_tokens: Some(1), cache: Some(CacheScope(0)), ..Spec::default() };
        let prompt: Vec<TokenId> = (0..300).map(|i| (i * 7 + id as u32) % VOCAB).collect();
        side.admit(Request::new(RequestId(id), prompt, spec), &Terms::default(), Micros(id));
        side.run_down(id);
    }
    let before = side.scheduler.prefix_stats();
    assert!(before.totals.evicted > 0, "the cache is full: {before:?}");
    let request = Request::new(RequestId(100), vec![3; 60], Spec { max_tokens: Some(4), ..Spec::default() });
    side.admit(request, &Terms { idle: true, ..Terms::default() }, Micros(100));
    side.run_down(100);
    assert_eq!(side.tokens[&RequestId(100)].len(), 4);
    assert_eq!(side.scheduler.prefix_stats(), before);
}

/// A scheduler and its device.
struct Side {
    scheduler: Scheduler,
    device: FakeDevice,
    pace: Pace,
    in_flight: VecDeque<StepOutcome>,
    requests: BTreeMap<RequestId, Request>,
    tokens: BTreeMap<RequestId, Vec<TokenId>>,
}

/// A piece of a plan, apart from where its memory lies: whose it is, its form, its positions, samples, pages and
/// checkpoints.
type PieceSeen = (RequestId, String);

impl Side {
    fn new(config: SchedulerConfig, pace: Pace) -> Self {
        let (requests, tokens) = (BTreeMap::new(), BTreeMap::new());
        let (scheduler, device) = (Scheduler::new(config), FakeDevice::new(&config));
        Self { scheduler, device, pace, in_flight: VecDeque::new(), requests, tokens }
    }

    fn admit(&mut self, request: Request, terms: &Terms, now: Micros) -> Option<Rejected> {
        let refused = self.scheduler.admit_under(request.clone(), terms, now, &self.pace).err();
        if refused.is_none() {
            self.tokens.insert(request.id, Vec::new());
            self.requests.insert(request.id, request);
        }
        refused
    }

    fn launch(&mut self, now: Micros) -> Option<StepPlan> {
        let plan = self.scheduler.plan_within(now, &self.pace)?;
        self.in_flight.push_back(self.device.run(&plan));
        Some(plan)
    }

    /// Events of all that is not idle work.
    fn commit(&mut self, now: Micros) -> Vec<(RequestId, Event)> {
        let Some(outcome) = self.in_flight.pop_front() else { return Vec::new() };
        let mut events = self.scheduler.commit(outcome, now);
        for (id, event) in &events {
            if let Event::Token { token, choice: 0, .. } = event {
                self.tokens.get_mut(id).unwrap().push(*token);
            }
        }
        self.scheduler.audit();
        events.retain(|(id, _)| id.0 < IDLE_FROM);
        events
    }

    fn run_down(&mut self, now: u64) {
        while !self.scheduler.is_idle() {
            self.launch(Micros(now)).expect("what is live can run");
            self.commit(Micros(now));
        }
    }

    /// The pieces of a plan that are not of idle work.
    fn others(&self, plan: Option<&StepPlan>) -> Vec<PieceSeen> {
        let seen = |piece: &crate::step::Piece| {
            let id = self.scheduler.all().find(|seq| seq.rank.seq == piece.seq)?.request.id;
            let exports: Vec<_> = piece.exports.iter().map(|export| export.position).collect();
            let rows = (piece.form, piece.start, piece.len(), piece.samples.len(), piece.pages.len(), exports);
            (id.0 < IDLE_FROM).then(|| (id, format!("{rows:?}")))
        };
        plan.into_iter().flat_map(|plan| &plan.pieces).filter_map(seen).collect()
    }

    fn live_others(&self) -> bool {
        self.scheduler.has_to_work()
    }
}

/// Ids of idle requests begin here.
const IDLE_FROM: u64 = 1_000_000;

#[derive(Clone, Debug)]
enum Op {
    Admit { prompt: u32, choices: u32, max_tokens: u32, priority: i32, key: u64, ends: bool },
    Idle { prompt: u32, max_tokens: u32, priority: i32 },
    Launch,
    Commit,
    CancelIdle(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let admit = (1..200u32, 1..3u32, 0..40u32, -1..2i32, 0..3u64, any::<bool>()).prop_map(
        |(prompt, choices, max_tokens, priority, key, ends)| Op::Admit {
            prompt,
            choices,
            max_tokens,
            priority,
            key,
            ends,
        },
    );
    let idle = (1..200u32, 0..40u32, -1..2i32).prop_map(|(prompt, max_tokens, priority)| Op::Idle {
        prompt,
        max_tokens,
        priority,
    });
    prop_oneof![
        2 => admit,
        3 => idle,
        12 => Just(Op::Launch),
        12 => Just(Op::Commit),
        1 => (0..150u64).prop_map(Op::CancelIdle),
    ]
}

/// A step takes 1 ms and little more for each row, so that idle rows find room beside others.
fn learned() -> CostModel {
    let mut cost = CostModel::default();
    for i in 0..400u32 {
        let (rows, prompt_rows) = (1 + i % 8, if i % 2 == 0 { 0 } else { 64 });
        let shape = StepShape { passes: 1, rows, prompt_rows, ..StepShape::default() };
        cost.observe(&shape, Micros(u64::from(1_000 + rows + prompt_rows / 4)));
    }
    cost
}

/// The same requests with idle work beside them and without.
struct Pair {
    without: Side,
    with: Side,
    clock: u64,
    /// Steps that others shared with idle work.
    shared: u32,
}

impl Pair {
    fn apply(&mut self, op: &Op) {
        self.clock += 1;
        let now = Micros(self.clock);
        match *op {
            Op::Admit { prompt, choices, max_tokens, priority, key, ends } => {
                if self.with.scheduler.in_flight.back().is_some_and(|step| step.is_idle) {
                    // Whoever comes waits for the step of idle work that is in flight.
                    assert_eq!(self.with.in_flight.len(), 1, "idle work has one step at a time");
                    self.with.commit(now);
                }
                let spec = Spec {
                    choices,
                    max_tokens: Some(max_tokens),
                    sampling: Arc::new(SamplingParams { seed: self.clock, ..SamplingParams::default() }),
                    end_ids: if ends { [3, 4].into() } else { Arc::default() },
                    priority,
                    cache: Some(CacheScope(0)).filter(|_| key < 2),
                    ..Spec::default()
                };
                let tokens: Vec<_> = (0..prompt).map(|i| (i * 7 + self.clock as u32 % 2) % VOCAB).collect();
                let request = Request::new(RequestId(self.clock), tokens, spec);
                let terms = Terms { key: KeyId(key), ..Terms::default() };
                let refused = self.without.admit(request.clone(), &terms, now);
                assert_eq!(self.with.admit(request, &terms, now), refused, "nobody is refused for idle work");
            }
            Op::Idle { prompt, max_tokens, priority } => {
                let sampling = Arc::new(SamplingParams { seed: self.clock, ..SamplingParams::default() });
                let spec = Spec { max_tokens: Some(max_tokens), sampling, priority, ..Spec::default() };
                let request = Request::new(RequestId(IDLE_FROM + self.clock), vec![7; prompt as usize], spec);
                self.with.admit(request, &Terms { idle: true, ..Terms::default() }, now);
            }
            Op::Launch => self.launch(now),
            Op::Commit => self.commit(now),
            Op::CancelIdle(at) => {
                let id = RequestId(IDLE_FROM + at);
                if self.with.scheduler.cancel(id) {
                    self.with.requests.remove(&id);
                }
            }
        }
        self.with.scheduler.audit();
    }

    fn launch(&mut self, now: Micros) {
        let plan = self.without.launch(now);
        let others = self.without.others(plan.as_ref());
        let beside = self.with.launch(now);
        assert_eq!(self.with.others(beside.as_ref()), others, "others have the rows that they have without");
        let pieces = beside.as_ref().map_or(0, |plan| plan.pieces.len());
        assert!(others.is_empty() == plan.is_none());
        if plan.is_none() && pieces > 0 {
            assert!(!self.with.live_others(), "a step of idle work alone is planned while nobody else lives");
        }
        self.shared += u32::from(plan.is_some() && pieces > others.len());
    }

    fn commit(&mut self, now: Micros) {
        let idle_alone = self.without.in_flight.is_empty();
        assert_eq!(self.with.commit(now), if idle_alone { Vec::new() } else { self.without.commit(now) });
        let [with, without] = [&self.with, &self.without].map(|side| side.scheduler.prefix_stats());
        assert_eq!(with, without, "the cache has what it has without");
    }

    fn finish(&mut self) {
        while !(self.with.scheduler.is_idle() && self.without.scheduler.is_idle()) {
            self.clock += 1;
            self.launch(Micros(self.clock));
            self.commit(Micros(self.clock));
        }
        self.with.scheduler.assert_all_is_free();
        for (id, request) in self.with.requests.iter().filter(|(id, _)| id.0 >= IDLE_FROM) {
            let room = self.with.scheduler.config.context - request.prompt.len() as u32;
            let all = undisturbed(request, 0, request.spec.max_tokens.unwrap().min(room));
            assert_eq!(self.with.tokens[id], all, "idle request {id} generates what it generates alone");
        }
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn others_have_the_schedule_that_they_have_without_it(
        config in config(),
        target_us in prop::option::of(1..10_000u64),
        ops in prop::collection::vec(op(), 1..150),
    ) {
        // With room enough for idle work that borrows; the host's copies are made in steps of idle work too.
        let prefix = PrefixConfig { host: HostBlocks::NONE, ..config.prefix };
        let config = SchedulerConfig { prefix, adapter_slots: 0, pages: config.pages + 300, ..config };
        let pace = Pace { cost: learned(), target_us: target_us.unwrap_or(0), ..Pace::default() };
        let (without, with) = (Side::new(config, pace), Side::new(config, pace));
        let mut pair = Pair { without, with, clock: 0, shared: 0 };
        ops.iter().for_each(|op| pair.apply(op));
        pair.finish();
    }

    #[test]
    fn others_have_it_where_memory_is_short(
        config in config(),
        ops in prop::collection::vec(op(), 1..150),
    ) {
        // Without a cache idle work may have all pages.
        let config = SchedulerConfig { prefix: PrefixConfig::OFF, adapter_slots: 0, ..config };
        let pace = Pace { cost: learned(), ..Pace::default() };
        let (without, with) = (Side::new(config, pace), Side::new(config, pace));
        let mut pair = Pair { without, with, clock: 0, shared: 0 };
        ops.iter().for_each(|op| pair.apply(op));
        pair.finish();
    }
}

#[test]
fn it_shares_steps_of_decode_rows() {
    let pace = Pace { cost: learned(), ..Pace::default() };
    let mut pair = Pair { without: Side::new(CONFIG, pace), with: Side::new(CONFIG, pace), clock: 0, shared: 0 };
    pair.apply(&Op::Admit { prompt: 30, choices: 1, max_tokens: 400, priority: 0, key: 0, ends: false });
    pair.apply(&Op::Idle { prompt: 90, max_tokens: 30, priority: 0 });
    pair.finish();
    assert!(pair.shared > 20, "{} steps", pair.shared);
}

#[test]
fn rows_that_wait_for_a_source_hold_up_nobody() {
    let mut side = Side::new(CONFIG, Pace { cost: learned(), ..Pace::default() });
    let spec = |max_tokens, waits_for| Spec { max_tokens: Some(max_tokens), waits_for, ..Spec::default() };
    let stream = Request::new(RequestId(1), vec![1; 30], spec(300, Sources::NONE));
    let asks = Request::new(RequestId(IDLE_FROM), vec![7; 90], spec(10, Sources::only(Source::Grammar)));
    side.admit(stream, &Terms::default(), Micros(0));
    side.admit(asks, &Terms { idle: true, ..Terms::default() }, Micros(0));
    while side.live_others() {
        let plan = side.launch(Micros(1)).expect("a stream goes on");
        assert_eq!(plan.pieces.len(), 1, "the stream has its steps to itself");
        side.commit(Micros(1));
    }
    side.run_down(2);
    assert_eq!(side.tokens[&RequestId(IDLE_FROM)].len(), 10);
}

/// 16 streams with idle work beside them and without, for so many seconds of the clock.
fn streams(setting: &Setting, idle: &[Client], seconds: u64) -> (Vec<Seen>, Vec<Seen>) {
    // Prompts of the streams themselves are in one step of a hundred, so the percentile is one of decode steps.
    let chat = Client { key: 1, prompt: 100, outputs: 2_000, pause_us: 0 };
    let clients = [vec![chat; 16], idle.to_vec()].concat();
    // Without a slot that nobody wants idle work would wait.
    let config = SchedulerConfig { slots: 24, ..setting.config };
    let mut world = Setting { config, ..*setting }.world(&clients);
    world.idle_from = 16;
    world.run(1_000_000 * seconds).into_iter().partition(|seen| seen.client < 16)
}

#[test]
fn beside_16_streams_the_times_between_tokens_are_five_percent_longer_at_most() {
    let texts = Client { key: 0, prompt: 300, outputs: 1, pause_us: 0 };
    let answers = Client { key: 0, prompt: 50, outputs: 200, pause_us: 0 };
    for setting in [cpu(), gpu()] {
        let gaps = |seen: &[Seen]| seen.iter().flat_map(Seen::gaps).collect::<Vec<_>>();
        let tokens = |seen: &[Seen]| seen.iter().map(|seen| seen.tokens.len()).sum::<usize>();
        let (without, _) = streams(&setting, &[], 10);
        for idle in [texts, answers] {
            let (beside, done) = streams(&setting, &[idle; 8], 10);
            for percent in [50, 95] {
                let [with, without] = [&beside, &without].map(|seen| percentile(gaps(seen), percent));
                assert!(100 * with <= 105 * without, "p{percent} {with} us beside idle work, {without} us without");
            }
            assert!(100 * tokens(&beside) >= 95 * tokens(&without), "{} of {}", tokens(&beside), tokens(&without));
            assert!(tokens(&done) > 10, "idle work goes on: {} tokens", tokens(&done));
        }
    }
}

//! Drafts change no token: whoever guesses, rightly or wrongly, each choice generates what it generates alone.

use super::device::{FakeDevice, VOCAB, mix};
use super::property::{World, cases, config, op, pace};
use super::undisturbed;
use crate::constraint::Source;
use crate::constraint::grammar::ForcedRun;
use crate::drafts::{DraftKind, DraftKinds, DraftMode, DraftSource, Guess};
use crate::ids::{KeyId, Micros, RequestId, TokenId};
use crate::sampling::SamplingParams;
use crate::scheduler::{
    DraftSettings, Event, MakeSource, Pace, PrefixConfig, Request, Scheduler, SchedulerConfig, Spec, Terms,
};
use crate::step::DraftRoom;
use crate::step::StepPlan;
use proptest::prelude::*;
use std::sync::Arc;

/// How a test's source guesses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Guesser {
    /// What the sequence generates alone.
    Right,
    /// What the sequence generates alone, with each token one further.
    Wrong,
    /// So many of a hundred tokens are right.
    Often(u64),
    /// Now this, now that, of any length.
    Random(u64),
    /// The first one is right, and so on; the fourth call panics.
    Panics,
}

struct TestSource {
    guesser: Guesser,
    output: Vec<TokenId>,
    read: usize,
    calls: u64,
}

impl DraftSource for TestSource {
    fn read(&mut self, tokens: &[TokenId]) {
        assert!(self.output[self.read..].starts_with(tokens), "tokens come once and in order");
        self.read += tokens.len();
    }

    fn guess(&mut self, max: usize) -> Option<Guess> {
        self.calls += 1;
        let rest = self.output[self.read..].iter().copied();
        let (len, matched) = match self.guesser {
            Guesser::Random(seed) => {
                let mixed = seed ^ (self.calls * 77) ^ (self.read as u64 * 31);
                let drawn = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
                (drawn as usize % (max + 3), drawn as usize % 20)
            }
            Guesser::Panics if self.calls > 3 => panic!("on purpose"),
            _ => (max, 20),
        };
        let wrong = |i: usize| match self.guesser {
            Guesser::Wrong => 1,
            Guesser::Random(seed) => u32::from((seed >> (i % 40)) & 3 == 0),
            Guesser::Often(right) => u32::from(mix((self.read + i) as u64, 11) % 100 >= right),
            Guesser::Right | Guesser::Panics => 0,
        };
        let tokens: Vec<_> = rest.enumerate().map(|(i, token)| (token + wrong(i)) % VOCAB).take(len).collect();
        Some(Guess { tokens, matched })
    }
}

fn source(guesser: Guesser) -> MakeSource {
    Arc::new(move |request, choice| {
        let output = undisturbed(request, choice, request.spec.max_tokens.unwrap_or(400).min(400));
        Some(Box::new(TestSource { guesser, output, read: 0, calls: 0 }))
    })
}

pub(super) fn drafting(scheduler: Scheduler, settings: DraftSettings, guesser: Option<Guesser>) -> Scheduler {
    let scheduler = scheduler.with_drafts(settings);
    match guesser {
        Some(guesser) => scheduler.with_draft_source(DraftKind::Ngram, source(guesser)),
        None => scheduler,
    }
}

pub(super) const ROOM: DraftRoom =
    DraftRoom { piece_max: 7, step_max: 16, rows_max: 64, penalties: true, guesses: true, follow_rows_max: 64 };

pub(super) fn guesser() -> impl Strategy<Value = Option<Guesser>> {
    let own = prop_oneof![
        Just(Guesser::Right),
        Just(Guesser::Wrong),
        any::<u64>().prop_map(Guesser::Random),
        Just(Guesser::Panics)
    ];
    prop::option::weighted(0.8, own)
}

pub(super) fn mode() -> impl Strategy<Value = DraftMode> {
    prop_oneof![1 => Just(DraftMode::Auto), 3 => (1..8u32).prop_map(DraftMode::Fixed)]
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn every_choice_generates_what_it_generates_alone_whatever_is_drafted(
        config in config(),
        pace in pace(),
        mode in mode(),
        room in (1..8u32, 1..20u32),
        guesser in guesser(),
        ops in prop::collection::vec(op(), 1..150),
    ) {
        // Steps that no draft finds room in are the other test's.
        let config = SchedulerConfig { step_tokens: config.step_tokens + 80, ..config };
        let mut world = World::new(config, pace);
        let room = DraftRoom { piece_max: room.0, step_max: room.1, ..ROOM };
        let settings = DraftSettings { mode, kinds: DraftKinds::all(), room };
        world.pipeline.scheduler = drafting(Scheduler::new(config), settings, guesser);
        ops.iter().for_each(|op| world.apply(op));
        world.finish();
        let totals = world.pipeline.scheduler.draft_totals();
        prop_assert!(totals.accepted.iter().flatten().sum::<u64>() <= totals.drafted.iter().sum::<u64>());
    }
}

const CONFIG: SchedulerConfig = SchedulerConfig {
    slots: 4,
    pages: 200,
    step_tokens: 200,
    context: 1_000,
    queue_requests_max: 64,
    queue_prompt_tokens_max: 60_000,
    steps_in_flight_max: 2,
    adapter_slots: 8,
    prefix: PrefixConfig::OFF,
};

pub(super) fn request(id: u64, prompt: u32, max_tokens: u32) -> Request {
    let sampling = SamplingParams { seed: id, ..SamplingParams::default() };
    let spec = Spec { max_tokens: Some(max_tokens), sampling: Arc::new(sampling), ..Spec::default() };
    let prompt: Vec<_> = (0..prompt).map(|i| (i * i + id as u32) % VOCAB).collect();
    Request::new(RequestId(id), prompt, spec)
}

/// A device whose steps take a millisecond and so many microseconds a row.
struct Run {
    scheduler: Scheduler,
    device: FakeDevice,
    pace: Pace,
    row_us: u64,
    /// How long the device waits for a step with drafts.
    gap_us: u64,
    now: u64,
    steps: u64,
    /// What the draft head takes for a guess.
    guess_us: u64,
    tokens: Vec<TokenId>,
}

impl Run {
    fn new(mode: DraftMode, guesser: Option<Guesser>, row_us: u64) -> Self {
        let kinds = DraftKinds::all().without(DraftKind::Mtp);
        let scheduler = drafting(Scheduler::new(CONFIG), DraftSettings { mode, kinds, room: ROOM }, guesser);
        let device = FakeDevice::new(&CONFIG);
        let pace = Pace::default();
        Self { scheduler, device, pace, row_us, gap_us: 0, now: 0, steps: 0, guess_us: 0, tokens: Vec::new() }
    }

    fn step(&mut self) -> Option<StepPlan> {
        let plan = self.scheduler.plan_within(Micros(self.now), &self.pace)?;
        let shape = self.pace.shape(&plan);
        let gap = if shape.late { self.gap_us } else { 0 };
        let took = gap + 1_000 + self.row_us * u64::from(shape.rows) + 20 * u64::from(shape.prompt_rows);
        self.pace.cost.observe(&shape, Micros(took));
        let guessed = self.guess_us * u64::from(shape.guess_rows);
        self.pace.cost.observe_guesses(&shape, Micros(guessed));
        (self.now, self.steps) = (self.now + took + guessed, self.steps + 1);
        let outcome = self.device.run(&plan);
        for (_, event) in self.scheduler.commit(outcome, Micros(self.now)) {
            if let Event::Token { token, .. } = event {
                self.tokens.push(token);
            }
        }
        Some(plan)
    }

    fn finish(&mut self) {
        while self.step().is_some() {}
        assert!(self.scheduler.is_idle());
    }

    /// The time that a request of 400 tokens took.
    fn alone(mode: DraftMode, guesser: Option<Guesser>, row_us: u64) -> u64 {
        Self::with_gaps(mode, guesser, row_us, 0)
    }

    fn with_gaps(mode: DraftMode, guesser: Option<Guesser>, row_us: u64, gap_us: u64) -> u64 {
        let mut run = Self { gap_us, ..Self::new(mode, guesser, row_us) };
        let request = request(1, 40, 400);
        run.scheduler.admit(request.clone(), Micros(0)).unwrap();
        run.finish();
        assert_eq!(run.tokens, undisturbed(&request, 0, 400));
        run.now
    }
}

#[test]
fn right_guesses_save_steps_and_wrong_ones_are_soon_no_longer_drafted() {
    let off = Run::alone(DraftMode::Off, Some(Guesser::Right), 50);
    let right = Run::alone(DraftMode::Auto, Some(Guesser::Right), 50);
    assert!(right * 5 < off, "{right} of {off} us");
    let wrong = Run::alone(DraftMode::Auto, Some(Guesser::Wrong), 50);
    assert!(wrong * 98 < off * 100, "{wrong} of {off} us");
    assert!(Run::alone(DraftMode::Fixed(7), Some(Guesser::Wrong), 50) > off + off / 4, "the gate is what saves it");
    let dear = Run::alone(DraftMode::Auto, Some(Guesser::Right), 5_000);
    assert!(dear * 98 < Run::alone(DraftMode::Off, None, 5_000) * 100, "{dear} us: a row costs as much as a step");
}

#[test]
fn what_the_device_waits_for_a_step_that_is_planned_late_counts_against_drafts() {
    let off = Run::alone(DraftMode::Off, None, 50);
    let short = Run::with_gaps(DraftMode::Auto, Some(Guesser::Right), 50, 500);
    assert!(short * 3 < off, "{short} of {off} us");
    let long = Run::with_gaps(DraftMode::Auto, Some(Guesser::Right), 50, 12_000);
    assert!(long * 85 < off * 100, "{long} of {off} us: a few waits teach it, and it tries again");
    assert!(Run::with_gaps(DraftMode::Fixed(7), Some(Guesser::Right), 50, 12_000) > off + off / 2);
}

/// The time that a request of 400 tokens took with a draft head of whose guesses, which take so long each, some are
/// right, and how many were drafted.
fn with_head(mode: DraftMode, kinds: DraftKinds, right: u64, guess_us: u64) -> (u64, u64) {
    let mut run = Run::new(mode, None, 50);
    run.scheduler = Scheduler::new(CONFIG).with_drafts(DraftSettings { mode, kinds, room: ROOM });
    (run.device.guesses_right, run.guess_us) = (Some(right), guess_us);
    let request = request(1, 40, 400);
    run.scheduler.admit(request.clone(), Micros(0)).unwrap();
    run.finish();
    assert_eq!(run.tokens, undisturbed(&request, 0, 400));
    (run.now, run.scheduler.draft_totals().drafted[DraftKind::Mtp as usize])
}

#[test]
fn a_draft_head_is_asked_where_its_guesses_pay_for_what_they_take() {
    let (auto, only) = (DraftMode::Auto, [DraftKind::Mtp].into_iter().collect());
    let (off, none) = with_head(DraftMode::Off, only, 100, 200);
    assert_eq!(none, 0);
    let (right, drafted) = with_head(auto, only, 100, 200);
    assert!(right * 5 < off * 3 && drafted > 200, "{right} of {off} us, {drafted} drafted");
    for (right, guess_us) in [(0, 200), (30, 400), (100, 3_000)] {
        let (took, drafted) = with_head(auto, only, right, guess_us);
        // It tries now and then, and the first times cost what they cost.
        assert!(took * 94 < off * 100, "{right} right of a hundred at {guess_us} us: {took} of {off} us, {drafted}");
    }
    let others = DraftKinds::all().without(DraftKind::Mtp);
    assert_eq!(with_head(DraftMode::Fixed(3), others, 100, 200).1, 0, "nobody asked for it");
    assert!(with_head(DraftMode::Fixed(3), only, 100, 200).1 > 200);
}

/// An answer of 200 tokens with two steps in flight: how many steps it took, and how many of them followed one whose outcome
/// nobody knew. Of the draft head's guesses so many of a hundred are right, others come when the answer is half there.
fn steps_that_follow(right: u64, guesser: Option<Guesser>, others: u64) -> (u32, u32) {
    let settings = DraftSettings { mode: DraftMode::Fixed(3), kinds: DraftKinds::all(), room: ROOM };
    let mut scheduler = drafting(Scheduler::new(CONFIG), settings, guesser);
    let mut device = FakeDevice::new(&CONFIG);
    device.guesses_right = Some(right);
    let all: Vec<_> = (0..=others).map(|id| request(id, 40, 200)).collect();
    scheduler.admit(all[0].clone(), Micros(0)).unwrap();
    let (mut tokens, mut flying) = (vec![Vec::new(); all.len()], std::collections::VecDeque::new());
    let (mut steps, mut follow, mut open) = (0, 0, true);
    while !scheduler.is_idle() {
        if open && tokens[0].len() >= 100 {
            all[1..].iter().for_each(|request| scheduler.admit(request.clone(), Micros(0)).unwrap());
            open = false;
        }
        while let Some(plan) = scheduler.plan(Micros(0)) {
            steps += 1;
            follow += u32::from(plan.pieces.iter().all(|piece| piece.follows.is_some()));
            flying.push_back(device.run(&plan));
            scheduler.audit();
        }
        for (id, event) in scheduler.commit(flying.pop_front().expect("a step is in flight"), Micros(0)) {
            tokens[id.0 as usize].extend(if let Event::Token { token, .. } = event { Some(token) } else { None });
        }
        scheduler.audit();
    }
    all.iter().zip(&tokens).for_each(|(request, tokens)| assert_eq!(*tokens, undisturbed(request, 0, 200)));
    (steps, follow)
}

#[test]
fn a_step_follows_one_whose_outcome_is_not_known_where_the_draft_head_guesses_for_all() {
    let (steps, follow) = steps_that_follow(100, None, 0);
    assert!(follow * 10 > steps * 8 && steps < 80, "{follow} of {steps}");
    let (steps, follow) = steps_that_follow(0, None, 0);
    assert!(follow * 10 > steps * 8 && steps > 190, "{follow} of {steps}, none of them right");
    let (steps, follow) = steps_that_follow(0, Some(Guesser::Right), 0);
    assert!(follow * 10 < steps, "another source has better guesses: {follow} of {steps}");
    let (steps, follow) = steps_that_follow(100, None, 9);
    assert!(follow > 20 && follow * 2 < steps, "who waits for a place is let in first: {follow} of {steps}");
}

#[test]
fn a_prompts_end_is_guessed_behind_unless_choices_part_there() {
    let steps = |spec: Spec| {
        let settings =
            DraftSettings { mode: DraftMode::Fixed(7), kinds: [DraftKind::Mtp].into_iter().collect(), room: ROOM };
        let mut scheduler = drafting(Scheduler::new(CONFIG), settings, None);
        let mut device = FakeDevice::new(&CONFIG);
        device.guesses_right = Some(100);
        let request = Request { spec: Arc::new(Spec { max_tokens: Some(5), ..spec }), ..request(1, 100, 5) };
        scheduler.admit(request, Micros(0)).unwrap();
        std::iter::from_fn(|| {
            let plan = scheduler.plan(Micros(0))?;
            let outcome = device.run(&plan);
            scheduler.commit(outcome, Micros(0));
            scheduler.audit();
            Some(plan.pieces.iter().map(|piece| (piece.guesses, piece.drafts.len())).collect::<Vec<_>>())
        })
        .collect::<Vec<_>>()
    };
    // Of five tokens the prompt's end says one, and the last has no row.
    let alone = steps(Spec::default());
    assert_eq!(alone[0], [(3, 0)]);
    assert!(alone[1] == [(0, 3)] || alone[1] == [(1, 1)], "{alone:?}");
    assert_eq!(steps(Spec { choices: 2, ..Spec::default() })[0], [(0, 0)]);
    assert_eq!(steps(Spec { drafts: false, ..Spec::default() })[0], [(0, 0)]);
}

/// Outputs that a grammar leaves no choice of, from every eighth on.
const RUN: usize = 6;

/// The steps that an answer of 96 tokens takes, two in flight, when runs of it are told while the step before is.
fn steps_with_runs(kinds: DraftKinds, spec: Spec) -> u64 {
    let settings = DraftSettings { mode: DraftMode::Fixed(7), kinds, room: ROOM };
    let mut scheduler = Scheduler::new(CONFIG).with_drafts(settings);
    let mut device = FakeDevice::new(&CONFIG);
    let request = Request { spec: Arc::new(Spec { max_tokens: Some(96), ..spec }), ..request(1, 40, 96) };
    let alone = undisturbed(&request, 0, 96);
    scheduler.admit(request, Micros(0)).unwrap();
    let (mut tokens, mut flying, mut steps) = (Vec::new(), std::collections::VecDeque::new(), 0);
    loop {
        if let Some(plan) = scheduler.plan(Micros(0)) {
            steps += 1;
            for row in plan.sample_rows().filter(|row| row.output_index % 8 == 0) {
                let (output, seq) = (row.output_index, row.seq);
                let run = alone.iter().skip(output as usize).take(RUN).copied().collect();
                scheduler.note_run(ForcedRun { seq, output, tokens: run });
            }
            flying.push_back(device.run(&plan));
        } else if flying.is_empty() {
            break;
        }
        if flying.len() == 2 || scheduler.waits_to_draft(&Pace::default()) || tokens.len() + flying.len() >= 96 {
            for (_, event) in scheduler.commit(flying.pop_front().unwrap(), Micros(0)) {
                tokens.extend(if let Event::Token { token, .. } = event { Some(token) } else { None });
            }
        }
    }
    assert!(scheduler.is_idle());
    assert_eq!(tokens, alone);
    let totals = scheduler.draft_totals();
    let accepted = totals.accepted[DraftKind::Grammar as usize].iter().sum::<u64>();
    assert_eq!(accepted, totals.drafted[DraftKind::Grammar as usize], "runs are certain");
    steps
}

#[test]
fn a_run_that_a_grammar_leaves_no_choice_of_takes_one_step_behind_its_first_token() {
    let under = |waits_for: &[Source]| Spec { waits_for: waits_for.iter().copied().collect(), ..Spec::default() };
    let (all, grammar) = (DraftKinds::all(), [Source::Grammar]);
    let without = steps_with_runs(all.without(DraftKind::Grammar), under(&grammar));
    let with_runs = steps_with_runs(all, under(&grammar));
    // Of a run of six the first token is asked for alone; the five behind it and the free one after them take one step.
    assert_eq!(without - with_runs, 96 / 8 * (RUN as u64 - 1), "{with_runs} of {without} steps");
    assert_eq!(steps_with_runs(all, under(&[Source::Grammar, Source::Tables])), without, "tables read each token");
    assert_eq!(steps_with_runs(all, Spec { drafts: false, ..under(&grammar) }), without, "nothing is drafted for it");
}

#[test]
fn a_source_that_panics_is_switched_off_and_streams_go_on() {
    let mut run = Run::new(DraftMode::Fixed(4), Some(Guesser::Panics), 50);
    let requests = [request(1, 30, 60), request(2, 50, 60)];
    requests.iter().for_each(|request| run.scheduler.admit(request.clone(), Micros(0)).unwrap());
    run.finish();
    let totals = run.scheduler.draft_totals();
    assert_eq!((totals.lost, run.tokens.len()), (1, 120));
    assert!(totals.drafted.iter().sum::<u64>() > 0, "it drafted before");
}

#[test]
fn accepted_tokens_are_charged_and_rejected_ones_are_not() {
    let served = |guesser| {
        let mut run = Run::new(DraftMode::Fixed(7), Some(guesser), 50);
        let terms = Terms { key: KeyId(3), ..Terms::default() };
        run.scheduler.admit_under(request(1, 40, 100), &terms, Micros(0), &Pace::default()).unwrap();
        // Another one of the key keeps its account open.
        run.scheduler.admit_under(request(2, 40, 900), &terms, Micros(0), &Pace::default()).unwrap();
        while run.tokens.len() < 400 {
            run.step();
        }
        let tokens = run.tokens.len() as u64;
        (run.scheduler.accounts.tokens_behind(KeyId(9), KeyId(3)) as u64, tokens)
    };
    for guesser in [Guesser::Right, Guesser::Wrong] {
        let (charged, tokens) = served(guesser);
        // Four for each token, one for each of the prompts' 80; a plan's tokens are charged with it.
        let want = 80 + 4 * tokens;
        assert!(charged.abs_diff(want) <= 4 * 16, "{guesser:?}: {charged}, {want} wanted");
    }
}

#[test]
fn nothing_is_drafted_for_a_key_above_its_share_while_another_waits() {
    let mut run = Run::new(DraftMode::Fixed(7), Some(Guesser::Right), 50);
    let terms = |key| Terms { key: KeyId(key), ..Terms::default() };
    for id in 1..=3 {
        run.scheduler.admit_under(request(id, 30, 300), &terms(1), Micros(0), &Pace::default()).unwrap();
    }
    let drafts = |plan: &StepPlan| plan.pieces.iter().map(|piece| piece.drafts.len()).sum::<usize>();
    for _ in 0..6 {
        run.step();
    }
    assert!(drafts(&run.step().unwrap()) > 0, "nobody else is there");
    run.scheduler.admit_under(request(9, 900, 50), &terms(2), Micros(run.now), &Pace::default()).unwrap();
    let mut beside = 0;
    loop {
        let plan = run.step().unwrap();
        let reads = plan.pieces.iter().any(|piece| piece.form == crate::step::Form::Chunked);
        if !reads {
            break;
        }
        // The step in which its prompt ends is planned before anybody knows that nothing waits any more.
        beside += 1;
        assert_eq!(drafts(&plan), 0, "the other key has a prompt to read");
    }
    assert!(beside > 2, "its prompt took several steps");
    assert!((0..4).any(|_| drafts(&run.step().unwrap()) > 0), "and then they draft again");
}

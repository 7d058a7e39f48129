//! Requests that the scheduler serves with drafts and without: what a backend's tests of drafts share. Sources are right,
//! wrong or random, and every token and log-probability must be that of a run without drafts.

use super::Random;
use chimere_engine::adapter::ScaledAdapter;
use chimere_engine::backend::{Backend, Pending};
use chimere_engine::drafts::{DraftKind, DraftKinds, DraftMode, DraftSource, Guess};
use chimere_engine::ids::{CacheScope, KeyId, Micros, RequestId, TokenId};
use chimere_engine::sampling::SamplingParams;
use chimere_engine::scheduler::{
    DraftSettings, DraftTotals, Event, HostBlocks, MakeSource, Pace, PrefixConfig, Request, Scheduler, SchedulerConfig,
    Spec, Terms,
};
use chimere_engine::step::ExpertCut;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Tokens and the bits of their log-probabilities, by request and choice.
type Outputs = BTreeMap<(u64, u32), Vec<(TokenId, u32, u32)>>;

const REQUESTS: u64 = 18;
const VOCAB: u64 = 512;
/// Positions that a sequence may have.
pub const CONTEXT: u32 = 512;

/// All that shows in how a token is chosen, in turn.
fn sampling(id: u64) -> SamplingParams {
    let plain = SamplingParams { seed: id * 3 + 1, logprobs: Some(1), certainty: true, ..SamplingParams::default() };
    match id % 6 {
        0 => SamplingParams { temperature: 0.0, ..plain },
        1 => SamplingParams { temperature: 0.7, top_p: 0.9, ..plain },
        2 => SamplingParams { top_k: 12, repetition_penalty: 1.3, ..plain },
        3 => SamplingParams { min_p: 0.05, presence_penalty: 0.8, frequency_penalty: 0.4, ..plain },
        4 => {
            SamplingParams { logit_bias: vec![(7, 4.0), (9, -9.0)], frequency_penalty: 1.5, temperature: 0.3, ..plain }
        }
        _ => SamplingParams { temperature: 0.0, repetition_penalty: 1.2, presence_penalty: 0.5, ..plain },
    }
}

fn request(number: u64, adapters: &[ScaledAdapter]) -> Request {
    // More requests than kinds of them differ in their random numbers.
    let id = number % REQUESTS;
    let mut random = Random(id % 3 * 91 + 4);
    let len = [5, 40, 64, 130, 200, 31][id as usize % 6];
    // Texts that repeat themselves, so that the source that ships has something to guess.
    let period = 3 + random.below(20) as usize;
    let prompt: Vec<_> = (0..len).map(|i| ((i % period) as u64 * 37 % VOCAB) as TokenId).collect();
    let spec = Spec {
        choices: if id % 5 == 4 { 3 } else { 1 },
        max_tokens: Some(20 + random.below(60) as u32 + id as u32),
        min_tokens: id as u32 % 4,
        end_ids: if id.is_multiple_of(2) { [3, 11, 19, 200, 317].into() } else { Arc::default() },
        sampling: Arc::new(SamplingParams { seed: number * 3 + 1, ..sampling(id) }),
        experts: (id % 7 == 1).then_some(ExpertCut { min: 1, max: 2, mass: 0.6 }),
        cache: (!id.is_multiple_of(3)).then_some(CacheScope(1)),
        // Prompts 1, 7 and 13 are equal, and so are the adapters of the first and the last.
        adapter: adapters.get(id as usize / 3 % 4).cloned(),
        prediction: (id % 4 == 1).then(|| (0..50).map(|i| i * 11 % VOCAB as u32).collect()),
        ..Spec::default()
    };
    Request::new(RequestId(number), prompt, spec)
}

/// How a run is set up; none of it may show.
#[derive(Clone)]
pub struct Setup {
    pub threads: usize,
    pub slots: u32,
    pub pages: u32,
    pub drafts: DraftMode,
    /// Takes the place of the source that ships.
    source: Option<MakeSource>,
    kinds: DraftKinds,
    pub checkpoints: u32,
    /// Seed of the order and the times of arrival; `None` runs one request after the other.
    arrivals: Option<u64>,
    requests: u64,
    /// Those of three in four requests, in two slots.
    adapters: Vec<ScaledAdapter>,
    /// After how many steps each the engine is lost; another one goes on with what lived.
    lost_after: Vec<u64>,
}

struct Run {
    outputs: Outputs,
    preemptions: u32,
    cached: u32,
    totals: DraftTotals,
}

fn run<B: Backend>(backend: &mut impl FnMut(&Setup, u32) -> B, setup: &Setup) -> Run {
    let config = SchedulerConfig {
        slots: setup.slots,
        pages: setup.pages,
        step_tokens: 160,
        context: CONTEXT,
        queue_requests_max: 1 << 11,
        queue_prompt_tokens_max: 1 << 20,
        steps_in_flight_max: 2,
        adapter_slots: 2,
        prefix: PrefixConfig {
            checkpoints: setup.checkpoints,
            checkpoint_bytes: 4,
            page_bytes: 1,
            host: HostBlocks::NONE,
        },
    };
    let mut start = || {
        let backend = backend(setup, config.step_rows_max());
        let settings = DraftSettings { mode: setup.drafts, kinds: setup.kinds, room: backend.info().drafts };
        let scheduler = Scheduler::new(config).with_drafts(settings);
        match &setup.source {
            Some(source) => (scheduler.with_draft_source(DraftKind::Ngram, source.clone()), backend),
            None => (scheduler, backend),
        }
    };
    drive(&mut start, setup)
}

fn drive<B: Backend>(start: &mut impl FnMut() -> (Scheduler, B), setup: &Setup) -> Run {
    let (mut scheduler, mut backend) = start();
    let mut losses: VecDeque<u64> = setup.lost_after.iter().copied().collect();
    let Setup { arrivals, requests, .. } = *setup;
    let mut random = Random(arrivals.unwrap_or(0));
    let mut waiting: VecDeque<u64> = (0..requests).collect();
    let mut run = Run { outputs: Outputs::new(), preemptions: 0, cached: 0, totals: DraftTotals::default() };
    let (mut launched, mut now) = (VecDeque::<Pending>::new(), Micros(0));
    // Steps that cost a constant and little a row: the gate has something to decide.
    let mut pace = Pace::default();
    while !(waiting.is_empty() && scheduler.is_idle()) {
        now.0 += 1;
        let comes = scheduler.is_idle() || arrivals.is_some() && random.below(4) == 0;
        if comes && !waiting.is_empty() {
            let at = if arrivals.is_some() { random.below(waiting.len() as u64) as usize } else { 0 };
            let id = waiting.remove(at).unwrap();
            let terms = Terms { key: KeyId(id % 3), ..Terms::default() };
            scheduler.admit_under(request(id, &setup.adapters), &terms, now, &pace).unwrap();
        }
        while let Some(plan) = scheduler.plan_within(now, &pace) {
            let shape = pace.shape(&plan);
            pace.cost.observe(&shape, Micros(900 + 100 * u64::from(shape.rows) + 10 * u64::from(shape.prompt_rows)));
            launched.push_back(backend.launch(plan).unwrap());
        }
        if losses.pop_front_if(|after| now.0 >= *after).is_some() {
            let migrated = scheduler.hand_over();
            assert!(!migrated.is_empty(), "somebody lives");
            // What was computed for it meanwhile means nothing.
            launched.drain(..).for_each(|pending| drop(pending.wait()));
            (scheduler, backend) = start();
            migrated.into_iter().for_each(|request| scheduler.adopt(request, now, &pace).unwrap());
            continue;
        }
        let Some(pending) = launched.pop_front() else { continue };
        for (id, event) in scheduler.commit(pending.wait().unwrap(), now) {
            match event {
                Event::Token { choice, index, token, logprobs, certainty, .. } => {
                    let output = run.outputs.entry((id.0, choice)).or_default();
                    assert_eq!(output.len(), index as usize, "tokens come in order");
                    output.push((token, logprobs.unwrap().logprob.to_bits(), certainty.unwrap().entropy.to_bits()));
                }
                Event::Finished { usage, .. } => {
                    run.preemptions += usage.preemptions;
                    run.cached += usage.cached_tokens;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((scheduler.stats().pages_used, scheduler.stats().slots_used), (0, 0));
    run.totals = scheduler.draft_totals();
    run
}

/// What a source of a test guesses, given what comes.
#[derive(Clone, Copy)]
enum Guesser {
    Right,
    Wrong,
    Random,
}

struct Told {
    guesser: Guesser,
    output: Vec<TokenId>,
    read: usize,
    random: Random,
}

impl DraftSource for Told {
    fn read(&mut self, tokens: &[TokenId]) {
        assert!(self.output[self.read..].starts_with(tokens));
        self.read += tokens.len();
    }

    fn guess(&mut self, max: usize) -> Option<Guess> {
        let len =
            if matches!(self.guesser, Guesser::Random) { self.random.below(max as u64 + 1) as usize } else { max };
        let rest: Vec<_> = self.output[self.read..].iter().copied().take(len).collect();
        let wrong = |random: &mut Random| match self.guesser {
            Guesser::Right => 0,
            Guesser::Wrong => 1,
            Guesser::Random => u32::from(random.below(4) == 0),
        };
        let mut changed = |token: TokenId| match wrong(&mut self.random) {
            0 => token,
            wrong => (token + wrong) % VOCAB as u32,
        };
        let tokens = rest.into_iter().map(&mut changed).collect();
        Some(Guess { tokens, matched: self.random.below(20) as usize })
    }
}

fn told(want: &Arc<Outputs>, guesser: Guesser) -> Option<MakeSource> {
    let want = want.clone();
    Some(Arc::new(move |request, choice| {
        let output = want[&(request.id.0, choice)].iter().map(|(token, ..)| *token).collect();
        Some(Box::new(Told { guesser, output, read: 0, random: Random(request.id.0 + 9) }))
    }))
}

/// Runs the requests without drafts and with them in many ways. `backend` makes one for a setup with steps of so many
/// rows.
pub fn check<B: Backend>(preset: &str, mut backend: impl FnMut(&Setup, u32) -> B) {
    let (off, want) = without(&mut backend);
    let all = Arc::new(want.outputs.clone());
    let source = |guesser| told(&all, guesser);
    let mut numbers: Vec<_> = (1..8)
        .map(|k| {
            (
                format!("random, {k}"),
                Setup {
                    drafts: DraftMode::Fixed(k),
                    source: source(Guesser::Random),
                    arrivals: Some(u64::from(k)),
                    threads: 1 + k as usize % 2,
                    slots: 3 + k % 4,
                    ..off.clone()
                },
            )
        })
        .collect();
    let crowd = Setup { slots: 6, threads: 2, arrivals: Some(77), drafts: DraftMode::Fixed(7), ..off.clone() };
    numbers.extend([
        ("right, alone".into(), Setup { drafts: DraftMode::Fixed(7), source: source(Guesser::Right), ..off.clone() }),
        ("wrong, alone".into(), Setup { drafts: DraftMode::Fixed(7), source: source(Guesser::Wrong), ..off.clone() }),
        ("right, crowd".into(), Setup { source: source(Guesser::Right), ..crowd.clone() }),
        ("wrong, crowd".into(), Setup { source: source(Guesser::Wrong), ..crowd.clone() }),
        ("right, gate".into(), Setup { drafts: DraftMode::Auto, source: source(Guesser::Right), ..crowd.clone() }),
        ("shipped, cache".into(), Setup { drafts: DraftMode::Fixed(5), checkpoints: 32, ..crowd.clone() }),
        ("few pages".into(), Setup { pages: 26, source: source(Guesser::Random), ..crowd.clone() }),
        ("lost engines".into(), Setup { lost_after: vec![9, 40, 41, 90], ..crowd.clone() }),
        (
            "lost engines, random".into(),
            Setup { lost_after: vec![60], source: source(Guesser::Random), ..crowd.clone() },
        ),
        ("lost engines, cache".into(), Setup { lost_after: vec![30, 70], checkpoints: 8, ..crowd.clone() }),
        ("cache, few pages".into(), Setup { pages: 30, checkpoints: 8, source: source(Guesser::Random), ..crowd }),
    ]);
    compare(preset, &mut backend, &want, numbers);
}

/// As [`check`] in a few ways, for requests with adapters, of which one needs to wait for a slot now and then.
pub fn check_adapters<B: Backend>(
    preset: &str,
    adapters: Vec<ScaledAdapter>,
    mut backend: impl FnMut(&Setup, u32) -> B,
) {
    let off = Setup { adapters, ..off() };
    let want = run(&mut backend, &off);
    let plain = run(&mut backend, &Setup { adapters: Vec::new(), ..off.clone() });
    let changed = want.outputs.iter().filter(|(key, output)| plain.outputs[*key] != **output).count();
    assert!(changed >= 12, "{changed} outputs are changed by adapters");
    let all = Arc::new(want.outputs.clone());
    let crowd = Setup { slots: 6, threads: 2, arrivals: Some(77), drafts: DraftMode::Fixed(7), ..off.clone() };
    let numbers = vec![
        ("right, crowd".into(), Setup { source: told(&all, Guesser::Right), ..crowd.clone() }),
        ("shipped, cache".into(), Setup { checkpoints: 32, arrivals: None, ..crowd.clone() }),
        ("few pages".into(), Setup { pages: 26, source: told(&all, Guesser::Random), ..crowd.clone() }),
        ("lost engines".into(), Setup { lost_after: vec![20, 50], ..crowd.clone() }),
        ("cache, few pages".into(), Setup { pages: 30, checkpoints: 8, ..crowd }),
    ];
    compare(preset, &mut backend, &want, numbers);
}

/// As [`check`], with the model's own draft head for the only source.
pub fn check_head<B: Backend>(preset: &str, mut backend: impl FnMut(&Setup, u32) -> B) {
    let (off, want) = without(&mut backend);
    let head = Setup { kinds: [DraftKind::Mtp].into_iter().collect(), ..off };
    let number = |k| Setup {
        drafts: DraftMode::Fixed(k),
        threads: 1 + k as usize % 2,
        slots: 3 + k % 4,
        arrivals: (k != 3).then_some(u64::from(k)),
        ..head.clone()
    };
    let mut setups: Vec<_> = (1..8).map(|k| (format!("head, {k}"), number(k))).collect();
    let crowd = Setup { slots: 6, threads: 2, arrivals: Some(77), drafts: DraftMode::Fixed(7), ..head };
    setups.extend([
        ("head, gate".into(), Setup { drafts: DraftMode::Auto, ..crowd.clone() }),
        ("head, few pages".into(), Setup { pages: 26, ..crowd.clone() }),
        ("head, cache".into(), Setup { checkpoints: 32, drafts: DraftMode::Fixed(3), ..crowd.clone() }),
        ("head, cache, few pages".into(), Setup { pages: 30, checkpoints: 8, ..crowd.clone() }),
        ("all".into(), Setup { kinds: DraftKinds::all(), checkpoints: 32, ..crowd }),
    ]);
    compare(preset, &mut backend, &want, setups);
}

/// As many requests as say a hundred thousand tokens, with drafts of every number that are now right and now wrong, few
/// pages and a prefix cache, against a run without drafts.
pub fn check_many<B: Backend>(preset: &str, mut backend: impl FnMut(&Setup, u32) -> B) {
    let setup = Setup { requests: 1_800, slots: 6, arrivals: Some(5), ..off() };
    let want = run(&mut backend, &setup);
    let tokens: usize = want.outputs.values().map(Vec::len).sum();
    assert!(tokens >= 100_000, "{tokens} tokens");
    let source = told(&Arc::new(want.outputs.clone()), Guesser::Random);
    let drafts = Setup { drafts: DraftMode::Fixed(7), source, pages: 30, checkpoints: 8, arrivals: Some(7), ..setup };
    compare(preset, &mut backend, &want, vec![(format!("random, {tokens} tokens"), drafts)]);
}

/// A run without drafts, and its setup.
fn without<B: Backend>(backend: &mut impl FnMut(&Setup, u32) -> B) -> (Setup, Run) {
    let off = off();
    let want = run(backend, &off);
    assert_eq!(want.totals.drafted.iter().sum::<u64>(), 0);
    (off, want)
}

/// One request after the other without drafts.
fn off() -> Setup {
    Setup {
        threads: 1,
        slots: 3,
        pages: 200,
        drafts: DraftMode::Off,
        source: None,
        kinds: DraftKinds::all(),
        checkpoints: 0,
        arrivals: None,
        requests: REQUESTS,
        adapters: Vec::new(),
        lost_after: Vec::new(),
    }
}

/// All setups bring what `want` did, and together they cover preemption and the cache.
fn compare<B: Backend>(
    preset: &str,
    backend: &mut impl FnMut(&Setup, u32) -> B,
    want: &Run,
    setups: Vec<(String, Setup)>,
) {
    let (mut preemptions, mut cached) = (0, 0);
    for (name, setup) in setups {
        let got = run(backend, &setup);
        let differing: Vec<_> =
            want.outputs.keys().filter(|key| got.outputs.get(key) != want.outputs.get(key)).collect();
        assert_eq!(differing, [&(0, 0); 0], "{preset}, {name}");
        let (drafted, accepted) = (got.totals.drafted, got.totals.accepted.map(|all| all.iter().sum::<u64>()));
        println!("{preset}, {name}: {drafted:?} drafted, {accepted:?} accepted, {} preempted", got.preemptions);
        // The texts of random weights have little that comes again: the shipped sources draft few tokens.
        // Under the gate the machine's speed decides whether any is worth its time.
        let decided = matches!(setup.drafts, DraftMode::Auto);
        assert!(
            decided || drafted.iter().sum::<u64>() > 0,
            "{name}: nothing was drafted, and the test does not cover it"
        );
        let right = name.starts_with("right") || name.starts_with("random");
        assert!(!right || accepted[0] > 0, "{name}: nothing was accepted");
        preemptions += got.preemptions;
        cached += got.cached;
    }
    assert!(preemptions > 0 && cached > 0, "{preset}: {preemptions} preempted, {cached} tokens cached");
}

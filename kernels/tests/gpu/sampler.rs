//! The sampler: tokens equal to the definition's, reports near it, and times at the released model's vocabulary.

use crate::support::{Gpu, Outcome, Test, few_cases};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::sampler::{
    self, IN_PROMPT, SampleInputs, SampleOutputs, SampleParams, SampleResult, Sampler,
};
use chimere_kernels::cuda::{CudaError, Program};
use chimere_kernels::reference::sampler as definition;
use std::error::Error;
use std::thread;

const VOCABS: [usize; 3] = [512, 8192, 248_320];
const ROWS_MAX: usize = 256;
const SLOTS: usize = 4;
/// A token that none of the rows has.
const POISON: i32 = -7;
/// What the router is supposed to have counted.
const TALLY: u32 = 12_345;

/// What [`check`] and [`time`] load.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    VOCABS.into_iter().flat_map(|vocab| [false, true].map(|drawn| sampler::program(vocab, drawn))).collect()
}

/// A row with everything that the definition wants to know.
#[derive(Clone, Default)]
struct Case {
    logits: Vec<f32>,
    params: SampleParams,
    bias: Vec<(u32, f32)>,
    ends: Vec<u32>,
    edits: Vec<(u32, f32)>,
    mix: Vec<(u32, f32)>,
    mask: Option<Vec<u32>>,
}

/// A call's rows, and what all of them share.
#[derive(Default)]
struct Batch {
    cases: Vec<Case>,
    history: Vec<u16>,
    lists: Vec<u32>,
}

fn unit(random: &mut Random) -> f32 {
    random.signed().abs()
}

fn below(random: &mut Random, n: usize) -> usize {
    (random.bits() % n as u64) as usize
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[below(random, from.len())]
}

fn normal(random: &mut Random) -> f32 {
    let radius = (-2.0 * unit(random).max(1e-7).ln()).sqrt();
    radius * (std::f32::consts::PI * random.signed()).cos()
}

/// Smooth, coarse (so that ties occur), peaked, all equal, without numbers.
fn logits(vocab: usize, random: &mut Random) -> Vec<f32> {
    let (kind, scale) = (below(random, 10), pick(random, &[0.1, 1.0, 3.0, 20.0]));
    let mut row: Vec<f32> = (0..vocab).map(|_| normal(random) * scale).collect();
    match kind {
        0 | 1 => row.iter_mut().for_each(|l| *l = (*l * 4.0).round() / 4.0),
        2 => (0..30).for_each(|i| row[below(random, vocab)] = 30.0 + i as f32 * 0.3),
        3 => row.fill(scale),
        4 => row.fill(f32::NAN),
        5 => row.fill(f32::NEG_INFINITY),
        6 => row.iter_mut().for_each(|l| *l = if *l > 0.0 { -0.0 } else { 0.0 }),
        7 => {
            (0..vocab / 2).for_each(|_| row[below(random, vocab)] = f32::NAN);
            (0..vocab / 4).for_each(|_| row[below(random, vocab)] = f32::NEG_INFINITY);
        }
        _ => {}
    }
    row
}

/// Few unique ids with values.
fn changes(vocab: usize, n: usize, random: &mut Random) -> Vec<(u32, f32)> {
    let mut list: Vec<(u32, f32)> =
        (0..below(random, n + 1)).map(|_| (below(random, vocab) as u32, 9.0 * random.signed())).collect();
    list.sort_by_key(|e| e.0);
    list.dedup_by_key(|e| e.0);
    list
}

/// Weights of mixtures, from none to more than all tokens', and what is no weight.
fn mixtures(vocab: usize, random: &mut Random) -> Vec<(u32, f32)> {
    let strength = pick(random, &[1e-6, 0.01, 0.3, 19.0]);
    let mut list = changes(vocab, 300, random);
    for (_, weight) in &mut list {
        *weight = match below(random, 20) {
            0 => pick(random, &[0.0, -1.0, f32::NAN, f32::INFINITY, 1e-44, f32::MAX, f32::MIN_POSITIVE]),
            _ => unit(random) * strength,
        };
    }
    list
}

fn case(vocab: usize, random: &mut Random) -> Case {
    let params = SampleParams {
        temperature: pick(random, &[0.0, 1.0, 1.0, 0.05, 0.7, 3.0]),
        top_p: pick(random, &[1.0, 1.0, 0.95, 0.5, 0.01, 0.999]),
        top_k: pick(random, &[0, 0, 1, 20, 64, 128, 129, 400, 5000]),
        min_p: pick(random, &[0.0, 0.0, 0.0, 0.05, 0.5, 1.0]),
        seed: random.bits(),
        output_index: below(random, 5) as u32,
        choice: below(random, 3) as u32,
        logprobs: pick(random, &[-1, -1, 0, 5, 20]),
        certainty: below(random, 2) as u32,
        processed: below(random, 2) as u32,
        forced: if below(random, 12) == 0 { below(random, vocab) as i32 } else { -1 },
        ..SampleParams::default()
    };
    let mut case = Case { logits: logits(vocab, random), params, ..Case::default() };
    if below(random, 2) == 0 {
        let p = &mut case.params;
        p.history = below(random, SLOTS) as i32;
        p.repetition_penalty = pick(random, &[1.0, 1.3, 0.7]);
        p.presence_penalty = random.signed();
        p.frequency_penalty = random.signed();
    }
    if below(random, 2) == 0 {
        case.bias = changes(vocab, 300, random);
        if below(random, 2) == 0 {
            case.edits = changes(vocab, 10, random);
        }
        if below(random, 2) == 0 {
            case.mix = mixtures(vocab, random);
        }
        case.ends = changes(vocab, 5, random).into_iter().map(|e| e.0).collect();
        if below(random, 2) == 0 {
            case.ends.clear();
        }
        let words = vocab.div_ceil(32);
        case.mask = match below(random, 4) {
            0 => Some((0..words).map(|_| random.bits() as u32).collect()),
            1 => Some((0..words).map(|_| if below(random, 50) == 0 { 1 << below(random, 32) } else { 0 }).collect()),
            2 if below(random, 4) == 0 => Some(vec![0; words]),
            _ => None,
        };
    }
    case
}

impl Batch {
    fn new(vocab: usize, n: usize, random: &mut Random) -> Self {
        let mut batch = Self { cases: (0..n).map(|_| case(vocab, random)).collect(), ..Self::default() };
        if below(random, 2) == 0 {
            // Then another kernel runs.
            batch.cases.iter_mut().for_each(|case| case.params.processed = 0);
        }
        batch.history = vec![0; SLOTS * vocab];
        for _ in 0..SLOTS * 200 {
            let at = below(random, SLOTS * vocab);
            batch.history[at] = pick(random, &[IN_PROMPT, IN_PROMPT | 1, 1, 3, 40]);
        }
        let lists = &mut batch.lists;
        lists.push(0);
        for (i, case) in batch.cases.iter_mut().enumerate() {
            let p = &mut case.params;
            // Rows of the logits and slots in another order than the parameters.
            (p.row, p.slot) = ((n - 1 - i) as i32, i as i32 + 1);
            let mut pairs = |entries: &[(u32, f32)]| {
                let at = lists.len() as u32;
                entries.iter().for_each(|(id, value)| lists.extend([*id, value.to_bits()]));
                (at, entries.len() as u32)
            };
            (p.bias_at, p.biases) = pairs(&case.bias);
            (p.edits_at, p.edits) = pairs(&case.edits);
            p.mixes = pairs(&case.mix).1;
            (p.ends_at, p.ends) = (lists.len() as u32, case.ends.len() as u32);
            lists.extend(&case.ends);
            if let Some(mask) = &case.mask {
                p.mask_at = lists.len() as i32;
                lists.extend(mask);
            }
        }
        if n > 2 {
            // A row that is none.
            batch.cases[1].params.row = -1;
        }
        batch
    }

    /// The token, and the one without sparse edits.
    fn tokens(&self, i: usize) -> [i32; 2] {
        let (case, p) = (&self.cases[i], &self.cases[i].params);
        if p.forced >= 0 {
            return [p.forced; 2];
        }
        self.defined(i, |params, context| {
            let plain = definition::Context { edits: &[], mix: &[], ..*context };
            [*context, plain].map(|context| definition::sample(&case.logits, params, &context) as i32)
        })
    }

    /// Something of a row's parameters as the definition has them.
    fn defined<T>(&self, i: usize, of: impl FnOnce(&definition::Sampling, &definition::Context) -> T) -> T {
        let (case, p) = (&self.cases[i], &self.cases[i].params);
        let vocab = case.logits.len();
        let row = (p.history >= 0).then(|| &self.history[p.history as usize * vocab..][..vocab]);
        let seen = |f: fn(u16) -> u32| row.map_or(vec![0; vocab], |r| r.iter().map(|s| f(*s)).collect());
        let in_prompt: Vec<bool> = seen(|s| u32::from(s & IN_PROMPT)).into_iter().map(|s| s != 0).collect();
        let params = definition::Sampling {
            temperature: p.temperature,
            top_p: p.top_p,
            top_k: p.top_k,
            min_p: p.min_p,
            seed: p.seed,
            repetition_penalty: p.repetition_penalty,
            presence_penalty: p.presence_penalty,
            frequency_penalty: p.frequency_penalty,
            logit_bias: &case.bias,
            min_tokens: 100,
            end_ids: &case.ends,
        };
        let context = definition::Context {
            in_prompt: &in_prompt,
            output_counts: &seen(|s| u32::from(s & !IN_PROMPT)),
            edits: &case.edits,
            mix: &case.mix,
            mask: case.mask.as_deref(),
            output_index: p.output_index,
            choice: p.choice,
        };
        of(&params, &context)
    }

    /// Compares what was reported of the distribution that the token is drawn from with the definition's.
    fn report_of_draw(&self, i: usize, got: &SampleResult) -> Result<(), String> {
        let (case, p) = (&self.cases[i], &self.cases[i].params);
        let want = match p.forced {
            0.. => vec![(p.forced as u32, 0.0)],
            _ => self.defined(i, |params, context| definition::drawn_logprobs(&case.logits, params, context)),
        };
        let near = |got: f32, want: f32| (got - want).abs() <= 1e-5 * (1.0 + want.abs());
        let own = want.iter().find(|(id, _)| *id == got.token as u32);
        if !own.is_some_and(|(_, logprob)| near(got.logprob, *logprob)) {
            return Err(format!("logprob of row {i}'s draw: {} for {own:?}, {p:?}", got.logprob));
        }
        let top = got.top_ids.iter().zip(&got.top_logprobs).take(p.logprobs as usize);
        let told: Vec<_> = top.take_while(|(id, _)| **id >= 0).map(|(id, logprob)| (*id as u32, *logprob)).collect();
        let want = &want[..want.len().min(p.logprobs as usize)];
        let same = told.len() == want.len() && told.iter().zip(want).all(|(a, b)| a.0 == b.0 && near(a.1, b.1));
        if same { Ok(()) } else { Err(format!("alternatives of row {i}'s draw: {told:?} for {want:?}, {p:?}")) }
    }

    /// Compares what was reported with sums in f64; says what differs.
    fn report(&self, i: usize, got: &SampleResult) -> Result<(), String> {
        let p = &self.cases[i].params;
        let of_draw = p.processed == 1 && p.logprobs >= 0;
        if of_draw {
            self.report_of_draw(i, got)?;
        }
        let l: Vec<f64> =
            self.cases[i].logits.iter().map(|l| if l.is_nan() { f64::NEG_INFINITY } else { f64::from(*l) }).collect();
        let best = l.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if best == f64::NEG_INFINITY {
            return Ok(());
        }
        let sum: f64 = l.iter().map(|l| (l - best).exp()).sum();
        let near = |what: &str, got: f32, want: f64, tolerance: f64| {
            let same = f64::from(got) == want || (f64::from(got) - want).abs() <= tolerance;
            if same { Ok(()) } else { Err(format!("{what} of row {i}: {got} for {want}, {p:?}")) }
        };
        let logprob = |id: i32| l[id as usize] - best - sum.ln();
        if p.logprobs >= 0 && !of_draw {
            near("logprob", got.logprob, logprob(got.token), 2e-5 * (1.0 + logprob(got.token).abs()))?;
            let mut ids: Vec<i32> = (0..l.len() as i32).collect();
            ids.sort_by(|a, b| l[*b as usize].total_cmp(&l[*a as usize]).then(a.cmp(b)));
            if l.iter().all(|l| *l == 0.0) {
                ids.sort_unstable();
            }
            for (j, id) in ids[..p.logprobs as usize].iter().enumerate() {
                if got.top_ids[j] != *id {
                    return Err(format!("alternative {j} of row {i}: {} for {id}, {p:?}", got.top_ids[j]));
                }
                near("alternative", got.top_logprobs[j], logprob(*id), 2e-5 * (1.0 + logprob(*id).abs()))?;
            }
        }
        if p.certainty == 1 {
            let weighted: f64 = l.iter().map(|l| (l - best).max(-700.0)).map(|x| x.exp() * x).sum();
            near("entropy", got.entropy, sum.ln() - weighted / sum, 2e-5 * (1.0 + sum.ln()))?;
            near("top probability", got.top_prob, 1.0 / sum, 1e-5)?;
        }
        Ok(())
    }
}

/// The tests of this file by their names, as `main` lists and filters them.
pub(crate) const TESTS: &[Test] = &[("sampler::rows_of_every_kind_get_the_definition_s_tokens", every_kind_of_row)];

fn every_kind_of_row(gpu: &Gpu) -> Outcome {
    let small = few_cases();
    for vocab in VOCABS {
        let mut kernel = Sampler::load(&gpu.device, &gpu.cache, vocab, ROWS_MAX)?;
        let big = vocab > 100_000;
        let sizes: &[usize] = match (small, big) {
            (true, _) => &[1, 3, 20],
            (false, true) => &[1, 1, 2, 3, 8, 16, 64, 1, 5, 64],
            (false, false) => &[1, 2, 3, 1, 16, 64, 256, 1, 5, 256, 33, 256, 256, 2, 256, 256],
        };
        let mut random = Random(vocab as u64);
        let (mut rows, mut moved, mut changed) = (0, 0, 0);
        for n in sizes {
            let batch = Batch::new(vocab, *n, &mut random);
            let results = run(gpu, &mut kernel, &batch)?;
            compare(&batch, &results)?;
            rows += n;
            moved += batch.cases.iter().filter(|c| !c.edits.is_empty() || !c.mix.is_empty()).count();
            changed += results.iter().filter(|r| r.token != r.plain).count();
        }
        println!(
            "sampler of {vocab}: {rows} rows, tokens equal to the definition's; {moved} with \
             sparse edits, {changed} of them changed"
        );
    }
    Ok(())
}

fn run(gpu: &Gpu, kernel: &mut Sampler, batch: &Batch) -> Result<Vec<SampleResult>, Box<dyn Error>> {
    let (stream, n) = (gpu.device.stream(), batch.cases.len());
    let flat: Vec<f32> = batch.cases.iter().rev().flat_map(|c| c.logits.iter().copied()).collect();
    let (logits, history, lists) =
        (stream.clone_htod(&flat)?, stream.clone_htod(&batch.history)?, stream.clone_htod(&batch.lists)?);
    // In every third launch rows are further on than their parameters say.
    let ahead: Vec<u32> = (0..n as u32).map(|i| if n % 3 == 0 { i % 4 } else { 0 }).collect();
    let less = |(c, ahead): (&Case, &u32)| SampleParams {
        output_index: c.params.output_index.wrapping_sub(*ahead),
        ..c.params
    };
    let params = stream.clone_htod(&batch.cases.iter().zip(&ahead).map(less).collect::<Vec<_>>())?;
    let ahead = stream.clone_htod(&ahead.iter().map(|n| *n as i32).collect::<Vec<_>>())?;
    let ahead = ahead.as_view();
    let poison = SampleResult { token: POISON, plain: POISON, ..SampleResult::default() };
    let mut results = stream.clone_htod(&vec![poison; n + 2])?;
    // Every other launch brings a tally along.
    let tally = stream.clone_htod(&[TALLY])?;
    let (brings, brought) = (n % 2 == 0, tally.as_view());
    let mut sampled = stream.clone_htod(&vec![POISON; n + 2])?;
    let inputs = SampleInputs {
        logits: &logits.as_view(),
        params: &params.as_view(),
        lists: &lists.as_view(),
        history: &history.as_view(),
        ahead: (n % 3 == 0).then_some(&ahead),
        tally: brings.then_some(&brought),
        processed: batch.cases.iter().any(|case| case.params.processed == 1),
    };
    let outputs = SampleOutputs { results: &mut results.as_view_mut(), sampled: &mut sampled.as_view_mut() };
    // SAFETY: rows, slots and lists are those that were made for these parameters; nothing else runs.
    unsafe { kernel.launch(&gpu.device, n, inputs, outputs)? };
    let (results, sampled) = (stream.clone_dtoh(&results)?, stream.clone_dtoh(&sampled)?);
    assert!(
        stream.clone_dtoh(&logits)?.iter().zip(&flat).all(|(a, b)| a.to_bits() == b.to_bits()),
        "logits were written"
    );
    for (i, case) in batch.cases.iter().enumerate() {
        assert_eq!(results[i].token == POISON, case.params.row < 0, "row {i} of {n}: {:?}", case.params);
        assert_eq!(sampled[i + 1], results[i].token, "slot of row {i}");
    }
    let (brought, left) = if brings { (TALLY as i32, 0) } else { (POISON, TALLY) };
    assert!(
        results[n] == SampleResult { token: brought, ..poison } && stream.clone_dtoh(&tally)? == [left],
        "tally of {n} rows"
    );
    assert!(results[n + 1] == poison && sampled[0] == POISON && sampled[n + 1] == POISON, "writes outside its rows");
    Ok(results)
}

fn compare(batch: &Batch, results: &[SampleResult]) -> Result<(), String> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let check = |i: usize| {
        let (p, got) = (&batch.cases[i].params, [results[i].token, results[i].plain]);
        if p.row < 0 {
            return Ok(());
        }
        let reports = p.certainty == 1 || p.logprobs >= 0 && p.processed == 0;
        let is_read = p.forced < 0 || reports;
        let not_finite = is_read && batch.cases[i].logits.iter().any(|l| !l.is_finite());
        if (results[i].not_finite == 1) != not_finite {
            return Err(format!("row {i} of {}: not finite {}, {p:?}", batch.cases.len(), results[i].not_finite));
        }
        // Nothing is drawn from a row of which some logit is no finite number, nor reported of it.
        let want = if not_finite { [0, 0] } else { batch.tokens(i) };
        if got != want {
            return Err(format!("row {i} of {}: tokens {got:?} for {want:?}, {p:?}", batch.cases.len()));
        }
        if not_finite {
            return Ok(());
        }
        batch.report(i, &results[i])
    };
    thread::scope(|scope| {
        let all = 0..batch.cases.len();
        let workers: Vec<_> = (0..threads)
            .map(|t| {
                scope.spawn({
                    let all = all.clone();
                    move || all.skip(t).step_by(threads).try_for_each(check)
                })
            })
            .collect();
        workers.into_iter().try_for_each(|w| w.join().expect("comparing does not panic"))
    })
}

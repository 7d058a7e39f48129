//! Chooses a token from a row of logits, as `chimere_kernels::reference::sampler` defines it, and reports log-probabilities.
//!
//! Greedy sampling is one pass. Nothing sorts the vocabulary: top-k keeps a short list behind a rising threshold, top-p sorts only
//! tokens that can belong to the nucleus. Weights are integers, so the sums here may run in any order.

use super::history::History;
use super::simd::{Kernel, LANES, Lanes, run};
use crate::ids::TokenId;
use crate::sampling::SamplingParams;
use crate::step::{Certainty, RowEdits, Sample, SampleRow, TokenLogprobs};
use chimere_kernels::reference::philox::draw;
use chimere_kernels::reference::sampler::{self as definition, Mixture, TEMPERATURE_MIN, WEIGHT_ONE, scaled, top_p_target, weight};

/// What one thread needs.
#[derive(Default)]
pub(super) struct SamplerScratch {
    logits: Vec<f32>,
    weights: Vec<f32>,
    ranked: Vec<(f32, TokenId)>,
}

/// Samples one row: `logits` are the model's own.
pub(super) fn sample(
    logits: &[f32],
    row: &SampleRow,
    history: &History,
    edits: Option<&RowEdits>,
    s: &mut SamplerScratch,
) -> Sample {
    let p = &*row.params;
    let (token, changed) = row.forced.map_or_else(|| pick(logits, row, history, edits, s), |forced| (forced, false));
    Sample {
        seq: row.seq,
        token,
        logprobs: p.logprobs.map(|top| logprobs(logits, token, top as usize, s)),
        certainty: p.certainty.then(|| certainty(logits)),
        changed: Some(changed),
    }
}

/// The token that the edited logits give, and whether biases or mixtures made it another one.
fn pick(logits: &[f32], row: &SampleRow, history: &History, edits: Option<&RowEdits>, s: &mut SamplerScratch) -> (TokenId, bool) {
    let mut own = std::mem::take(&mut s.logits);
    let edited = edit(logits, row, history, edits.and_then(|e| e.mask.as_deref()), &mut own);
    let mut token = choose(if edited { &own } else { logits }, &row.params, row.output_index, row.choice, s);
    let plain = token;
    if let Some(e) = edits.filter(|e| !(e.bias.is_empty() && e.mix.is_empty())) {
        if !edited {
            own.clear();
            own.extend_from_slice(logits);
        }
        add(&mut own, &e.bias);
        mix(&mut own, &e.mix);
        // The same random number is drawn again, so a token differs only because of the edits.
        token = choose(&own, &row.params, row.output_index, row.choice, s);
    }
    s.logits = own;
    (token, token != plain)
}

/// The log-probability of `token` and of the `top` best, ties by lower id.
pub(super) fn logprobs(logits: &[f32], token: TokenId, top: usize, s: &mut SamplerScratch) -> TokenLogprobs {
    let best = largest(logits);
    let total = run(Total { logits, best });
    let log_sum = (total as f64 / f64::from(WEIGHT_ONE)).ln();
    let of = |l: f32| (f64::from(l) - f64::from(best) - log_sum) as f32;
    let top = if top == 0 { &mut [][..] } else { rank(logits, top, &mut s.ranked) };
    TokenLogprobs { logprob: of(logits[token as usize]), top: top.iter().map(|(l, id)| (*id, of(*l))).collect() }
}

fn certainty(logits: &[f32]) -> Certainty {
    let best = largest(logits);
    let (mut sum, mut weighted) = (0.0, 0.0);
    for part in logits.chunks(4096) {
        let (a, b) = run(Moments { logits: part, best });
        (sum, weighted) = (sum + a, weighted + b);
    }
    Certainty { entropy: (sum.ln() - weighted / sum) as f32, top_prob: (1.0 / sum) as f32 }
}

/// Writes the logits after mask and penalties to `out`, minus infinity for what is no number; false if nothing changes them.
fn edit(logits: &[f32], row: &SampleRow, history: &History, mask: Option<&[u32]>, out: &mut Vec<f32>) -> bool {
    let p = &*row.params;
    let early = row.output_index < p.min_tokens && !p.end_ids.is_empty();
    let penalties = p.repetition_penalty != 1.0 || p.presence_penalty != 0.0 || p.frequency_penalty != 0.0;
    // Without a branch: a loop that could end early takes one element at a time.
    let clean = || logits.iter().fold(true, |clean, l| clean & !l.is_nan());
    if p.logit_bias.is_empty() && !early && !penalties && mask.is_none() && clean() {
        return false;
    }
    out.clear();
    out.extend_from_slice(logits);
    let mut at = |id: TokenId, f: &dyn Fn(f32) -> f32| {
        if let Some(l) = out.get_mut(id as usize) {
            *l = f(*l);
        }
    };
    p.logit_bias.iter().for_each(|(id, bias)| at(*id, &|l| l + bias));
    if early {
        p.end_ids.iter().for_each(|id| at(*id, &|_| f32::NEG_INFINITY));
    }
    if let Some(mask) = mask {
        for id in 0..logits.len() as TokenId {
            let allowed = mask.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1);
            if !allowed {
                at(id, &|_| f32::NEG_INFINITY);
            }
        }
    }
    if penalties {
        let p = sampling(p);
        history.iter().for_each(|(id, seen)| at(id, &|l| definition::penalised(l, &p, seen.in_prompt, seen.output_count)));
    }
    out.iter_mut().for_each(|l| *l = number(*l));
    true
}

fn number(logit: f32) -> f32 {
    if logit.is_nan() { f32::NEG_INFINITY } else { logit }
}

/// Adds biases to logits that are numbers, and leaves numbers.
fn add(logits: &mut [f32], list: &[(TokenId, f32)]) {
    for (id, bias) in list {
        if let Some(l) = logits.get_mut(*id as usize) {
            *l = number(*l + bias);
        }
    }
}

/// All weights are in units of the sum over the logits as they come in, also where a token is listed twice.
fn mix(logits: &mut [f32], list: &[(TokenId, f32)]) {
    if list.is_empty() {
        return;
    }
    let best = largest(logits);
    let Some(mixture) = Mixture::new(best, || run(Total { logits, best })) else { return };
    for &(id, weight) in list {
        if let Some(l) = logits.get_mut(id as usize) {
            *l = mixture.mixed(*l, weight);
        }
    }
}

fn sampling(p: &SamplingParams) -> definition::Sampling<'_> {
    definition::Sampling {
        temperature: p.temperature,
        top_p: p.top_p,
        top_k: p.top_k,
        min_p: p.min_p,
        seed: p.seed,
        repetition_penalty: p.repetition_penalty,
        presence_penalty: p.presence_penalty,
        frequency_penalty: p.frequency_penalty,
        logit_bias: &p.logit_bias,
        min_tokens: p.min_tokens,
        end_ids: &p.end_ids,
    }
}

/// Temperature, filters and draw over logits without NaN.
fn choose(logits: &[f32], p: &SamplingParams, output_index: u32, choice: u32, s: &mut SamplerScratch) -> TokenId {
    let best = largest(logits);
    if p.temperature < TEMPERATURE_MIN || best == f32::NEG_INFINITY {
        return logits.iter().position(|l| *l == best).unwrap_or(0) as TokenId;
    }
    let bits = draw(p.seed, output_index, choice, 0);
    let min_weight = p.min_p * WEIGHT_ONE;
    let top_k = if p.top_k == 0 { logits.len() } else { (p.top_k as usize).min(logits.len()) };
    if top_k == logits.len() && p.top_p >= 1.0 {
        return draw_from_all(logits, best, p.temperature, min_weight, bits, &mut s.weights);
    }
    let kept = if top_k < logits.len() {
        let ranked = rank(logits, top_k, &mut s.ranked);
        let total = ranked.iter().map(|(l, _)| weight(*l, best, p.temperature)).sum();
        let enough = nucleus(ranked, best, p.temperature, top_p_target(p.top_p, total));
        &mut ranked[..if p.top_p < 1.0 { enough.unwrap_or(top_k) } else { top_k }]
    } else {
        rank_nucleus(logits, best, p, s)
    };
    kept.sort_unstable_by_key(|(_, id)| *id);
    let weights = || kept.iter().map(|(l, id)| (weight(*l, best, p.temperature), *id)).filter(|(w, _)| *w as f32 >= min_weight);
    let target = scaled(bits, weights().map(|(w, _)| w).sum());
    let mut sum = 0;
    weights().find(|(w, _)| (sum += w, sum > target).1).expect("the target lies below the total").1
}

fn draw_from_all(logits: &[f32], best: f32, temperature: f32, min_weight: f32, bits: u64, weights: &mut Vec<f32>) -> TokenId {
    weights.resize(logits.len(), 0.0);
    let target = scaled(bits, run(Weights { logits, best, inverse: 1.0 / temperature, min_weight, out: weights }));
    let mut sum = 0;
    for (i, part) in weights.chunks(64 * LANES).enumerate() {
        let here = run(Rounded(part));
        if sum + here > target {
            let id = part.iter().position(|w| (sum += *w as u64, sum > target).1).expect("the target lies in this part");
            return (i * 64 * LANES + id) as TokenId;
        }
        sum += here;
    }
    unreachable!("the target lies below the total")
}

/// Tokens of the nucleus, best first.
fn rank_nucleus<'a>(logits: &[f32], best: f32, p: &SamplingParams, s: &'a mut SamplerScratch) -> &'a mut [(f32, TokenId)] {
    s.weights.resize(logits.len(), 0.0);
    let total = run(Weights { logits, best, inverse: 1.0 / p.temperature, min_weight: 0.0, out: &mut s.weights });
    let target = top_p_target(p.top_p, total);
    // Tokens below an equal share of what may be left out cannot be needed. The margin covers rounding of the logarithm.
    let share = (total - target.min(total)) as f64 / logits.len() as f64 / f64::from(WEIGHT_ONE);
    let bound = f64::from(best) + f64::from(p.temperature) * (share.ln() - 0.01);
    s.ranked.clear();
    s.ranked.extend(logits.iter().zip(0..).filter(|(l, _)| f64::from(**l) >= bound).map(|(l, id)| (*l, id)));
    let mut sorted = s.ranked.len().min(256);
    loop {
        keep_best(&mut s.ranked, sorted);
        s.ranked[..sorted].sort_unstable_by(by_rank);
        match nucleus(&s.ranked[..sorted], best, p.temperature, target) {
            Some(n) => return &mut s.ranked[..n],
            None if sorted == s.ranked.len() => return &mut s.ranked[..],
            None => sorted = (sorted * 8).min(s.ranked.len()),
        }
    }
}

/// How many of the ranked tokens reach `target`.
fn nucleus(ranked: &[(f32, TokenId)], best: f32, temperature: f32, target: u64) -> Option<usize> {
    let mut sum = 0;
    ranked.iter().position(|(l, _)| (sum += weight(*l, best, temperature), sum >= target).1).map(|i| i + 1)
}

fn by_rank(a: &(f32, TokenId), b: &(f32, TokenId)) -> std::cmp::Ordering {
    b.0.partial_cmp(&a.0).unwrap_or(std::cmp::Ordering::Equal).then(a.1.cmp(&b.1))
}

fn keep_best(list: &mut [(f32, TokenId)], n: usize) {
    if n > 0 && n < list.len() {
        list.select_nth_unstable_by(n - 1, by_rank);
    }
}

/// The `n` best tokens, best first; `n` is at least 1.
fn rank<'a>(logits: &[f32], n: usize, list: &'a mut Vec<(f32, TokenId)>) -> &'a mut [(f32, TokenId)] {
    let n = n.min(logits.len());
    let room = 2 * n + 64;
    let mut floor = f32::NEG_INFINITY;
    list.clear();
    for (i, part) in logits.chunks(LANES * 4).enumerate() {
        if list.len() >= n && largest(part) <= floor {
            continue;
        }
        let first = (i * LANES * 4) as TokenId;
        // Until `n` are listed everything is; later an equal one has the higher id and loses.
        let full = list.len() >= n;
        list.extend(part.iter().zip(first..).filter(|(l, _)| !full || **l > floor).map(|(l, id)| (*l, id)));
        if list.len() >= room {
            keep_best(list, n);
            list.truncate(n);
            floor = list[n - 1].0;
        }
    }
    keep_best(list, n);
    list.truncate(n);
    list.sort_unstable_by(by_rank);
    list
}

fn largest(x: &[f32]) -> f32 {
    run(Largest(x))
}

struct Largest<'a>(&'a [f32]);

impl Kernel for Largest<'_> {
    type Output = f32;

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) -> f32 {
        let parts = self.0.chunks_exact(LANES);
        let rest = parts.remainder().iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
        // SAFETY: the instruction set is the caller's promise; parts have LANES elements.
        unsafe {
            let mut best = L::splat(rest);
            for part in parts {
                // A NaN on the left gives the right operand.
                best = L::load(part.as_ptr()).max(best);
            }
            best.largest()
        }
    }
}

/// Sum of integer weights at temperature 1.
struct Total<'a> {
    logits: &'a [f32],
    best: f32,
}

impl Kernel for Total<'_> {
    type Output = u64;

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) -> u64 {
        let parts = self.logits.chunks_exact(LANES);
        let mut total: u64 = parts.remainder().iter().map(|l| weight(*l, self.best, 1.0)).sum();
        // SAFETY: the instruction set is the caller's promise; parts have LANES elements.
        unsafe {
            for part in parts {
                total += L::load(part.as_ptr()).sub(L::splat(self.best)).exp().mul(L::splat(WEIGHT_ONE)).sum_rounded();
            }
        }
        total
    }
}

/// Rounded weights of at least `min_weight`, others 0, and their sum.
struct Weights<'a> {
    logits: &'a [f32],
    best: f32,
    inverse: f32,
    min_weight: f32,
    out: &'a mut [f32],
}

impl Kernel for Weights<'_> {
    type Output = u64;

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) -> u64 {
        let (parts, outs) = (self.logits.chunks_exact(LANES), self.out.chunks_exact_mut(LANES));
        let rest = parts.remainder();
        let mut total = 0;
        // SAFETY: the instruction set is the caller's promise; parts have LANES elements.
        unsafe {
            for (part, out) in parts.zip(outs) {
                let e = L::load(part.as_ptr()).sub(L::splat(self.best)).mul(L::splat(self.inverse)).exp();
                let w = e.mul(L::splat(WEIGHT_ONE)).round();
                let w = w.zero_below(w, self.min_weight);
                total += w.sum_rounded();
                w.store(out.as_mut_ptr());
            }
        }
        let at = self.logits.len() - rest.len();
        for (l, out) in rest.iter().zip(&mut self.out[at..]) {
            let w = weight(*l, self.best, 1.0 / self.inverse) as f32;
            *out = if w < self.min_weight { 0.0 } else { w };
            total += *out as u64;
        }
        total
    }
}

/// Sum of integers in `f32`.
struct Rounded<'a>(&'a [f32]);

impl Kernel for Rounded<'_> {
    type Output = u64;

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) -> u64 {
        let parts = self.0.chunks_exact(LANES);
        let rest: u64 = parts.remainder().iter().map(|w| *w as u64).sum();
        // SAFETY: the instruction set is the caller's promise; parts have LANES elements.
        rest + parts.map(|part| unsafe { L::load(part.as_ptr()).sum_rounded() }).sum::<u64>()
    }
}

/// Sums of `e^(l - best)` and of the same times `l - best`, over at most some thousand logits.
struct Moments<'a> {
    logits: &'a [f32],
    best: f32,
}

impl Kernel for Moments<'_> {
    type Output = (f64, f64);

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) -> (f64, f64) {
        let parts = self.logits.chunks_exact(LANES);
        let (mut sum, mut weighted) = (0.0, 0.0);
        for l in parts.remainder() {
            let x = f64::from(l - self.best).max(-100.0);
            (sum, weighted) = (sum + x.exp(), weighted + x.exp() * x);
        }
        // SAFETY: the instruction set is the caller's promise; parts have LANES elements.
        unsafe {
            let (mut a, mut b) = (L::splat(0.0), L::splat(0.0));
            for part in parts {
                // Bounded, for minus infinity times zero is no number.
                let x = L::load(part.as_ptr()).sub(L::splat(self.best)).max(L::splat(-100.0));
                let e = x.exp();
                a = a.add(e);
                b = e.mul_add(x, b);
            }
            (sum + f64::from(a.sum()), weighted + f64::from(b.sum()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{SeqId, SlotId};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn row(params: SamplingParams, output_index: u32) -> SampleRow {
        let (seq, slot) = (SeqId(1), SlotId(0));
        SampleRow { seq, slot, params: Arc::new(params), output_index, choice: 1, forced: None, awaits_edits: false }
    }

    /// The definition's answer for the same row.
    fn defined(logits: &[f32], row: &SampleRow, history: &History, edits: Option<&RowEdits>) -> TokenId {
        let (mut in_prompt, mut counts) = (vec![false; logits.len()], vec![0; logits.len()]);
        for (id, seen) in history.iter() {
            (in_prompt[id as usize], counts[id as usize]) = (seen.in_prompt, seen.output_count);
        }
        let context = definition::Context {
            in_prompt: &in_prompt,
            output_counts: &counts,
            edits: edits.map_or(&[], |e| &e.bias),
            mix: edits.map_or(&[], |e| &e.mix),
            mask: edits.and_then(|e| e.mask.as_deref()),
            output_index: row.output_index,
            choice: row.choice,
        };
        definition::sample(logits, &sampling(&row.params), &context)
    }

    prop_compose! {
        fn params()(
            temperature in prop_oneof![Just(0.0f32), Just(1.0), 0.05f32..3.0],
            top_p in prop_oneof![Just(1.0f32), 0.01f32..1.0],
            top_k in prop_oneof![Just(0u32), 1u32..60, Just(5000)],
            min_p in prop_oneof![Just(0.0f32), 0.0f32..0.5],
            (repetition_penalty, presence_penalty, frequency_penalty) in
                prop_oneof![Just((1.0f32, 0.0f32, 0.0f32)), (0.5f32..2.0, -1.0f32..1.0, -1.0f32..1.0)],
            logit_bias in prop::collection::btree_map(0u32..300, -5.0f32..5.0, 0..4),
            min_tokens in 0u32..4,
            seed in any::<u64>(),
        ) -> SamplingParams {
            SamplingParams {
                temperature, top_p, top_k, min_p, seed, repetition_penalty, presence_penalty, frequency_penalty,
                logit_bias: logit_bias.into_iter().collect(), min_tokens, end_ids: vec![3, 5], logprobs: None, certainty: false,
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]
        #[test]
        fn the_chosen_token_is_the_definitions(
            params in params(),
            vocab in 300usize..1500,
            spread in prop_oneof![Just(0.0f32), Just(1.0), 0.1f32..20.0],
            noise in any::<u32>(),
            seen in prop::collection::vec((0u32..300, 0u32..20), 0..30),
            bias in prop::collection::vec((0u32..300, -9.0f32..9.0), 0..4),
            mix in prop::collection::vec((0u32..300, prop_oneof![0.0f32..20.0, 0.0f32..1e-3]), 0..6),
            masked in any::<bool>(),
            index in 0u32..8,
        ) {
            // Coarse values, so that ties occur.
            let value = |i: usize| (((i as u32).wrapping_mul(2_654_435_761) ^ noise) >> 20) as f32 / 4096.0 * spread;
            let logits: Vec<f32> = (0..vocab).map(|i| (value(i) * 16.0).round() / 16.0).collect();
            let mut history = History::default();
            seen.iter().for_each(|(token, position)| history.push(*token, *position, 10));
            let mask: Option<Arc<[u32]>> = masked.then(|| (0..vocab.div_ceil(32) as u32).map(|w| w.wrapping_mul(noise | 1)).collect());
            let mut unique = bias;
            unique.sort_by_key(|b| b.0);
            unique.dedup_by_key(|b| b.0);
            let edits = RowEdits { seq: SeqId(1), bias: unique, mix, mask };
            let row = row(params, index);
            let scratch = &mut SamplerScratch::default();
            for edits in [None, Some(&edits)] {
                prop_assert_eq!(sample(&logits, &row, &history, edits, scratch).token, defined(&logits, &row, &history, edits));
            }
        }
    }

    #[test]
    fn a_mixture_makes_a_sure_token_of_an_unlikely_one_and_leaves_the_reported_figures_alone() {
        let logits: Vec<f32> = (0..1003).map(|i| if i == 4 { 12.0 } else { 0.0 }).collect();
        let edits = RowEdits { seq: SeqId(1), bias: vec![], mix: vec![(700, 19.0), (5000, 19.0)], mask: None };
        let row = row(SamplingParams { logprobs: Some(1), ..SamplingParams::greedy() }, 0);
        let (history, scratch) = (History::default(), &mut SamplerScratch::default());
        let plain = sample(&logits, &row, &history, None, scratch);
        let mixed = sample(&logits, &row, &history, Some(&edits), scratch);
        assert_eq!((plain.token, mixed.token), (4, 700));
        assert_eq!((plain.changed, mixed.changed), (Some(false), Some(true)));
        assert_eq!(mixed.logprobs.unwrap().top, plain.logprobs.unwrap().top);
    }

    #[test]
    fn log_probabilities_and_certainty_are_those_of_the_unedited_logits() {
        let logits: Vec<f32> = (0..1003).map(|i| ((i * 37 % 101) as f32) * 0.1).collect();
        let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        let p: Vec<f64> = logits.iter().map(|l| f64::from(*l).exp() / sum).collect();
        let params =
            SamplingParams { logprobs: Some(3), certainty: true, logit_bias: vec![(7, 100.0)], ..SamplingParams::greedy() };
        let got = sample(&logits, &row(params, 0), &History::default(), None, &mut SamplerScratch::default());
        let lp = got.logprobs.unwrap();
        assert_eq!(got.token, 7);
        assert!((f64::from(lp.logprob) - p[7].ln()).abs() < 1e-5);
        assert_eq!(lp.top.len(), 3);
        assert!(lp.top.windows(2).all(|w| w[0].1 > w[1].1 || (w[0].1 == w[1].1 && w[0].0 < w[1].0)));
        let top = p.iter().fold(0.0f64, |a, b| a.max(*b));
        assert!((f64::from(lp.top[0].1) - top.ln()).abs() < 1e-5);
        let entropy: f64 = -p.iter().map(|p| p * p.ln()).sum::<f64>();
        let c = got.certainty.unwrap();
        assert!((f64::from(c.entropy) - entropy).abs() < 1e-4 && (f64::from(c.top_prob) - top).abs() < 1e-6);
    }

    #[test]
    fn a_forced_token_is_taken_and_reported() {
        let forced = SampleRow { forced: Some(9), ..row(SamplingParams { logprobs: Some(0), ..Default::default() }, 0) };
        let got = sample(&[0.0; 64], &forced, &History::default(), None, &mut SamplerScratch::default());
        assert_eq!((got.token, got.logprobs.unwrap().top.len()), (9, 0));
    }

    #[test]
    fn rows_without_numbers_do_not_stop_the_engine() {
        let scratch = &mut SamplerScratch::default();
        for params in [SamplingParams::default(), SamplingParams { top_p: 0.5, ..Default::default() }, SamplingParams::greedy()] {
            assert_eq!(sample(&[f32::NAN; 40], &row(params.clone(), 0), &History::default(), None, scratch).token, 0);
            let mut one = [f32::NAN; 40];
            one[33] = 1.0;
            assert_eq!(sample(&one, &row(params, 0), &History::default(), None, scratch).token, 33);
        }
    }
}

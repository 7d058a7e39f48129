//! Chooses a token from a row of logits, as `chimere_kernels::reference::sampler` defines it, and reports
//! log-probabilities.
//!
//! Greedy sampling is one pass. Where a mask allows few tokens, only these are looked at. Nothing sorts the vocabulary:
//! top-k keeps a short list behind a rising threshold, top-p sorts only tokens that can belong to the nucleus. Weights
//! are integers, so the sums here may run in any order.

mod edit;
mod edited_draw;
pub(crate) mod history;
mod logprobs;
mod rank;
mod scan;
mod weight_sum;
mod weights;

pub(crate) use logprobs::logprobs;
pub(crate) use scan::is_finite;

use crate::backend::cpu::sampler::edit::{add, edit, mix};
use crate::backend::cpu::sampler::edited_draw::EditedToken;
use crate::backend::cpu::sampler::history::History;
use crate::backend::cpu::sampler::logprobs::{certainty, processed_logprobs};
use crate::backend::cpu::sampler::rank::{filtered, keep};
use crate::backend::cpu::sampler::scan::{first, largest, number};
use crate::backend::cpu::sampler::weights::TokenWeights;
use crate::constraint::Constraint;
use crate::ids::TokenId;
use crate::step::{RowReport, Sample, SampleRow};
use chimere_kernels::reference::philox::draw;
use chimere_kernels::reference::sampler::{TEMPERATURE_MIN, WEIGHT_ONE, scaled, weight};
use std::sync::Arc;

/// Of so many tokens a mask has to allow fewer than one for these to be drawn from by themselves.
const FEW_IN: usize = 8;

/// What one thread needs.
#[derive(Default)]
pub(crate) struct SamplerScratch {
    logits: Vec<f32>,
    /// The ids of `logits`, where these are a few.
    few: Vec<TokenId>,
    pub(crate) weights: TokenWeights,
    pub(crate) listed: Vec<EditedToken>,
    ranked: Vec<(f32, TokenId)>,
}

/// Samples one row: `logits` are the model's own.
pub(crate) fn sample(
    logits: &[f32],
    row: &SampleRow,
    history: &History,
    constraint: &Constraint,
    s: &mut SamplerScratch,
) -> Sample {
    let p = &*row.params;
    let finite = match read_of(row, constraint, logits.len()) {
        None => is_finite(logits),
        Some(mask) => ids_of(&mask).all(|id| logits.get(id as usize).is_none_or(|l| l.is_finite())),
    };
    let forced = |token| Picked { token, changed: false, left: Left::Nothing };
    let Picked { token, changed, left } =
        constraint.forced.map_or_else(|| pick((logits, finite), row, history, constraint, s), forced);
    Sample {
        seq: row.seq,
        token,
        logprobs: p.logprobs.map(|top| match p.processed {
            true => processed_logprobs(logits, row, (constraint, left), (token, top as usize), s),
            false => logprobs(logits, token, top as usize, s),
        }),
        certainty: p.certainty.then(|| certainty(logits)),
        changed: Some(changed),
        yielded: constraint.yielded,
        report: RowReport::of(row, constraint, logits.len() as u32),
        finite,
    }
}

/// What the edited logits give.
struct Picked {
    token: TokenId,
    /// Biases or mixtures made it another one.
    changed: bool,
    /// What of them stands in the scratch.
    left: Left,
}

/// Which logits a draw leaves behind.
#[derive(Clone, Copy)]
enum Left {
    /// None: they are the model's own as far as biases and mixtures do not change them.
    Nothing,
    /// Those before biases and mixtures.
    Edited,
    /// Those that are drawn from.
    All,
}

/// `finite`: whether all logits that are read are finite numbers.
fn pick(
    (logits, finite): (&[f32], bool),
    row: &SampleRow,
    history: &History,
    c: &Constraint,
    s: &mut SamplerScratch,
) -> Picked {
    if let Some(token) = pick_of_few(logits, row, c, s) {
        return Picked { token, changed: false, left: Left::Nothing };
    }
    let mut own = std::mem::take(&mut s.logits);
    let mut left = if edit((logits, finite), row, history, c, &mut own) { Left::Edited } else { Left::Nothing };
    let base = if matches!(left, Left::Edited) { &own } else { logits };
    let best = largest(base);
    let (token, changed) = if c.shifts() {
        let chosen = edited_draw::choose(base, best, row, c, s);
        let plain = chosen.plain.unwrap_or_else(|| choose(base, best, row, s));
        let token = chosen.edited.unwrap_or_else(|| {
            left = shift(logits, c, left, &mut own);
            // The random number is drawn again, so a token differs only because of what was added and mixed in.
            choose(&own, largest(&own), row, s)
        });
        (token, token != plain)
    } else {
        (choose(base, best, row, s), false)
    };
    s.logits = own;
    Picked { token, changed, left }
}

/// The mask of a row to which nothing is done but that it allows few of so many tokens.
fn few_of<'a>(row: &SampleRow, c: &'a Constraint, vocab: usize) -> Option<&'a Arc<[u32]>> {
    let p = &*row.params;
    let alone = p.logit_bias.is_empty() && !p.processed && !p.reads_history() && !c.shifts();
    let mask = c.mask.as_ref().filter(|_| alone)?;
    let allowed: usize = mask.iter().map(|word| word.count_ones() as usize).sum();
    (allowed * FEW_IN <= vocab).then_some(mask)
}

/// The tokens whose logits [`sample`] reads of a row, as a mask that allows these and no others; `None` if it reads
/// all. No logit is read of a row with a forced token.
pub(crate) fn read_of(row: &SampleRow, c: &Constraint, vocab: usize) -> Option<Arc<[u32]>> {
    let p = &*row.params;
    match c.forced {
        _ if p.logprobs.is_some() || p.certainty => None,
        Some(_) => Some([].into()),
        None => few_of(row, c, vocab).cloned(),
    }
}

/// The token of a row to which nothing but a mask that allows few tokens is done: what it forbids has no weight, so the
/// draw is that of all. `None` of other rows.
fn pick_of_few(logits: &[f32], row: &SampleRow, c: &Constraint, s: &mut SamplerScratch) -> Option<TokenId> {
    let mask = few_of(row, c, logits.len())?;
    let mut own = std::mem::take(&mut s.logits);
    s.few.clear();
    s.few.extend(ids_of(mask).filter(|id| (*id as usize) < logits.len() && !c.forbidden.contains(id)));
    own.clear();
    own.extend(s.few.iter().map(|id| number(logits[*id as usize])));
    let best = largest(&own);
    // Of a row without numbers the first token is taken, whatever the mask allows.
    let token = match best {
        f32::NEG_INFINITY => 0,
        _ => {
            let at = choose(&own, best, row, s) as usize;
            s.few[at]
        }
    };
    s.logits = own;
    Some(token)
}

/// The tokens that a mask allows, in ascending order.
fn ids_of(mask: &[u32]) -> impl Iterator<Item = TokenId> {
    let of_word = |(at, word): (u32, &u32)| {
        let left = Some(*word).filter(|word| *word != 0);
        let words = std::iter::successors(left, |word| Some(word & (word - 1)).filter(|word| *word != 0));
        words.map(move |word| 32 * at + word.trailing_zeros())
    };
    (0..).zip(mask).flat_map(of_word)
}

/// Makes of the logits that are left those that are drawn from.
fn shift(logits: &[f32], c: &Constraint, left: Left, own: &mut Vec<f32>) -> Left {
    if matches!(left, Left::Nothing) {
        own.clear();
        own.extend_from_slice(logits);
    }
    if !matches!(left, Left::All) {
        add(own, &c.bias);
        mix(own, &c.mix);
    }
    Left::All
}

/// Temperature, filters and draw over logits without NaN, of which `best` is the largest.
fn choose(logits: &[f32], best: f32, row: &SampleRow, s: &mut SamplerScratch) -> TokenId {
    let p = &*row.params;
    if p.temperature < TEMPERATURE_MIN || best == f32::NEG_INFINITY {
        return first(logits, best);
    }
    let bits = bits(row);
    let min_weight = p.min_p * WEIGHT_ONE;
    if !filtered(p, logits.len()) {
        let total = s.weights.weigh(logits, best, p.temperature, min_weight);
        return s.weights.at(scaled(bits, total));
    }
    let kept = keep(logits, best, p, s);
    kept.sort_unstable_by_key(|(_, id)| *id);
    let weights =
        || kept.iter().map(|(l, id)| (weight(*l, best, p.temperature), *id)).filter(|(w, _)| *w as f32 >= min_weight);
    let target = scaled(bits, weights().map(|(w, _)| w).sum());
    let mut sum = 0;
    weights().find(|(w, _)| (sum += w, sum > target).1).expect("the target lies below the total").1
}

/// The random number of a row.
pub(crate) fn bits(row: &SampleRow) -> u64 {
    draw(row.params.seed, row.output_index, row.choice, 0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::edit::sampling;
    use super::*;
    use crate::ids::{SeqId, SlotId};
    use crate::sampling::SamplingParams;
    use chimere_kernels::reference::sampler as definition;
    use proptest::prelude::*;
    use std::sync::Arc;

    pub(super) fn row(params: SamplingParams, output_index: u32) -> SampleRow {
        SampleRow { output_index, choice: 1, ..SampleRow::new(SeqId(1), SlotId(0), Arc::new(params)) }
    }

    /// The definition's answer for the same row. What is forbidden is there what may not come before so many tokens.
    pub(super) fn defined(logits: &[f32], row: &SampleRow, history: &History, constraint: &Constraint) -> TokenId {
        let (mut in_prompt, mut counts) = (vec![false; logits.len()], vec![0; logits.len()]);
        for (id, seen) in history.iter() {
            (in_prompt[id as usize], counts[id as usize]) = (seen.in_prompt, seen.output_count);
        }
        let context = definition::Context {
            in_prompt: &in_prompt,
            output_counts: &counts,
            edits: &constraint.bias,
            mix: &constraint.mix,
            mask: constraint.mask.as_deref(),
            output_index: row.output_index,
            choice: row.choice,
        };
        let params = definition::Sampling {
            min_tokens: row.output_index + 1,
            end_ids: &constraint.forbidden,
            ..sampling(&row.params)
        };
        definition::sample(logits, &params, &context)
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
            seed in any::<u64>(),
        ) -> SamplingParams {
            SamplingParams {
                temperature, top_p, top_k, min_p, seed, repetition_penalty, presence_penalty, frequency_penalty,
                logit_bias: logit_bias.into_iter().collect(), logprobs: None, processed: false, certainty: false,
                report: false,
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
            (masked, sparse) in (any::<bool>(), any::<bool>()),
            forbidden in prop_oneof![Just(vec![]), Just(vec![3, 5]), prop::collection::vec(0u32..300, 1..20)],
            index in 0u32..8,
        ) {
            // Coarse values, so that ties occur.
            let value = |i: usize| (((i as u32).wrapping_mul(2_654_435_761) ^ noise) >> 20) as f32 / 4096.0 * spread;
            let logits: Vec<f32> = (0..vocab).map(|i| (value(i) * 16.0).round() / 16.0).collect();
            let mut history = History::default();
            seen.iter().for_each(|(token, position)| history.push(*token, *position, 10));
            let mask: Option<Arc<[u32]>> = masked.then(|| (0..vocab.div_ceil(32) as u32).map(|w| w.wrapping_mul(noise | 1)).map(|w| if sparse { w & 0x0100_0041 } else { w }).collect());
            let mut unique = bias;
            unique.sort_by_key(|b| b.0);
            unique.dedup_by_key(|b| b.0);
            let few = Constraint { forbidden, ..Constraint::default() };
            let grammar = Constraint { mask, ..few.clone() };
            let all = Constraint { bias: unique, mix, ..grammar.clone() };
            let row = row(params, index);
            let scratch = &mut SamplerScratch::default();
            for constraint in [Constraint::default(), few, grammar, all] {
                let got = sample(&logits, &row, &history, &constraint, scratch).token;
                prop_assert_eq!(got, defined(&logits, &row, &history, &constraint));
            }
        }
    }

    #[test]
    fn a_mixture_makes_a_sure_token_of_an_unlikely_one_and_leaves_the_reported_figures_alone() {
        let logits: Vec<f32> = (0..1003).map(|i| if i == 4 { 12.0 } else { 0.0 }).collect();
        let tables = Constraint { mix: vec![(700, 19.0), (5000, 19.0)], ..Constraint::default() };
        let row = row(SamplingParams { logprobs: Some(1), ..SamplingParams::greedy() }, 0);
        let (history, scratch) = (History::default(), &mut SamplerScratch::default());
        let plain = sample(&logits, &row, &history, &Constraint::default(), scratch);
        let mixed = sample(&logits, &row, &history, &tables, scratch);
        assert_eq!((plain.token, mixed.token), (4, 700));
        assert_eq!((plain.changed, mixed.changed), (Some(false), Some(true)));
        assert_eq!(mixed.logprobs.unwrap().top, plain.logprobs.unwrap().top);
    }

    #[test]
    fn log_probabilities_and_certainty_are_those_of_the_unedited_logits() {
        let logits: Vec<f32> = (0..1003).map(|i| ((i * 37 % 101) as f32) * 0.1).collect();
        let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        let p: Vec<f64> = logits.iter().map(|l| f64::from(*l).exp() / sum).collect();
        let params = SamplingParams {
            logprobs: Some(3),
            certainty: true,
            logit_bias: vec![(7, 100.0)],
            ..SamplingParams::greedy()
        };
        let (history, scratch) = (History::default(), &mut SamplerScratch::default());
        let got = sample(&logits, &row(params, 0), &history, &Constraint::default(), scratch);
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

    /// Probabilities of the tokens that may be drawn, by definition: edits, temperature, top-k, top-p, min-p.
    fn drawn(logits: &[f32], p: &SamplingParams, may_come: impl Fn(TokenId) -> bool) -> Vec<(TokenId, f64)> {
        let bias = |id| p.logit_bias.iter().find(|(of, _)| *of == id).map_or(0.0, |(_, bias)| *bias);
        let temperature = if p.temperature == 0.0 { 1.0 } else { f64::from(p.temperature) };
        let ids = (0..logits.len() as TokenId).filter(|id| may_come(*id));
        let mut all: Vec<_> =
            ids.map(|id| (id, (f64::from(logits[id as usize] + bias(id)) / temperature).exp())).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        if p.temperature > 0.0 {
            all.truncate(if p.top_k == 0 { all.len() } else { p.top_k as usize });
            let (target, mut sum) = (all.iter().map(|a| a.1).sum::<f64>() * f64::from(p.top_p), 0.0);
            let enough = all.iter().position(|a| (sum += a.1, sum >= target).1).map_or(all.len(), |at| at + 1);
            all.truncate(if p.top_p < 1.0 { enough } else { all.len() });
            let least = all[0].1 * f64::from(p.min_p);
            all.retain(|a| a.1 >= least);
        }
        let total: f64 = all.iter().map(|a| a.1).sum();
        all.into_iter().map(|(id, p)| (id, p / total)).collect()
    }

    #[test]
    fn processed_log_probabilities_are_those_of_what_a_token_is_drawn_from() {
        let logits: Vec<f32> = (0..1003).map(|i| (i * 37 % 1009) as f32 * 0.013).collect();
        let bias = vec![(7, 9.0), (900, -50.0)];
        let base = SamplingParams { logprobs: Some(20), processed: true, logit_bias: bias, ..Default::default() };
        let few: Arc<[u32]> = (0..32).map(|word| if word == 3 { 0b1011_0110 } else { 0 }).collect();
        for params in [
            base.clone(),
            SamplingParams { temperature: 0.4, min_p: 0.3, ..base.clone() },
            SamplingParams { temperature: 1.7, top_k: 9, ..base.clone() },
            SamplingParams { temperature: 0.8, top_p: 0.2, ..base.clone() },
            SamplingParams { top_k: 30, top_p: 0.6, min_p: 0.4, ..base.clone() },
            SamplingParams { temperature: 0.0, top_k: 3, ..base },
        ] {
            for mask in [None, Some(few.clone())] {
                let may_come = |id: TokenId| mask.as_ref().is_none_or(|m| m[id as usize / 32] >> (id % 32) & 1 == 1);
                let constraint = Constraint { mask: mask.clone(), ..Constraint::default() };
                let scratch = &mut SamplerScratch::default();
                let got = sample(&logits, &row(params.clone(), 3), &History::default(), &constraint, scratch);
                let (wanted, reported) = (drawn(&logits, &params, may_come), got.logprobs.unwrap());
                assert_eq!(reported.top.len(), wanted.len().min(20), "{params:?}");
                for (got, wanted) in reported.top.iter().zip(&wanted) {
                    assert!(got.0 == wanted.0 && (f64::from(got.1) - wanted.1.ln()).abs() < 1e-4, "{got:?} {wanted:?}");
                }
                let own = wanted.iter().find(|(id, _)| *id == got.token).expect("what was drawn could be").1;
                assert!((f64::from(reported.logprob) - own.ln()).abs() < 1e-4, "{params:?}");
            }
        }
    }

    #[test]
    fn a_processed_report_of_a_forced_token_or_of_the_only_one_is_certain() {
        let params = SamplingParams { logprobs: Some(5), processed: true, ..Default::default() };
        let only: Arc<[u32]> = [1 << 9, 0].into();
        for constraint in [
            Constraint { forced: Some(9), ..Constraint::default() },
            Constraint { mask: Some(only), ..Constraint::default() },
        ] {
            let got = sample(
                &[0.0; 64],
                &row(params.clone(), 0),
                &History::default(),
                &constraint,
                &mut SamplerScratch::default(),
            );
            let reported = got.logprobs.unwrap();
            assert_eq!((got.token, reported.logprob, &reported.top[..]), (9, 0.0, &[(9, 0.0)][..]));
        }
    }

    #[test]
    fn a_forced_token_is_taken_and_reported() {
        let row = row(SamplingParams { logprobs: Some(0), ..Default::default() }, 0);
        let forced = Constraint { forced: Some(9), ..Constraint::default() };
        let got = sample(&[0.0; 64], &row, &History::default(), &forced, &mut SamplerScratch::default());
        assert_eq!((got.token, got.logprobs.unwrap().top.len()), (9, 0));
    }

    #[test]
    fn rows_without_numbers_do_not_stop_the_engine() {
        let scratch = &mut SamplerScratch::default();
        for params in
            [SamplingParams::default(), SamplingParams { top_p: 0.5, ..Default::default() }, SamplingParams::greedy()]
        {
            let (history, free) = (History::default(), Constraint::default());
            assert_eq!(sample(&[f32::NAN; 40], &row(params.clone(), 0), &history, &free, scratch).token, 0);
            let mut one = [f32::NAN; 40];
            one[33] = 1.0;
            assert_eq!(sample(&one, &row(params, 0), &history, &free, scratch).token, 33);
        }
    }
}

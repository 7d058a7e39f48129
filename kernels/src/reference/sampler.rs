//! How a token is chosen from a row of logits. Backends give the same token for the same logits, bit for bit.
//!
//! Order: logit_bias, min_tokens, mask; penalties; sparse edits, added ones before mixtures; temperature; top-k; top-p;
//! min-p. Tokens are ranked by logit, ties by lower id. Probabilities are integers in units of `2^-30` of the best
//! token's, so that sums of them are exact in any order: a backend may add them up as it likes. A NaN counts as minus
//! infinity.

use super::philox::draw;
use super::{exp, ln};

/// Below this temperature the best token is taken.
pub const TEMPERATURE_MIN: f32 = 1e-5;
/// Weight of the best token.
pub const WEIGHT_ONE: f32 = (1u32 << 30) as f32;

/// What a request asks for; the fields are those of its sampling parameters.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "named and explained by the request's parameters")]
pub struct Sampling<'a> {
    pub temperature: f32,
    pub top_p: f32,
    pub top_k: u32,
    pub min_p: f32,
    pub seed: u64,
    pub repetition_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    pub logit_bias: &'a [(u32, f32)],
    pub min_tokens: u32,
    pub end_ids: &'a [u32],
}

/// What stands before the token and what came from outside.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// By id: stands in the prompt.
    pub in_prompt: &'a [bool],
    /// By id: how often it was generated.
    pub output_counts: &'a [u32],
    /// Added after the penalties.
    pub edits: &'a [(u32, f32)],
    /// What is mixed in after that: of each listed token how much weight it gets, in units of all tokens' weight. With
    /// `lambda / (1 - lambda) * p` the tokens are drawn from `(1 - lambda) p_model + lambda p`.
    pub mix: &'a [(u32, f32)],
    /// Bit `id % 32` of word `id / 32`: may be sampled.
    pub mask: Option<&'a [u32]>,
    /// Tokens generated before this one.
    pub output_index: u32,
    /// Which choice of the request.
    pub choice: u32,
}

/// Chooses a token from a row of logits; the module says in which order.
pub fn sample(logits: &[f32], p: &Sampling, c: &Context) -> u32 {
    let logits = edited(logits, p, c);
    let mut order = ranked(&logits);
    let best = logits[order[0] as usize];
    if p.temperature < TEMPERATURE_MIN || best == f32::NEG_INFINITY {
        return order[0];
    }
    let weight = |id: u32| weight(logits[id as usize], best, p.temperature);
    filter(&mut order, p, weight);
    order.sort_unstable();
    let total: u64 = order.iter().map(|&id| weight(id)).sum();
    let target = scaled(draw(p.seed, c.output_index, c.choice, 0), total);
    let mut sum = 0;
    *order.iter().find(|&&id| (sum += weight(id), sum > target).1).expect("the target lies below the total")
}

/// Log-probabilities, in nats, of the distribution that [`sample`] draws from, best first: of all tokens that can be
/// drawn, so of one alone where no token is allowed. Without a temperature the best token is taken, and these are of
/// the edited logits at temperature 1.
pub fn drawn_logprobs(logits: &[f32], p: &Sampling, c: &Context) -> Vec<(u32, f32)> {
    let logits = edited(logits, p, c);
    let mut order = ranked(&logits);
    let best = logits[order[0] as usize];
    if best == f32::NEG_INFINITY {
        return vec![(order[0], 0.0)];
    }
    let draws = p.temperature >= TEMPERATURE_MIN;
    let temperature = if draws { p.temperature } else { 1.0 };
    let weight = |id: u32| weight(logits[id as usize], best, temperature);
    if draws {
        filter(&mut order, p, weight);
        // What rounds to nothing is never drawn.
        order.retain(|&id| weight(id) > 0);
    }
    let total: u64 = order.iter().map(|&id| weight(id)).sum();
    let log_sum = (total as f64 / f64::from(WEIGHT_ONE)).ln();
    let distance = |id: u32| f64::from(logits[id as usize]) - f64::from(best);
    order.retain(|&id| logits[id as usize] > f32::NEG_INFINITY);
    order.into_iter().map(|id| (id, (distance(id) / f64::from(temperature) - log_sum) as f32)).collect()
}

/// Ids by logit, ties by lower id.
fn ranked(logits: &[f32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    order.sort_by(|&a, &b| {
        logits[b as usize].partial_cmp(&logits[a as usize]).expect("NaN was replaced").then(a.cmp(&b))
    });
    order
}

/// Leaves of ranked ids what top-k, top-p and min-p keep.
fn filter(order: &mut Vec<u32>, p: &Sampling, weight: impl Fn(u32) -> u64) {
    if p.top_k > 0 {
        order.truncate(p.top_k as usize);
    }
    let total: u64 = order.iter().map(|&id| weight(id)).sum();
    keep_top_p(order, p.top_p, total, &weight);
    order.retain(|&id| weight(id) as f64 >= f64::from(p.min_p) * f64::from(WEIGHT_ONE));
}

/// Weight of a token beside the best one, in units of `1 / WEIGHT_ONE`.
#[inline]
pub fn weight(logit: f32, best: f32, temperature: f32) -> u64 {
    (exp((logit - best) * (1.0 / temperature)) * WEIGHT_ONE).round_ties_even() as u64
}

/// `bits / 2^64 * total`, rounded down.
pub fn scaled(bits: u64, total: u64) -> u64 {
    ((u128::from(bits) * u128::from(total)) >> 64) as u64
}

/// The least sum of weights that reaches `top_p` of `total`.
pub fn top_p_target(top_p: f32, total: u64) -> u64 {
    (f64::from(top_p) * total as f64).ceil() as u64
}

fn keep_top_p(order: &mut Vec<u32>, top_p: f32, total: u64, weight: impl Fn(u32) -> u64) {
    if top_p >= 1.0 {
        return;
    }
    let target = top_p_target(top_p, total);
    let mut sum = 0;
    let enough = order.iter().position(|&id| (sum += weight(id), sum >= target).1);
    order.truncate(enough.map_or(order.len(), |i| i + 1));
}

/// The logits after everything that changes single values.
pub fn edited(logits: &[f32], p: &Sampling, c: &Context) -> Vec<f32> {
    let mut l = logits.to_vec();
    p.logit_bias.iter().for_each(|&(id, bias)| l[id as usize] += bias);
    if c.output_index < p.min_tokens {
        p.end_ids.iter().for_each(|&id| l[id as usize] = f32::NEG_INFINITY);
    }
    for (id, l) in l.iter_mut().enumerate() {
        if c.mask.is_some_and(|m| m[id / 32] >> (id % 32) & 1 == 0) {
            *l = f32::NEG_INFINITY;
        }
        *l = penalised(*l, p, c.in_prompt[id], c.output_counts[id]);
    }
    c.edits.iter().for_each(|&(id, bias)| l[id as usize] += bias);
    l.iter_mut().filter(|l| l.is_nan()).for_each(|l| *l = f32::NEG_INFINITY);
    let best = l.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if let Some(mixture) = Mixture::new(best, || l.iter().map(|&l| weight(l, best, 1.0)).sum()) {
        c.mix.iter().for_each(|&(id, weight)| l[id as usize] = mixture.mixed(l[id as usize], weight));
    }
    l
}

/// A row's logits as a whole: what mixing needs beside a token's own.
#[derive(Clone, Copy, Debug)]
pub struct Mixture {
    best: f32,
    /// Sum of `e^(logit - best)` over all tokens, which is `e^(LSE - best)`.
    sum: f32,
}

impl Mixture {
    /// From the best logit and the sum of [`weight`] over all tokens at temperature 1. `None` if there is nothing to
    /// add up: no token is allowed, or the best logit is infinite.
    pub fn new(best: f32, total: impl FnOnce() -> u64) -> Option<Self> {
        best.is_finite().then(|| Self { best, sum: (total() as f64 / f64::from(WEIGHT_ONE)) as f32 })
    }

    /// `ln(e^logit + weight * e^LSE)`. A forbidden token stays forbidden; a weight that is no positive number changes
    /// nothing.
    #[inline]
    pub fn mixed(&self, logit: f32, weight: f32) -> f32 {
        let table = weight * self.sum;
        if logit == f32::NEG_INFINITY || table.is_nan() || table < f32::MIN_POSITIVE {
            return logit;
        }
        // Half the range: the sum of both stays finite.
        self.best + ln(exp(logit - self.best) + table.min(f32::MAX / 2.0))
    }
}

/// One token's logit after the penalties.
pub fn penalised(logit: f32, p: &Sampling, in_prompt: bool, count: u32) -> f32 {
    let mut l = logit;
    if in_prompt || count > 0 {
        l = if l > 0.0 { l / p.repetition_penalty } else { l * p.repetition_penalty };
    }
    if count > 0 {
        l -= count as f32 * p.frequency_penalty + p.presence_penalty;
    }
    l
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Sampling = Sampling {
        temperature: 1.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
        seed: 7,
        repetition_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        logit_bias: &[],
        min_tokens: 0,
        end_ids: &[],
    };
    const FRESH: Context = Context {
        in_prompt: &[false; 4],
        output_counts: &[0; 4],
        edits: &[],
        mix: &[],
        mask: None,
        output_index: 0,
        choice: 0,
    };

    fn frequencies(p: Sampling, c: Context) -> [u32; 4] {
        let mut seen = [0; 4];
        for i in 0..4000 {
            seen[sample(&[1.0, 3.0, 3.0, 2.0], &p, &Context { output_index: i, ..c }) as usize] += 1;
        }
        seen
    }

    #[test]
    fn tokens_come_as_often_as_their_probabilities_say() {
        let e = [1f64, 3.0, 3.0, 2.0].map(f64::exp);
        for (seen, e) in frequencies(PLAIN, FRESH).iter().zip(e) {
            let want = 4000.0 * e / (2.0 * 3f64.exp() + 1f64.exp() + 2f64.exp());
            assert!((f64::from(*seen) - want).abs() < 4.0 * want.sqrt(), "{seen} instead of {want}");
        }
    }

    #[test]
    fn greedy_takes_the_lower_of_two_equals() {
        assert_eq!(frequencies(Sampling { temperature: 0.0, ..PLAIN }, FRESH), [0, 4000, 0, 0]);
        assert_eq!(frequencies(Sampling { top_k: 1, ..PLAIN }, FRESH), [0, 4000, 0, 0]);
    }

    #[test]
    fn filters_keep_what_they_name() {
        let [a, b, c, d] = frequencies(Sampling { top_k: 3, ..PLAIN }, FRESH);
        assert!(a == 0 && b > 0 && c > 0 && d > 0);
        let [a, b, c, d] = frequencies(Sampling { top_p: 0.5, ..PLAIN }, FRESH);
        assert!(a == 0 && b > 0 && c > 0 && d == 0);
        let [a, b, c, d] = frequencies(Sampling { min_p: 0.3, ..PLAIN }, FRESH);
        assert!(a == 0 && b > 0 && c > 0 && d > 0);
    }

    #[test]
    fn log_probabilities_of_draws_are_those_of_what_the_filters_leave() {
        let told = |p, c| drawn_logprobs(&[1.0, 3.0, 3.0, 2.0], &p, &c);
        let near = |got: Vec<(u32, f32)>, want: &[(u32, f64)]| {
            let of = |list: &[(u32, f32)]| list.iter().map(|e| e.0).collect::<Vec<_>>();
            assert_eq!(of(&got), want.iter().map(|e| e.0).collect::<Vec<_>>());
            assert!(got.iter().zip(want).all(|(got, want)| (f64::from(got.1) - want.1.ln()).abs() < 1e-6), "{got:?}");
        };
        // At temperature 2 the weights are 1, 1, e^-0.5, e^-1.
        let (c, d) = ((-0.5f64).exp(), (-1f64).exp());
        let warm = Sampling { temperature: 2.0, ..PLAIN };
        let all = 2.0 + c + d;
        near(told(warm, FRESH), &[(1, 1.0 / all), (2, 1.0 / all), (3, c / all), (0, d / all)]);
        near(
            told(Sampling { top_k: 3, ..warm }, FRESH),
            &[(1, 1.0 / (2.0 + c)), (2, 1.0 / (2.0 + c)), (3, c / (2.0 + c))],
        );
        near(told(Sampling { top_p: 0.5, ..warm }, FRESH), &[(1, 0.5), (2, 0.5)]);
        near(told(Sampling { min_p: 0.7, ..warm }, FRESH), &[(1, 0.5), (2, 0.5)]);
        let masked = Context { mask: Some(&[0b1001]), ..FRESH };
        let cold = Sampling { temperature: 0.0, top_k: 1, top_p: 0.1, ..PLAIN };
        near(told(cold, masked), &[(3, 1.0 / (1.0 + d)), (0, d / (1.0 + d))]);
        assert_eq!(told(PLAIN, Context { mask: Some(&[0]), ..FRESH }), [(0, 0.0)]);
    }

    #[test]
    fn masks_bias_and_min_tokens_come_before_everything_else() {
        let masked = Context { mask: Some(&[0b1001]), ..FRESH };
        assert_eq!(frequencies(Sampling { temperature: 0.0, ..PLAIN }, masked), [0, 0, 0, 4000]);
        let early = Sampling { temperature: 0.0, min_tokens: 10, end_ids: &[1, 2], ..PLAIN };
        assert_eq!(frequencies(early, FRESH), [0, 3990, 0, 10]);
        let biased = Sampling { temperature: 0.0, logit_bias: &[(0, 9.0)], ..PLAIN };
        assert_eq!(frequencies(biased, FRESH), [4000, 0, 0, 0]);
    }

    #[test]
    fn penalties_count_prompt_and_output_apart_and_edits_come_after_them() {
        let p = Sampling { repetition_penalty: 2.0, presence_penalty: 0.5, frequency_penalty: 0.25, ..PLAIN };
        let c = Context {
            in_prompt: &[true, false, false, false],
            output_counts: &[0, 2, 0, 0],
            edits: &[(1, 1.0)],
            ..FRESH
        };
        assert_eq!(edited(&[1.0, 3.0, 3.0, -2.0], &p, &c), [0.5, 1.5, 3.0, -2.0]);
    }

    #[test]
    fn a_row_without_any_allowed_token_gives_the_lowest_id() {
        assert_eq!(frequencies(PLAIN, Context { mask: Some(&[0]), ..FRESH }), [4000, 0, 0, 0]);
    }

    #[test]
    fn a_mixture_is_drawn_in_the_shares_it_names() {
        let (lambda, table) = (0.4, [0.1, 0.0, 0.0, 0.7]);
        let mix = [(0, lambda / (1.0 - lambda) * table[0]), (3, lambda / (1.0 - lambda) * table[3])];
        let model = [1f64, 3.0, 3.0, 2.0].map(|l| l.exp() / (2.0 * 3f64.exp() + 1f64.exp() + 2f64.exp()));
        let share = |t: usize| f64::from(1.0 - lambda) * model[t] + f64::from(lambda * table[t]);
        let all: f64 = (0..4).map(share).sum();
        for (t, seen) in frequencies(PLAIN, Context { mix: &mix, ..FRESH }).into_iter().enumerate() {
            let want = 4000.0 * share(t) / all;
            assert!((f64::from(seen) - want).abs() < 4.0 * want.sqrt(), "token {t}: {seen} instead of {want}");
        }
    }

    #[test]
    fn mixing_comes_after_penalties_and_added_edits_and_never_lets_a_masked_token_through() {
        let p = Sampling { presence_penalty: 2.0, ..PLAIN };
        let c = Context {
            output_counts: &[0, 1, 0, 0],
            edits: &[(2, -1.0)],
            mix: &[(1, 0.5), (3, 9.0)],
            mask: Some(&[0b0111]),
            ..FRESH
        };
        let got = edited(&[1.0, 3.0, 2.0, 2.0], &p, &c);
        // Everything but the masked token stands at 1 when it is mixed.
        assert_eq!((got[0], got[2], got[3]), (1.0, 1.0, f32::NEG_INFINITY));
        assert!((f64::from(got[1]) - (1.0 + 2.5f64.ln())).abs() < 1e-6, "{got:?}");
    }

    #[test]
    fn nothing_is_mixed_into_rows_without_numbers_nor_by_weights_that_are_none() {
        let all = [(0, f32::NAN), (1, -1.0), (2, 0.0), (3, 1e-44)];
        assert_eq!(edited(&[1.0, 3.0, 3.0, 2.0], &PLAIN, &Context { mix: &all, ..FRESH }), [1.0, 3.0, 3.0, 2.0]);
        let some = Context { mix: &[(1, 0.5)], ..FRESH };
        assert_eq!(edited(&[f32::NAN; 4], &PLAIN, &some), [f32::NEG_INFINITY; 4]);
        assert_eq!(edited(&[f32::INFINITY, 1.0, 1.0, 1.0], &PLAIN, &some)[1], 1.0);
        let huge = edited(&[1.0, 3.0, 3.0, 2.0], &PLAIN, &Context { mix: &[(0, f32::INFINITY)], ..FRESH });
        assert!(huge[0].is_finite() && huge[0] > 80.0, "{huge:?}");
    }
}

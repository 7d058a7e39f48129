//! How a token is chosen from a row of logits. Backends give the same token for the same logits, bit for bit.
//!
//! Order: logit_bias, min_tokens, mask; penalties; sparse edits; temperature; top-k; top-p; min-p. Tokens are ranked by logit,
//! ties by lower id. Probabilities are integers in units of `2^-30` of the best token's, so that sums of them are exact in any
//! order: a backend may add them up as it likes. A NaN counts as minus infinity.

use super::exp;
use super::philox::draw;

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
    /// Bit `id % 32` of word `id / 32`: may be sampled.
    pub mask: Option<&'a [u32]>,
    /// Tokens generated before this one.
    pub output_index: u32,
    /// Which choice of the request.
    pub choice: u32,
}

/// The chosen token.
pub fn sample(logits: &[f32], p: &Sampling, c: &Context) -> u32 {
    let logits = edited(logits, p, c);
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    order.sort_by(|&a, &b| logits[b as usize].partial_cmp(&logits[a as usize]).expect("NaN was replaced").then(a.cmp(&b)));
    let best = logits[order[0] as usize];
    if p.temperature < TEMPERATURE_MIN || best == f32::NEG_INFINITY {
        return order[0];
    }
    if p.top_k > 0 {
        order.truncate(p.top_k as usize);
    }
    let weight = |id: u32| weight(logits[id as usize], best, p.temperature);
    let total: u64 = order.iter().map(|&id| weight(id)).sum();
    keep_top_p(&mut order, p.top_p, total, weight);
    order.retain(|&id| weight(id) as f64 >= f64::from(p.min_p) * f64::from(WEIGHT_ONE));
    order.sort_unstable();
    let total: u64 = order.iter().map(|&id| weight(id)).sum();
    let target = scaled(draw(p.seed, c.output_index, c.choice, 0), total);
    let mut sum = 0;
    *order.iter().find(|&&id| (sum += weight(id), sum > target).1).expect("the target lies below the total")
}

/// Weight of a token beside the best one, in units of `1 / WEIGHT_ONE`.
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
    l
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
    const FRESH: Context =
        Context { in_prompt: &[false; 4], output_counts: &[0; 4], edits: &[], mask: None, output_index: 0, choice: 0 };

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
        let c = Context { in_prompt: &[true, false, false, false], output_counts: &[0, 2, 0, 0], edits: &[(1, 1.0)], ..FRESH };
        assert_eq!(edited(&[1.0, 3.0, 3.0, -2.0], &p, &c), [0.5, 1.5, 3.0, -2.0]);
    }

    #[test]
    fn a_row_without_any_allowed_token_gives_the_lowest_id() {
        assert_eq!(frequencies(PLAIN, Context { mask: Some(&[0]), ..FRESH }), [4000, 0, 0, 0]);
    }
}

//! The best tokens of a row: top-k, top-p, and the order of a report.

use crate::backend::cpu::sampler::SamplerScratch;
use crate::backend::cpu::sampler::scan::largest;
use crate::backend::cpu::simd::LANES;
use crate::ids::TokenId;
use crate::sampling::SamplingParams;
use chimere_kernels::reference::sampler::{WEIGHT_ONE, top_p_target, weight};

/// What top-k and top-p leave, best first; one of them leaves some out.
pub(super) fn keep<'a>(
    logits: &[f32],
    best: f32,
    p: &SamplingParams,
    s: &'a mut SamplerScratch,
) -> &'a mut [(f32, TokenId)] {
    let top_k = if p.top_k == 0 { logits.len() } else { (p.top_k as usize).min(logits.len()) };
    if top_k == logits.len() {
        return rank_nucleus(logits, best, p, s);
    }
    let ranked = rank(logits, top_k, &mut s.ranked);
    let total = ranked.iter().map(|(l, _)| weight(*l, best, p.temperature)).sum();
    let enough = nucleus(ranked, best, p.temperature, top_p_target(p.top_p, total));
    &mut ranked[..if p.top_p < 1.0 { enough.unwrap_or(top_k) } else { top_k }]
}

/// Top-k or top-p leave some of so many tokens out.
pub(crate) fn filtered(p: &SamplingParams, tokens: usize) -> bool {
    p.top_p < 1.0 || (1..tokens).contains(&(p.top_k as usize))
}

/// Tokens of the nucleus, best first.
fn rank_nucleus<'a>(
    logits: &[f32],
    best: f32,
    p: &SamplingParams,
    s: &'a mut SamplerScratch,
) -> &'a mut [(f32, TokenId)] {
    let total = s.weights.weigh(logits, best, p.temperature, 0.0);
    let target = top_p_target(p.top_p, total);
    // Tokens below an equal share of what may be left out cannot be needed. The margin covers rounding of the
    // logarithm.
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
pub(super) fn rank<'a>(logits: &[f32], n: usize, list: &'a mut Vec<(f32, TokenId)>) -> &'a mut [(f32, TokenId)] {
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

//! Log-probabilities of tokens, and how certain a row is.

use crate::backend::cpu::sampler::rank::{filtered, keep, rank};
use crate::backend::cpu::sampler::scan::largest;
use crate::backend::cpu::sampler::weights::Total;
use crate::backend::cpu::sampler::{Left, SamplerScratch, shift};
use crate::backend::cpu::simd::{Kernel, LANES, Lanes, run};
use crate::constraint::Constraint;
use crate::ids::TokenId;
use crate::step::{Certainty, SampleRow, TokenLogprobs};
use chimere_kernels::reference::sampler::{TEMPERATURE_MIN, WEIGHT_ONE, weight};

/// The log-probability of `token` and of the `top` best, ties by lower id.
pub(crate) fn logprobs(logits: &[f32], token: TokenId, top: usize, s: &mut SamplerScratch) -> TokenLogprobs {
    let best = largest(logits);
    let total = run(Total { logits, best });
    let log_sum = (total as f64 / f64::from(WEIGHT_ONE)).ln();
    let of = |l: f32| (f64::from(l) - f64::from(best) - log_sum) as f32;
    let top = if top == 0 { &mut [][..] } else { rank(logits, top, &mut s.ranked) };
    TokenLogprobs { logprob: of(logits[token as usize]), top: top.iter().map(|(l, id)| (*id, of(*l))).collect() }
}

/// The log-probabilities in the distribution that the row's token is drawn from. Tokens that cannot be drawn are not
/// reported, so there may be fewer than `top`.
pub(super) fn processed_logprobs(
    logits: &[f32],
    row: &SampleRow,
    (c, left): (&Constraint, Left),
    (token, top): (TokenId, usize),
    s: &mut SamplerScratch,
) -> TokenLogprobs {
    let alone = || TokenLogprobs { logprob: 0.0, top: (0..top.min(1)).map(|_| (token, 0.0)).collect() };
    if c.forced.is_some() {
        return alone();
    }
    let mut own = std::mem::take(&mut s.logits);
    shift(logits, c, left, &mut own);
    let best = largest(&own);
    let reported = if best == f32::NEG_INFINITY { alone() } else { drawn_logprobs(&own, best, row, (token, top), s) };
    s.logits = own;
    reported
}

/// After temperature and filters, of edited logits of which `best`, the largest, is a number.
fn drawn_logprobs(
    logits: &[f32],
    best: f32,
    row: &SampleRow,
    (token, top): (TokenId, usize),
    s: &mut SamplerScratch,
) -> TokenLogprobs {
    let p = &*row.params;
    let draws = p.temperature >= TEMPERATURE_MIN;
    let temperature = if draws { p.temperature } else { 1.0 };
    let least = if draws { (p.min_p * WEIGHT_ONE).max(1.0) } else { 0.0 };
    let counts = |l: f32| weight(l, best, temperature) as f32 >= least;
    let (total, ranked): (u64, &[_]) = if draws && filtered(p, logits.len()) {
        let kept = keep(logits, best, p, s);
        let counted = kept.iter().filter(|(l, _)| counts(*l));
        (counted.map(|(l, _)| weight(*l, best, temperature)).sum(), kept)
    } else {
        let total = s.weights.weigh(logits, best, temperature, least);
        (total, if top == 0 { &[] } else { rank(logits, top, &mut s.ranked) })
    };
    let log_sum = (total as f64 / f64::from(WEIGHT_ONE)).ln();
    let of = |l: f32| ((f64::from(l) - f64::from(best)) / f64::from(temperature) - log_sum) as f32;
    let ranked = ranked.iter().filter(|(l, _)| *l > f32::NEG_INFINITY && counts(*l));
    let top = ranked.take(top).map(|(l, id)| (*id, of(*l))).collect();
    TokenLogprobs { logprob: of(logits[token as usize]), top }
}

/// Entropy and largest probability of the distribution that the logits give at temperature 1.
pub(super) fn certainty(logits: &[f32]) -> Certainty {
    let best = largest(logits);
    let (mut sum, mut weighted) = (0.0, 0.0);
    for part in logits.chunks(4096) {
        let (a, b) = run(EntropySums { logits: part, best });
        (sum, weighted) = (sum + a, weighted + b);
    }
    Certainty { entropy: (sum.ln() - weighted / sum) as f32, top_prob: (1.0 / sum) as f32 }
}

/// Sums of `e^(l - best)` and of the same times `l - best`, over at most some thousand logits.
struct EntropySums<'a> {
    logits: &'a [f32],
    best: f32,
}

impl Kernel for EntropySums<'_> {
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

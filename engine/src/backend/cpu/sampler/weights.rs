//! Weigh of tokens, which are integers, and their sums.

use crate::backend::cpu::simd::{Kernel, LANES, Lanes, run};
use crate::ids::TokenId;
use chimere_kernels::reference::sampler::{WEIGHT_ONE, weight};

/// Tokens whose weights are summed apart, so that a draw looks at few of them.
pub(crate) const PART: usize = 16 * LANES;

/// Weigh of a row's tokens, and their sums over [`PART`] tokens each.
#[derive(Default)]
pub(crate) struct TokenWeights {
    pub(crate) weights: Vec<f32>,
    pub(crate) sums: Vec<u64>,
}

impl TokenWeights {
    /// Weighs all tokens; returns the sum.
    pub(crate) fn weigh(&mut self, logits: &[f32], best: f32, temperature: f32, min_weight: f32) -> u64 {
        self.resize(logits.len());
        run(Weigh { logits, best, temperature, min_weight, out: self })
    }

    fn resize(&mut self, tokens: usize) {
        self.weights.resize(tokens, 0.0);
        self.sums.resize(tokens.div_ceil(PART), 0);
    }

    /// The token in whose share `target` lies, which is below the sum of all.
    pub(crate) fn at(&self, target: u64) -> TokenId {
        let mut sum = 0;
        let part =
            self.sums.iter().position(|here| (sum += here, sum > target).1).expect("the target lies below the total");
        sum -= self.sums[part];
        let mut weights = self.weights[part * PART..].iter();
        let id = weights.position(|w| (sum += integer(*w), sum > target).1).expect("the target lies in this part");
        (part * PART + id) as TokenId
    }
}

/// Sum of integer weights at temperature 1.
pub(crate) struct Total<'a> {
    pub(crate) logits: &'a [f32],
    pub(crate) best: f32,
}

impl Kernel for Total<'_> {
    type Output = u64;

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) -> u64 {
        let parts = self.logits.chunks_exact(LANES);
        let rest: u64 = parts.remainder().iter().map(|l| weight(*l, self.best, 1.0)).sum();
        // SAFETY: the instruction set is the caller's promise; parts have LANES elements.
        unsafe {
            let mut sum = L::zero_sum();
            for part in parts {
                sum = L::load(part.as_ptr()).sub(L::splat(self.best)).exp().mul(L::splat(WEIGHT_ONE)).add_rounded(sum);
            }
            rest + L::total(sum)
        }
    }
}

/// Rounded weights of at least `min_weight`, others 0, and their sum.
struct Weigh<'a> {
    logits: &'a [f32],
    best: f32,
    temperature: f32,
    min_weight: f32,
    out: &'a mut TokenWeights,
}

impl Kernel for Weigh<'_> {
    type Output = u64;

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) -> u64 {
        let Self { logits, best, temperature, min_weight, out: TokenWeights { weights, sums } } = self;
        let inverse = 1.0 / temperature;
        let mut total = 0;
        for ((part, out), part_sum) in logits.chunks(PART).zip(weights.chunks_mut(PART)).zip(sums) {
            let (vectors, outs) = (part.chunks_exact(LANES), out.chunks_exact_mut(LANES));
            let (rest, at) = (vectors.remainder(), part.len() / LANES * LANES);
            // SAFETY: the instruction set is the caller's promise; vectors have LANES elements.
            unsafe {
                let mut sum = L::zero_sum();
                for (vector, out) in vectors.zip(outs) {
                    let x = L::load(vector.as_ptr()).sub(L::splat(best));
                    let w = x.mul(L::splat(inverse)).exp().mul(L::splat(WEIGHT_ONE)).round();
                    let w = w.zero_below(w, min_weight);
                    w.store(out.as_mut_ptr());
                    sum = w.add_rounded(sum);
                }
                *part_sum = L::total(sum);
            }
            for (l, out) in rest.iter().zip(&mut out[at..]) {
                *out = at_least(min_weight, weight(*l, best, temperature));
                *part_sum += integer(*out);
            }
            total += *part_sum;
        }
        total
    }
}

/// A weight, which is an integer of at most 2^30: to convert that is quicker than what might be larger.
pub(crate) fn integer(weight: f32) -> u64 {
    u64::from(weight as u32)
}

/// A weight as it counts where there is a least one.
fn at_least(min_weight: f32, weight: u64) -> f32 {
    let weight = weight as f32;
    if weight < min_weight { 0.0 } else { weight }
}

//! The sum of a row's weights at temperature 1, which a mixture is measured by: exact, or near at less than half the
//! cost, with a bound on the error. The caller weighs exactly where the bound is too wide for a choice.

use crate::backend::cpu::sampler::weights::{PART, Total};
use crate::backend::cpu::simd::{Kernel, LANES, Lanes, run};
use chimere_kernels::reference::sampler::WEIGHT_ONE;
use std::f32::consts::LOG2_E;

/// `2^f` for `|f| <= 1/2`, highest power first; off by less than 2.8e-6 of itself.
const POLY: [f32; 5] = [9.570_078e-3, 5.591_785_5e-2, 0.240_247_46, 0.693_121_8, 0.999_999_3];
/// Least exponent of two that is told from nothing.
const LEAST: f32 = -126.0;
/// How far a near sum is off at most, of itself, where the best logit is 0: 2.8e-6 by [`POLY`], and by rounding of
/// exponents, products and the sums of [`PART`] tokens.
const SUM_ERROR: f64 = 6e-6;
/// What each nat of the best logit adds: exponents are as coarse as it is.
const LOGIT_ERROR: f64 = 1.2e-7;

/// The sum, in units of `1 / WEIGHT_ONE`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeightSum {
    pub(crate) total: u64,
    /// How far it may be off, of itself; 0 of an exact one.
    error: f64,
}

impl WeightSum {
    /// A sum that is known.
    pub(crate) fn known(total: u64) -> Self {
        Self { total, error: 0.0 }
    }

    /// As the definition has it. `best` is the largest logit.
    pub(crate) fn exact(logits: &[f32], best: f32) -> Self {
        Self::known(run(Total { logits, best }))
    }

    /// Nearly; `best` is the largest logit, a number.
    pub(crate) fn near(logits: &[f32], best: f32) -> Self {
        let sum = run(Near { logits, best });
        // The definition rounds each weight to an integer, and the best one's is WEIGHT_ONE.
        let rounding = 0.5 * logits.len() as f64 / f64::from(WEIGHT_ONE);
        let error = SUM_ERROR + LOGIT_ERROR * f64::from(best.abs()) + rounding;
        Self { total: (sum * f64::from(WEIGHT_ONE)) as u64, error }
    }

    /// How far logits that were mixed by this sum can be from what the exact one gives.
    pub(crate) fn error_of(&self, mixed: impl Iterator<Item = f32>, best: f32) -> f64 {
        let numbers = mixed.filter(|mixed| mixed.is_finite());
        let far = numbers.fold(0.0, |far: f32, mixed| far.max((mixed - best).abs()));
        // Either is rounded on its own: 3e-7 of a logarithm, half of 2^-23 of what is added to the best logit.
        self.error + 6e-7 * f64::from(1.0 + far) + 1.2e-7 * f64::from(best.abs() + far)
    }

    /// Nothing is known better.
    pub(crate) fn is_exact(&self) -> bool {
        self.error == 0.0
    }
}

/// About the sum of `e^(logit - best)`.
struct Near<'a> {
    logits: &'a [f32],
    best: f32,
}

impl Kernel for Near<'_> {
    type Output = f64;

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) -> f64 {
        let mut total = 0.0;
        for part in self.logits.chunks(PART) {
            let vectors = part.chunks_exact(LANES);
            for l in vectors.remainder() {
                total += f64::from(l - self.best).exp();
            }
            // SAFETY: the instruction set is the caller's promise; vectors have LANES elements.
            unsafe {
                let (mut sum, best) = (L::splat(0.0), L::splat(-self.best * LOG2_E));
                for vector in vectors {
                    let x = L::load(vector.as_ptr()).mul_add(L::splat(LOG2_E), best).max(L::splat(LEAST));
                    let n = x.round();
                    let f = x.sub(n);
                    let mut p = L::splat(POLY[0]);
                    for c in &POLY[1..] {
                        p = p.mul_add(f, L::splat(*c));
                    }
                    sum = p.scale(n).add(sum);
                }
                total += f64::from(sum.sum());
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_sum_is_as_near_as_it_says() {
        let mut worst = 0.0f64;
        for case in 0..400u32 {
            let value = |i: u32| ((i.wrapping_mul(2_654_435_761) ^ case).wrapping_mul(0x85EB_CA6B) >> 8) as f32;
            let spread = [0.0, 0.3, 2.0, 20.0, 90.0][case as usize % 5] / (1 << 24) as f32;
            let logit = |i| if case % 3 == 0 && i % 5 == 0 { f32::NEG_INFINITY } else { value(i) * spread - 7.0 };
            let logits: Vec<f32> = (0..900 + case).map(logit).collect();
            let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let (near, exact) = (WeightSum::near(&logits, best), WeightSum::exact(&logits, best));
            let off = (near.total as f64 / exact.total as f64 - 1.0).abs();
            assert!(off < near.error, "{off:e} of {:e}, case {case}", near.error);
            assert!(exact.is_exact() && !near.is_exact());
            worst = worst.max(off);
        }
        assert!(worst > 1e-7, "a bound that is never neared: {worst:e}");
    }
}

//! Passes over a row of logits that look for one value.

use crate::backend::cpu::sampler::weights::PART;
use crate::backend::cpu::simd::{Kernel, LANES, Lanes, run};
use crate::ids::TokenId;

/// Whether all logits of a row are finite numbers.
pub(crate) fn is_finite(logits: &[f32]) -> bool {
    !run(AnyNotFinite(logits))
}

/// The logit, or minus infinity where it is no number.
pub(crate) fn number(logit: f32) -> f32 {
    if logit.is_nan() { f32::NEG_INFINITY } else { logit }
}

/// The lowest id whose logit is `best`; 0 if none is.
pub(crate) fn first(logits: &[f32], best: f32) -> TokenId {
    let part = logits.chunks(PART).position(|part| largest(part) == best).unwrap_or(0) * PART;
    logits[part..].iter().position(|l| *l == best).map_or(0, |i| part + i) as TokenId
}

/// The largest logit; minus infinity of no logits.
pub(crate) fn largest(x: &[f32]) -> f32 {
    run(Largest(x))
}

struct Largest<'a>(&'a [f32]);

impl Kernel for Largest<'_> {
    type Output = f32;

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) -> f32 {
        let groups = self.0.chunks_exact(4 * LANES);
        let rest = groups.remainder().iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
        // SAFETY: the instruction set is the caller's promise; groups have 4 * LANES elements.
        unsafe {
            // Four at a time, since each waits for the one before it.
            let mut best = [L::splat(rest); 4];
            for group in groups {
                for (i, best) in best.iter_mut().enumerate() {
                    // A NaN on the left gives the right operand.
                    *best = L::load(group.as_ptr().add(i * LANES)).max(*best);
                }
            }
            best[0].max(best[1]).max(best[2].max(best[3])).largest()
        }
    }
}

struct AnyNotFinite<'a>(&'a [f32]);

impl Kernel for AnyNotFinite<'_> {
    type Output = bool;

    #[inline(always)]
    unsafe fn call<L: Lanes>(self) -> bool {
        let pairs = self.0.chunks_exact(2 * LANES);
        let mut any = pairs.remainder().iter().any(|l| !l.is_finite());
        // Without a branch, for nearly never is one found. What is no finite number, less itself, is none.
        for pair in pairs {
            // SAFETY: the instruction set is the caller's promise; pairs have 2 * LANES elements.
            any |= unsafe {
                let (a, b) = (L::load(pair.as_ptr()), L::load(pair.as_ptr().add(LANES)));
                a.sub(a).any_nan(b.sub(b))
            };
        }
        any
    }
}

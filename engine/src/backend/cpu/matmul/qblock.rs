//! The int8 form of activations: blocks of 32 with one scale.

use std::ops::Range;

/// Activations that share one int8 scale. All widths of a model are multiples of it.
pub(crate) const BLOCK: usize = 32;

/// 32 activations in int8, one cache line. Next to them stands what a product needs once a block.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(super) struct QBlock {
    /// `round(x / d)`, ties to even, within +-127.
    pub(super) q: [i8; BLOCK],
    /// `max |x| / 127`; NaN if an x is not finite.
    pub(super) d: f32,
    /// Sum of `q`, for weights with a minimum.
    pub(super) sum: f32,
    /// `-128 * sum(q)`: takes back the 128 that signed weights are stored with.
    pub(super) offset: i32,
    /// `-128 * sum(q)` of each half, for weights with a scale per 16.
    pub(super) offset_half: [i32; 2],
    /// Sum of the magnitudes of all negative `q`: takes back that `-w` is `!w + 1`.
    pub(super) below: i32,
    /// The sum of the magnitudes of negative `q` in each half.
    pub(super) below_half: [i32; 2],
}

const _: () = assert!(size_of::<QBlock>() == 64, "a block is read as one cache line");

/// Blocks below this maximum count as zeros, so that the reciprocal of the scale stays finite.
const AMAX_MIN: f32 = 1e-30;

impl QBlock {
    /// Quantises a block, to the same bits on every instruction set: one division, one product and one rounding an
    /// element, no contraction.
    pub(super) fn of(x: &[f32; BLOCK]) -> Self {
        // Magnitudes compare as integers, which puts infinities and NaN above every number.
        let top = x.iter().fold(0u32, |m, v| m.max(v.to_bits() & 0x7fff_ffff));
        let (d, inverse) = Self::scales(f32::from_bits(top));
        let mut q = [0i8; BLOCK];
        for (q, v) in q.iter_mut().zip(x) {
            *q = round_to_i32(if inverse == 0.0 { 0.0 } else { v * inverse }) as i8;
        }
        let half = |r: Range<usize>| q[r].iter().map(|q| i32::from(*q)).sum::<i32>();
        let below = |r: Range<usize>| q[r].iter().map(|q| -i32::from(*q).min(0)).sum::<i32>();
        let (a, b) = (half(0..16), half(16..32));
        let below_half = [below(0..16), below(16..32)];
        Self {
            q,
            d,
            sum: (a + b) as f32,
            offset: -128 * (a + b),
            offset_half: [-128 * a, -128 * b],
            below: below_half[0] + below_half[1],
            below_half,
        }
    }

    /// The scale of a block whose largest magnitude is `amax`, and its reciprocal, which is zero where every `q` is.
    #[inline(always)]
    pub(super) fn scales(amax: f32) -> (f32, f32) {
        match amax {
            amax if !amax.is_finite() => (f32::NAN, 0.0),
            amax if amax < AMAX_MIN => (0.0, 0.0),
            amax => (amax / 127.0, 127.0 / amax),
        }
    }
}

/// Nearest integer, ties to even, of |v| < 2^22: adding 1.5 * 2^23 leaves the integer in the low bits.
#[inline(always)]
fn round_to_i32(v: f32) -> i32 {
    const MAGIC: f32 = 12_582_912.0;
    (v + MAGIC).to_bits() as i32 - MAGIC.to_bits() as i32
}

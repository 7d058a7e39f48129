//! Integer sums of a block: ways to multiply codes with activations, and to add up.

use super::super::qblock::{BLOCK, QBlock};
use super::codes::CodeReader;
use super::scales::ScaleReader;
use std::arch::asm;
use std::arch::x86_64::*;

/// Of a row: sums of the whole block in the first place, or of its two halves.
pub(super) type BlockSums = [__m256i; 2];

/// A block of activations by magnitude and sign.
///
/// `VPMADDUBSW` takes unsigned bytes by signed ones and adds two products in 16 bits, at most 2 * 127 * 128 < 2^15. So
/// the magnitude of an activation meets the weight with its sign, which costs one operation: of a code `w + 128`,
/// `code ^ 0x80` is `w`, and `code ^ 0x7f` is `-w - 1`. What the ones make, the magnitudes of all negative activations,
/// does not depend on the weights: [`QBlock::below`] takes it back.
#[repr(C, align(64))]
pub(super) struct Signed {
    magnitude: [i8; BLOCK],
    turn: [u8; BLOCK],
}

impl Signed {
    #[inline(always)]
    pub(super) unsafe fn write(to: *mut Self, x: &QBlock) {
        // SAFETY: two vectors.
        unsafe {
            let q = _mm256_load_si256(x.q.as_ptr().cast());
            let negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), q);
            _mm256_store_si256((&raw mut (*to).magnitude).cast(), _mm256_abs_epi8(q));
            _mm256_store_si256((&raw mut (*to).turn).cast(), _mm256_xor_si256(negative, _mm256_set1_epi8(-128)));
        }
    }
}

/// Whether codes are multiplied by magnitudes.
#[inline(always)]
pub(super) const fn by_magnitude<C: CodeReader, const VNNI: bool>() -> bool {
    C::QUADS == 0 && !VNNI
}

/// Activations of `R` rows from some block on.
#[derive(Clone, Copy)]
pub(super) struct ActivationBlocks<const R: usize> {
    pub(super) rows: [*const QBlock; R],
    /// For codes of eight bits.
    pub(super) signed: [*const Signed; R],
}

impl<const R: usize> ActivationBlocks<R> {
    /// Block `b` of row `r`.
    #[inline(always)]
    pub(super) unsafe fn block(&self, r: usize, b: usize) -> &QBlock {
        // SAFETY: the rows have the blocks.
        unsafe { &*self.rows[r].add(b) }
    }

    /// The activations from `b` blocks on.
    #[inline(always)]
    pub(super) fn from(&self, b: usize) -> Self {
        let mut from = *self;
        for r in 0..R {
            from.rows[r] = self.rows[r].wrapping_add(b);
            from.signed[r] = self.signed[r].wrapping_add(b);
        }
        from
    }
}

/// Sums of the block at `codes` by rows of `x`, for `H` halves of the tile from `half` on.
///
/// With `VNNI`, `VPDPBUSD` takes unsigned codes by signed activations and adds four products in 32 bits.
#[inline(always)]
pub(super) unsafe fn block_sums<C: CodeReader, S: ScaleReader, const VNNI: bool, const R: usize, const H: usize>(
    reader: C,
    codes: *const u8,
    x: &ActivationBlocks<R>,
    b: usize,
    half: usize,
) -> [[BlockSums; H]; R] {
    // SAFETY: the caller's.
    unsafe {
        let zero = [[[_mm256_setzero_si256(); 2]; H]; R];
        let mut product = RunningProduct { sums: zero, pairs: zero };
        let codes = codes.add(32 * half);
        product.add::<C, S, VNNI, 0>(reader, codes, x, b);
        product.add::<C, S, VNNI, 1>(reader, codes, x, b);
        product.add::<C, S, VNNI, 2>(reader, codes, x, b);
        product.add::<C, S, VNNI, 3>(reader, codes, x, b);
        product.add::<C, S, VNNI, 4>(reader, codes, x, b);
        product.add::<C, S, VNNI, 5>(reader, codes, x, b);
        product.add::<C, S, VNNI, 6>(reader, codes, x, b);
        product.add::<C, S, VNNI, 7>(reader, codes, x, b);
        product.finish::<C, S, VNNI>(x, b);
        product.sums
    }
}

/// Sums of `R` rows and `H` halves of the tile.
struct RunningProduct<const R: usize, const H: usize> {
    sums: [[BlockSums; H]; R],
    /// In 16 bits, not in `sums` yet.
    pairs: [[BlockSums; H]; R],
}

/// The `nth` quad, and as how many of its half it comes. A single row takes quads that share bytes after each other;
/// with more, sums of one half are done before those of the other begin, so that registers suffice.
#[inline(always)]
const fn nth_quad<const R: usize>(nth: usize) -> (usize, usize) {
    if R == 1 { (nth / 2 + 4 * (nth % 2), nth / 2 + 1) } else { (nth, nth % 4 + 1) }
}

impl<const R: usize, const H: usize> RunningProduct<R, H> {
    /// Whether the second half of a block adds up apart though it has no scale of its own: a sum of `VPDPBUSD` has to
    /// wait for the last, which shows with few rows.
    #[inline(always)]
    const fn two_chains<S: ScaleReader, const VNNI: bool>() -> bool {
        VNNI && R <= 2 && !S::HALVES
    }

    /// Adds the products of the `NTH` quad.
    #[inline(always)]
    unsafe fn add<C: CodeReader, S: ScaleReader, const VNNI: bool, const NTH: usize>(
        &mut self,
        reader: C,
        codes: *const u8,
        x: &ActivationBlocks<R>,
        b: usize,
    ) {
        let (quad, of_half) = nth_quad::<R>(NTH);
        let part = if S::HALVES || Self::two_chains::<S, VNNI>() { quad / 4 } else { 0 };
        // SAFETY: a block of activations has eight quads.
        unsafe {
            let mut w = [_mm256_setzero_si256(); H];
            for h in 0..H {
                w[h] = reader.quad(codes, quad, h);
            }
            for r in 0..R {
                if by_magnitude::<C, VNNI>() {
                    self.add_by_magnitude(&w, x.signed[r].add(b), quad, r, part);
                    continue;
                }
                let x = _mm256_set1_epi32(x.block(r, b).q.as_ptr().cast::<i32>().add(quad).read());
                for h in 0..H {
                    if VNNI {
                        let sum = &mut self.sums[r][h][part];
                        *sum = _mm256_dpbusd_avx_epi32(*sum, w[h], x);
                    } else {
                        let pairs = &mut self.pairs[r][h][part];
                        *pairs = in_order(_mm256_add_epi16(*pairs, _mm256_maddubs_epi16(w[h], x)));
                    }
                }
            }
            let so_far = if S::HALVES { of_half } else { NTH + 1 };
            if !VNNI && C::QUADS > 0 && so_far.is_multiple_of(C::QUADS) {
                self.widen(part);
            }
        }
    }

    /// Adds the products of a quad for row `r`.
    #[inline(always)]
    unsafe fn add_by_magnitude(&mut self, w: &[__m256i; H], x: *const Signed, quad: usize, r: usize, part: usize) {
        // SAFETY: the block was set.
        unsafe {
            let (ones, x) = (_mm256_set1_epi16(1), x.cast::<i32>().add(quad));
            let (magnitude, turn) = (_mm256_set1_epi32(x.read()), _mm256_set1_epi32(x.add(BLOCK / 4).read()));
            for h in 0..H {
                let pairs = _mm256_maddubs_epi16(magnitude, _mm256_xor_si256(w[h], turn));
                let sum = &mut self.sums[r][h][part];
                *sum = in_order(_mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones)));
            }
        }
    }

    /// Brings what stands in 16 bits to the sums.
    #[inline(always)]
    unsafe fn widen(&mut self, part: usize) {
        // SAFETY: registers only.
        unsafe {
            let ones = _mm256_set1_epi16(1);
            for r in 0..R {
                for h in 0..H {
                    let (sum, pairs) = (&mut self.sums[r][h][part], &mut self.pairs[r][h][part]);
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(*pairs, ones));
                    *pairs = _mm256_setzero_si256();
                }
            }
        }
    }

    /// Takes back what codes have more than the weights.
    #[inline(always)]
    unsafe fn finish<C: CodeReader, S: ScaleReader, const VNNI: bool>(&mut self, x: &ActivationBlocks<R>, b: usize) {
        for r in 0..R {
            // SAFETY: the block was set.
            unsafe {
                let x = x.block(r, b);
                let (whole, halves) =
                    if by_magnitude::<C, VNNI>() { (x.below, x.below_half) } else { (x.offset, x.offset_half) };
                for h in 0..H {
                    let sums = &mut self.sums[r][h];
                    if Self::two_chains::<S, VNNI>() {
                        sums[0] = _mm256_add_epi32(sums[0], sums[1]);
                    }
                    if C::PLUS > 0 && S::HALVES {
                        *sums = [plus::<C>(sums[0], halves[0]), plus::<C>(sums[1], halves[1])];
                    } else if C::PLUS > 0 {
                        sums[0] = plus::<C>(sums[0], whole);
                    }
                }
            }
        }
    }
}

/// Adds an offset that is for codes with 128 more than the weights.
#[inline(always)]
unsafe fn plus<C: CodeReader>(sum: __m256i, offset: i32) -> __m256i {
    // SAFETY: registers only.
    unsafe {
        // Spread by a load, and then shifted: the other way round it is three operations.
        let offset = in_order(_mm256_set1_epi32(offset));
        let offset = match C::PLUS {
            16 => _mm256_srai_epi32::<3>(offset),
            32 => _mm256_srai_epi32::<2>(offset),
            _ => offset,
        };
        _mm256_add_epi32(sum, offset)
    }
}

/// `sum`, which is known not before here: the compiler would add in another order, for which it spills codes.
#[inline]
#[target_feature(enable = "avx2")]
fn in_order(mut sum: __m256i) -> __m256i {
    // SAFETY: no instruction.
    unsafe { asm!("/* {0} */", inout(ymm_reg) sum, options(nomem, nostack, preserves_flags)) };
    sum
}

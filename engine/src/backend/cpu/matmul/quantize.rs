//! From rows of f32 to their int8 form. What a block of it is, [`QBlock::of`] defines; the other instruction sets give
//! its bytes.

use super::qblock::{BLOCK, QBlock};
use crate::backend::cpu::isa::Isa;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Quantises one row, whole blocks, with the instructions of `isa`.
pub(super) fn quantize_row(isa: Isa, values: &[f32], blocks: &mut [QBlock]) {
    let (chunks, rest) = values.as_chunks::<BLOCK>();
    assert!(rest.is_empty() && chunks.len() == blocks.len(), "{} values for {} blocks", values.len(), blocks.len());
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` beyond scalar exists only where the host has its instructions.
        Isa::Avx2 | Isa::AvxVnni => unsafe { avx2(chunks, blocks) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx512 | Isa::Amx => unsafe { avx512(chunks, blocks) },
        _ => chunks.iter().zip(blocks).for_each(|(x, block)| *block = QBlock::of(x)),
    }
}

/// Magnitudes compare as integers, which puts infinities and NaN above every number.
#[cfg(target_arch = "x86_64")]
const MAGNITUDE: i32 = 0x7fff_ffff;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2")]
unsafe fn avx512(chunks: &[[f32; BLOCK]], blocks: &mut [QBlock]) {
    for (x, block) in chunks.iter().zip(blocks) {
        // SAFETY: 32 floats, and the 64 bytes of a block.
        unsafe {
            let (a, b) = (_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(x.as_ptr().add(16)));
            let magnitude = _mm512_set1_epi32(MAGNITUDE);
            let (a_bits, b_bits) = (_mm512_castps_si512(a), _mm512_castps_si512(b));
            let top = _mm512_max_epi32(_mm512_and_si512(a_bits, magnitude), _mm512_and_si512(b_bits, magnitude));
            let (d, inverse) = QBlock::scales(f32::from_bits(_mm512_reduce_max_epi32(top) as u32));
            // Lanes are left out where the reciprocal is zero: an infinity times zero would not be.
            let (keep, by) = (if inverse == 0.0 { 0 } else { u16::MAX }, _mm512_set1_ps(inverse));
            let a = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(a, by));
            let b = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(b, by));
            store(block, _mm256_set_m128i(_mm512_cvtepi32_epi8(b), _mm512_cvtepi32_epi8(a)), d);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2(chunks: &[[f32; BLOCK]], blocks: &mut [QBlock]) {
    for (x, block) in chunks.iter().zip(blocks) {
        // SAFETY: 32 floats, and the 64 bytes of a block.
        unsafe {
            let mut v = [_mm256_setzero_ps(); 4];
            let mut top = _mm256_setzero_si256();
            for i in 0..4 {
                v[i] = _mm256_loadu_ps(x.as_ptr().add(8 * i));
                top = _mm256_max_epi32(top, _mm256_and_si256(_mm256_castps_si256(v[i]), _mm256_set1_epi32(MAGNITUDE)));
            }
            let four = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256::<1>(top));
            let two = _mm_max_epi32(four, _mm_unpackhi_epi64(four, four));
            let one = _mm_max_epi32(two, _mm_shuffle_epi32::<1>(two));
            let (d, inverse) = QBlock::scales(f32::from_bits(_mm_cvtsi128_si32(one) as u32));
            if inverse == 0.0 {
                store(block, _mm256_setzero_si256(), d);
                continue;
            }
            let by = _mm256_set1_ps(inverse);
            // Packing goes by halves of vectors, so that groups of four come out as 0 2 4 6 1 3 5 7.
            let bytes = _mm256_packs_epi16(words(v[0], v[1], by), words(v[2], v[3], by));
            store(block, _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)), d);
        }
    }
}

/// Two vectors times `by`, rounded to 16 bits.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn words(a: __m256, b: __m256, by: __m256) -> __m256i {
    // SAFETY: registers only.
    unsafe { _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(a, by)), _mm256_cvtps_epi32(_mm256_mul_ps(b, by))) }
}

/// Writes a block with its sums.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn store(block: &mut QBlock, q: __m256i, d: f32) {
    // SAFETY: a block has 64 bytes.
    unsafe {
        // Each byte 128 too large.
        let (a, b) = sums(_mm256_xor_si256(q, _mm256_set1_epi8(-128)));
        let (a, b) = (a - 16 * 128, b - 16 * 128);
        let zero = _mm256_setzero_si256();
        let below = sums(_mm256_sub_epi8(zero, _mm256_min_epi8(q, zero)));
        _mm256_store_si256(block.q.as_mut_ptr().cast(), q);
        (block.d, block.sum) = (d, (a + b) as f32);
        (block.offset, block.offset_half) = (-128 * (a + b), [-128 * a, -128 * b]);
        (block.below, block.below_half) = (below.0 + below.1, below.into());
    }
}

/// Sums of the first and of the last 16 unsigned bytes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn sums(bytes: __m256i) -> (i32, i32) {
    // SAFETY: registers only.
    unsafe {
        let eights = _mm256_sad_epu8(bytes, _mm256_setzero_si256());
        let (low, high) = (_mm256_castsi256_si128(eights), _mm256_extracti128_si256::<1>(eights));
        let halves = _mm_add_epi64(_mm_unpacklo_epi64(low, high), _mm_unpackhi_epi64(low, high));
        (_mm_cvtsi128_si64(halves) as i32, _mm_extract_epi64::<1>(halves) as i32)
    }
}

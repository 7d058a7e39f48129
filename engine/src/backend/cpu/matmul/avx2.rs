//! Products with 256-bit vectors, for x86-64 without AVX-512: a tile's 16 rows are two vectors.
//!
//! Pairs of byte products are added in 16 bits. That is exact: signed weights are split into magnitude (at most 128)
//! and sign, which the activation (at most 127) takes, so a pair is at most 2 * 128 * 127 < 2^15; unsigned codes are
//! below 32.

use super::layout::{Codes, Layout, Scales};
use super::pack::unpack_codes;
use super::rows::QBlock;
use super::{FloatForm, TILE_ROWS, TileJob};
use std::arch::x86_64::*;
use std::ops::Range;

/// Rows that share a block while its codes lie unpacked.
const ROWS: usize = 8;
/// Rows that share a reading of the codes, and what signs make of them: their sums are 8 of 16 registers.
const GROUP: usize = 4;

/// The 16 rows of a tile.
type Lanes = [__m256; 2];

/// Codes of a block as bytes; signed ones without the 128.
#[repr(C, align(64))]
struct BlockCodes([u8; 512]);

struct BlockScales {
    scale: Lanes,
    second: Lanes,
    min: Lanes,
}

/// Quantised tiles times rows.
///
/// # Safety
/// The host has AVX2, FMA and F16C; shapes were checked.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn blocks(job: &TileJob<'_>, layout: Layout, tiles: Range<usize>) {
    for tile in tiles {
        for pairs in job.pairs.chunks(ROWS) {
            let mut acc = [[_mm256_setzero_ps(); 2]; ROWS];
            for b in 0..job.w.blocks() {
                // SAFETY: the block lies in the tile, and rows have as many blocks.
                unsafe { block(job, layout, job.w.tile(tile), b, pairs, &mut acc) };
            }
            for (acc, pair) in acc.into_iter().zip(pairs) {
                // SAFETY: the caller's.
                unsafe { store(job, pair.1, tile, acc) };
            }
        }
    }
}

#[inline(always)]
unsafe fn block(
    job: &TileJob<'_>,
    layout: Layout,
    tile: &[u8],
    b: usize,
    pairs: &[(u32, u32)],
    acc: &mut [Lanes; ROWS],
) {
    let (bytes, signed) = (layout.codes.block_bytes(), !layout.scales.has_min());
    let (codes, scales) = tile.split_at(layout.codes_bytes(job.w.blocks()));
    let codes = &codes[b * bytes..][..bytes];
    // SAFETY: whole blocks and groups of the planes; the caller's for the rows.
    unsafe {
        let w = read_scales(layout.scales, scales, b);
        if layout.codes == Codes::Byte {
            return groups::<true, true>(job, layout.scales, codes.as_ptr(), &w, b, pairs, acc);
        }
        let codes = read_codes(layout.codes, codes, signed);
        match signed {
            true => groups::<true, false>(job, layout.scales, codes.0.as_ptr(), &w, b, pairs, acc),
            false => groups::<false, false>(job, layout.scales, codes.0.as_ptr(), &w, b, pairs, acc),
        }
    }
}

/// A block's terms of all rows, [`GROUP`] at a time. With `FLIP`, signed codes still have the 128 that they are stored
/// with.
#[inline(always)]
unsafe fn groups<const SIGNED: bool, const FLIP: bool>(
    job: &TileJob<'_>,
    scales: Scales,
    codes: *const u8,
    w: &BlockScales,
    b: usize,
    pairs: &[(u32, u32)],
    acc: &mut [Lanes; ROWS],
) {
    let mut row = 0;
    while row < pairs.len() {
        let (pairs, acc) = (&pairs[row..], &mut acc[row..]);
        // SAFETY: the caller's.
        unsafe {
            row += match pairs.len() {
                1 => group::<SIGNED, FLIP, 1>(job, scales, codes, w, b, pairs, acc),
                2 => group::<SIGNED, FLIP, 2>(job, scales, codes, w, b, pairs, acc),
                3 => group::<SIGNED, FLIP, 3>(job, scales, codes, w, b, pairs, acc),
                _ => group::<SIGNED, FLIP, GROUP>(job, scales, codes, w, b, pairs, acc),
            };
        }
    }
}

/// The terms of `R` rows.
#[inline(always)]
unsafe fn group<const SIGNED: bool, const FLIP: bool, const R: usize>(
    job: &TileJob<'_>,
    scales: Scales,
    codes: *const u8,
    w: &BlockScales,
    b: usize,
    pairs: &[(u32, u32)],
    acc: &mut [Lanes],
) -> usize {
    let mut x = [std::ptr::null::<QBlock>(); R];
    for r in 0..R {
        x[r] = job.x.blocks(pairs[r].0 as usize).wrapping_add(b);
    }
    // SAFETY: the rows have this block.
    unsafe {
        let first = sums::<SIGNED, FLIP, R>(codes, &x, 0, if scales.halves() { 4 } else { 8 });
        let mut second = [[_mm256_setzero_si256(); 2]; R];
        if scales.halves() {
            second = sums::<SIGNED, FLIP, R>(codes, &x, 4, 8);
        }
        for r in 0..R {
            let x = &*x[r];
            for half in 0..2 {
                let sum = _mm256_cvtepi32_ps(first[r][half]);
                let term = if scales.has_min() {
                    _mm256_fmsub_ps(sum, w.scale[half], _mm256_mul_ps(w.min[half], _mm256_set1_ps(x.sum)))
                } else if scales.halves() {
                    let first = _mm256_mul_ps(sum, w.scale[half]);
                    _mm256_fmadd_ps(_mm256_cvtepi32_ps(second[r][half]), w.second[half], first)
                } else {
                    _mm256_mul_ps(sum, w.scale[half])
                };
                acc[r][half] = _mm256_fmadd_ps(term, _mm256_set1_ps(x.d), acc[r][half]);
            }
        }
    }
    R
}

/// Integer sums of some quads by row, and by rows 0..8 and 8..16 of the tile.
#[inline(always)]
unsafe fn sums<const SIGNED: bool, const FLIP: bool, const R: usize>(
    codes: *const u8,
    x: &[*const QBlock; R],
    start: usize,
    end: usize,
) -> [[__m256i; 2]; R] {
    // SAFETY: 8 quads of activations, 16 vectors of 32 codes.
    unsafe {
        let mut sums = [[_mm256_setzero_si256(); 2]; R];
        let (ones, flip) = (_mm256_set1_epi16(1), _mm256_set1_epi8(-128));
        for quad in start..end {
            for half in 0..2 {
                let mut w = _mm256_load_si256(codes.add(64 * quad + 32 * half).cast());
                if FLIP {
                    w = _mm256_xor_si256(w, flip);
                }
                let magnitude = if SIGNED { _mm256_abs_epi8(w) } else { w };
                for r in 0..R {
                    let q = (&raw const (*x[r]).q).cast::<i32>();
                    let x = _mm256_set1_epi32(q.add(quad).read());
                    let x = if SIGNED { _mm256_sign_epi8(x, w) } else { x };
                    let pairs = _mm256_maddubs_epi16(magnitude, x);
                    sums[r][half] = _mm256_add_epi32(sums[r][half], _mm256_madd_epi16(pairs, ones));
                }
            }
        }
        sums
    }
}

#[inline(always)]
unsafe fn read_codes(codes: Codes, bytes: &[u8], signed: bool) -> BlockCodes {
    let mut out = BlockCodes([0; 512]);
    let Codes::Table(levels) = codes else {
        out.0 = unpack_codes(codes, bytes);
        if signed {
            out.0.iter_mut().for_each(|c| *c ^= 0x80);
        }
        return out;
    };
    // SAFETY: 16 levels, 256 bytes of nibbles, 512 codes.
    unsafe {
        let levels = _mm256_broadcastsi128_si256(_mm_loadu_si128(levels.as_ptr().cast()));
        let (levels, low) = (_mm256_xor_si256(levels, _mm256_set1_epi8(-128)), _mm256_set1_epi8(15));
        for v in 0..8 {
            let both = _mm256_loadu_si256(bytes.as_ptr().add(32 * v).cast());
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(both), low);
            let to = out.0.as_mut_ptr().add(32 * v);
            _mm256_store_si256(to.cast(), _mm256_shuffle_epi8(levels, _mm256_and_si256(both, low)));
            _mm256_store_si256(to.add(256).cast(), _mm256_shuffle_epi8(levels, high));
        }
    }
    out
}

#[inline(always)]
unsafe fn read_scales(scales: Scales, plane: &[u8], b: usize) -> BlockScales {
    let (per, bytes) = scales.group();
    let (group, j) = (plane[b / per * bytes..][..bytes].as_ptr(), b % per);
    // SAFETY: arrays of the group, as the layout has them.
    unsafe {
        let none = [_mm256_setzero_ps(); 2];
        match scales {
            Scales::F16 => BlockScales { scale: f16(group), second: none, min: none },
            Scales::Bf16 => BlockScales { scale: bf16(group), second: none, min: none },
            Scales::HalvesF16 => BlockScales { scale: f16(group), second: f16(group.add(32)), min: none },
            Scales::MinF16 => BlockScales { scale: f16(group), second: none, min: f16(group.add(32)) },
            Scales::MinByte => {
                let at = group.add(64 + 32 * j);
                BlockScales { scale: times(f16(group), at), second: none, min: times(f16(group.add(32)), at.add(16)) }
            }
            Scales::Byte => BlockScales { scale: times(f16(group), group.add(32 + 16 * j)), second: none, min: none },
            Scales::HalvesByte => {
                let (d, at) = (f16(group), group.add(32 + 32 * j));
                BlockScales { scale: times(d, at), second: times(d, at.add(16)), min: none }
            }
        }
    }
}

/// Reads 16 f16 as f32.
#[inline(always)]
unsafe fn f16(at: *const u8) -> Lanes {
    // SAFETY: the caller's.
    unsafe { [_mm256_cvtph_ps(_mm_loadu_si128(at.cast())), _mm256_cvtph_ps(_mm_loadu_si128(at.add(16).cast()))] }
}

/// Reads 16 bf16 as f32.
#[inline(always)]
unsafe fn bf16(at: *const u8) -> Lanes {
    // SAFETY: the caller's.
    unsafe { [eight_bf16(at), eight_bf16(at.add(16))] }
}

#[inline(always)]
unsafe fn eight_bf16(at: *const u8) -> __m256 {
    // SAFETY: the caller's.
    unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast())))) }
}

/// `d` times 16 signed bytes.
#[inline(always)]
unsafe fn times(d: Lanes, at: *const u8) -> Lanes {
    // SAFETY: the caller's.
    unsafe { [_mm256_mul_ps(d[0], eight_bytes(at)), _mm256_mul_ps(d[1], eight_bytes(at.add(8)))] }
}

#[inline(always)]
unsafe fn eight_bytes(at: *const u8) -> __m256 {
    // SAFETY: the caller's.
    unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast()))) }
}

/// Float tiles times rows.
///
/// # Safety
/// As for [`blocks`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn floats(job: &TileJob<'_>, form: FloatForm, tiles: Range<usize>) {
    for tile in tiles {
        for pair in job.pairs {
            // SAFETY: the caller's.
            unsafe {
                let x = job.x.values(pair.0 as usize);
                let sums = match form {
                    FloatForm::F32 => float_tile::<0>(job, tile, x),
                    FloatForm::F16 => float_tile::<1>(job, tile, x),
                    FloatForm::Bf16 => float_tile::<2>(job, tile, x),
                };
                store(job, pair.1, tile, sums);
            }
        }
    }
}

#[inline(always)]
unsafe fn float_tile<const FORM: u8>(job: &TileJob<'_>, tile: usize, x: *const f32) -> Lanes {
    let at = job.w.tile(tile).as_ptr();
    // SAFETY: tiles and rows are padded to a multiple of four inputs.
    unsafe {
        let mut sums = [[_mm256_setzero_ps(); 2]; 4];
        for k in (0..job.w.cols).step_by(4) {
            for (i, sums) in sums.iter_mut().enumerate() {
                let index = (k + i) * TILE_ROWS;
                let w = match FORM {
                    0 => {
                        [_mm256_loadu_ps(at.cast::<f32>().add(index)), _mm256_loadu_ps(at.cast::<f32>().add(index + 8))]
                    }
                    1 => f16(at.add(2 * index)),
                    _ => bf16(at.add(2 * index)),
                };
                let x = _mm256_set1_ps(*x.add(k + i));
                *sums = [_mm256_fmadd_ps(w[0], x, sums[0]), _mm256_fmadd_ps(w[1], x, sums[1])];
            }
        }
        let [a, b, c, d] = sums;
        [
            _mm256_add_ps(_mm256_add_ps(a[0], b[0]), _mm256_add_ps(c[0], d[0])),
            _mm256_add_ps(_mm256_add_ps(a[1], b[1]), _mm256_add_ps(c[1], d[1])),
        ]
    }
}

/// Multiplies with the matrix's scale and stores the outputs of one tile.
#[inline(always)]
unsafe fn store(job: &TileJob<'_>, row: u32, tile: usize, acc: Lanes) {
    let mut values = [0.0f32; TILE_ROWS];
    for (h, acc) in acc.into_iter().enumerate() {
        // SAFETY: 16 floats.
        unsafe { _mm256_storeu_ps(values.as_mut_ptr().add(8 * h), _mm256_mul_ps(acc, _mm256_set1_ps(job.w.scale))) };
    }
    job.out.store(row, tile, job.lanes(tile), &values);
}

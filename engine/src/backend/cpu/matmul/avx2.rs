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
    // SAFETY: whole blocks and groups of the planes; the caller's for the rows.
    unsafe {
        let codes = read_codes(layout.codes, &codes[b * bytes..][..bytes], signed);
        let w = read_scales(layout.scales, scales, b);
        for (pair, acc) in pairs.iter().zip(acc) {
            let x = &*job.x.blocks(pair.0 as usize).add(b);
            let sums = if signed { dot::<true>(&codes, x) } else { dot::<false>(&codes, x) };
            for (half, acc) in acc.iter_mut().enumerate() {
                let [first, second] = sums[half];
                let term = if layout.scales.has_min() {
                    let sum = _mm256_cvtepi32_ps(_mm256_add_epi32(first, second));
                    _mm256_fmsub_ps(sum, w.scale[half], _mm256_mul_ps(w.min[half], _mm256_set1_ps(x.sum)))
                } else if layout.scales.halves() {
                    let first = _mm256_mul_ps(_mm256_cvtepi32_ps(first), w.scale[half]);
                    _mm256_fmadd_ps(_mm256_cvtepi32_ps(second), w.second[half], first)
                } else {
                    _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_add_epi32(first, second)), w.scale[half])
                };
                *acc = _mm256_fmadd_ps(term, _mm256_set1_ps(x.d), *acc);
            }
        }
    }
}

/// Integer sums by rows 0..8 and 8..16, each of both halves of the block.
#[inline(always)]
unsafe fn dot<const SIGNED: bool>(codes: &BlockCodes, x: &QBlock) -> [[__m256i; 2]; 2] {
    // SAFETY: 8 quads of activations, 16 vectors of 32 codes.
    unsafe {
        let mut sums = [[_mm256_setzero_si256(); 2]; 2];
        let ones = _mm256_set1_epi16(1);
        for quad in 0..8 {
            let x = _mm256_set1_epi32(x.q.as_ptr().cast::<i32>().add(quad).read());
            for rows in 0..2 {
                let w = _mm256_load_si256(codes.0.as_ptr().add(64 * quad + 32 * rows).cast());
                let pairs = if SIGNED {
                    _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                } else {
                    _mm256_maddubs_epi16(w, x)
                };
                sums[rows][quad / 4] = _mm256_add_epi32(sums[rows][quad / 4], _mm256_madd_epi16(pairs, ones));
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

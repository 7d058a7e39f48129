//! Products with 256-bit vectors, for x86-64 without AVX-512: a tile's 16 rows are two vectors.
//!
//! Integer sums are exact, so how they come about is free ([`Dots`]).

use super::ahead::{AHEAD_BYTES, ask};
use super::layout::{Codes, Layout, SIX_ADD, Scales};
use super::rows::QBlock;
use super::{FloatForm, TILE_ROWS, TileJob};
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Rows that share a block while its codes lie unpacked.
const ROWS: usize = 8;
/// Rows that share a reading of the codes, and what signs make of them: their sums are 8 of 16 registers.
const GROUP: usize = 4;

/// The 16 rows of a tile.
type Lanes = [__m256; 2];

/// Codes of a block as bytes.
#[repr(C, align(64))]
struct BlockCodes([u8; 512]);

struct BlockScales {
    scale: Lanes,
    second: Lanes,
    min: Lanes,
}

/// A way to multiply codes with activations and to add up.
trait Dots {
    /// What codes of signed weights have more than these, 0, 32 or 128: sums begin with what takes it back.
    const PLUS: u8;

    /// Adds to `sums`, by row and by rows 0..8 and 8..16 of the tile, the products of these quads.
    unsafe fn add<const R: usize>(
        sums: &mut [[__m256i; 2]; R],
        codes: *const u8,
        x: &[*const i32; R],
        quads: Range<usize>,
    );
}

/// Signed weights: magnitude (at most 128) by activation (at most 127), which takes the sign. Pairs are added in 16 bits:
/// at most 2 * 128 * 127 < 2^15.
struct Signs;

impl Dots for Signs {
    const PLUS: u8 = 0;

    #[inline(always)]
    unsafe fn add<const R: usize>(
        sums: &mut [[__m256i; 2]; R],
        codes: *const u8,
        x: &[*const i32; R],
        quads: Range<usize>,
    ) {
        // SAFETY: 8 quads of activations, 16 vectors of 32 codes.
        unsafe {
            let (ones, flip) = (_mm256_set1_epi16(1), _mm256_set1_epi8(-128));
            for quad in quads {
                for half in 0..2 {
                    let w = _mm256_xor_si256(_mm256_load_si256(codes.add(64 * quad + 32 * half).cast()), flip);
                    let magnitude = _mm256_abs_epi8(w);
                    for r in 0..R {
                        let x = _mm256_sign_epi8(_mm256_set1_epi32(x[r].add(quad).read()), w);
                        let pairs = _mm256_maddubs_epi16(magnitude, x);
                        sums[r][half] = _mm256_add_epi32(sums[r][half], _mm256_madd_epi16(pairs, ones));
                    }
                }
            }
        }
    }
}

/// Small codes that are not signed or not any more: `QUADS` quads add up in 16 bits, since four bits make at most 8 * 2 *
/// 15 * 127 of eight, five 4 * 2 * 31 * 127 of four, and six 2 * 2 * 63 * 127 of two, all below 2^15.
struct Small<const QUADS: usize, const PLUS: u8>;

impl<const QUADS: usize, const PLUS: u8> Dots for Small<QUADS, PLUS> {
    const PLUS: u8 = PLUS;

    #[inline(always)]
    unsafe fn add<const R: usize>(
        sums: &mut [[__m256i; 2]; R],
        codes: *const u8,
        x: &[*const i32; R],
        quads: Range<usize>,
    ) {
        // SAFETY: 8 quads of activations, 16 vectors of 32 codes.
        unsafe {
            let mut start = quads.start;
            while start < quads.end {
                let mut pairs = [[_mm256_setzero_si256(); 2]; R];
                for quad in start..start + QUADS {
                    let w0 = _mm256_load_si256(codes.add(64 * quad).cast());
                    let w1 = _mm256_load_si256(codes.add(64 * quad + 32).cast());
                    for r in 0..R {
                        let x = _mm256_set1_epi32(x[r].add(quad).read());
                        pairs[r][0] = _mm256_add_epi16(pairs[r][0], _mm256_maddubs_epi16(w0, x));
                        pairs[r][1] = _mm256_add_epi16(pairs[r][1], _mm256_maddubs_epi16(w1, x));
                    }
                }
                let ones = _mm256_set1_epi16(1);
                for r in 0..R {
                    for half in 0..2 {
                        sums[r][half] = _mm256_add_epi32(sums[r][half], _mm256_madd_epi16(pairs[r][half], ones));
                    }
                }
                start += QUADS;
            }
        }
    }
}

/// `VPDPBUSD`, for processors that have it without AVX-512: unsigned codes by signed activations, four products an
/// output, added in 32 bits. Few rows add up in two chains, for each has to wait for its last sum.
struct Vnni<const SIGNED: bool>;

impl<const SIGNED: bool> Dots for Vnni<SIGNED> {
    const PLUS: u8 = if SIGNED { 128 } else { 0 };

    #[inline(always)]
    unsafe fn add<const R: usize>(
        sums: &mut [[__m256i; 2]; R],
        codes: *const u8,
        x: &[*const i32; R],
        quads: Range<usize>,
    ) {
        // SAFETY: 8 quads of activations, 16 vectors of 32 codes; only `blocks_vnni` comes here.
        unsafe {
            let mut odd = [[_mm256_setzero_si256(); 2]; R];
            for quad in quads {
                let w0 = _mm256_load_si256(codes.add(64 * quad).cast());
                let w1 = _mm256_load_si256(codes.add(64 * quad + 32).cast());
                let sums = if R <= 2 && quad % 2 == 1 { &mut odd } else { &mut *sums };
                for r in 0..R {
                    let x = _mm256_set1_epi32(x[r].add(quad).read());
                    sums[r][0] = _mm256_dpbusd_avx_epi32(sums[r][0], w0, x);
                    sums[r][1] = _mm256_dpbusd_avx_epi32(sums[r][1], w1, x);
                }
            }
            if R <= 2 {
                for r in 0..R {
                    sums[r] = [_mm256_add_epi32(sums[r][0], odd[r][0]), _mm256_add_epi32(sums[r][1], odd[r][1])];
                }
            }
        }
    }
}

/// Quantised tiles times rows.
///
/// # Safety
/// The host has AVX2, FMA and F16C; shapes were checked.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn blocks(job: &TileJob<'_>, layout: Layout, tiles: Range<usize>) {
    // SAFETY: the caller's.
    unsafe {
        match layout.codes {
            Codes::Nibble => each_tile::<Small<8, 0>>(job, layout, tiles),
            Codes::Five { add: 0 } => each_tile::<Small<4, 0>>(job, layout, tiles),
            Codes::Six => each_tile::<Small<2, 32>>(job, layout, tiles),
            _ => each_tile::<Signs>(job, layout, tiles),
        }
    }
}

/// The same where the host has AVX-VNNI.
///
/// # Safety
/// As for [`blocks`], and it has.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) unsafe fn blocks_vnni(job: &TileJob<'_>, layout: Layout, tiles: Range<usize>) {
    // SAFETY: the caller's.
    unsafe {
        match layout.scales.has_min() {
            true => each_tile::<Vnni<false>>(job, layout, tiles),
            false => each_tile::<Vnni<true>>(job, layout, tiles),
        }
    }
}

#[inline(always)]
unsafe fn each_tile<D: Dots>(job: &TileJob<'_>, layout: Layout, tiles: Range<usize>) {
    let blocks = job.w.blocks();
    for tile in tiles.clone() {
        let (ahead, step) = (job.after(tile, tiles.end, AHEAD_BYTES), job.w.tile_bytes / blocks);
        for (nth, pairs) in job.pairs.chunks(ROWS).enumerate() {
            // SAFETY: registers only.
            let mut acc = unsafe { [[_mm256_setzero_ps(); 2]; ROWS] };
            for b in 0..blocks {
                if nth == 0 {
                    ask(ahead.wrapping_add(b * step), step);
                }
                // SAFETY: the block lies in the tile, and rows have as many blocks.
                unsafe { block::<D>(job, layout, job.w.tile(tile), b, pairs, &mut acc) };
            }
            for (acc, pair) in acc.into_iter().zip(pairs) {
                // SAFETY: the caller's.
                unsafe { store(job, pair.1, tile, acc) };
            }
        }
    }
}

/// A block's terms of all rows, [`GROUP`] at a time.
#[inline(always)]
unsafe fn block<D: Dots>(
    job: &TileJob<'_>,
    layout: Layout,
    tile: &[u8],
    b: usize,
    pairs: &[(u32, u32)],
    acc: &mut [Lanes; ROWS],
) {
    let (codes, scales) = tile.split_at(layout.codes_bytes(job.w.blocks()));
    let codes = &codes[b * layout.codes.block_bytes()..][..layout.codes.block_bytes()];
    let mut unpacked = MaybeUninit::<BlockCodes>::uninit();
    // SAFETY: whole blocks and groups of the planes.
    let (codes, w) = unsafe {
        let codes = match layout.codes {
            Codes::Byte => codes.as_ptr(),
            packed => unpack::<D>(packed, codes.as_ptr(), unpacked.as_mut_ptr().cast()),
        };
        (codes, read_scales(layout.scales, scales, b))
    };
    let mut row = 0;
    while row < pairs.len() {
        let (rows, acc) = (Rows { job, pairs: &pairs[row..], b }, &mut acc[row..]);
        // SAFETY: the caller's.
        unsafe {
            row += match pairs.len() - row {
                1 => group::<D, 1>(&rows, layout.scales, codes, &w, acc),
                2 => group::<D, 2>(&rows, layout.scales, codes, &w, acc),
                3 => group::<D, 3>(&rows, layout.scales, codes, &w, acc),
                _ => group::<D, GROUP>(&rows, layout.scales, codes, &w, acc),
            };
        }
    }
}

/// A block of some activation rows.
struct Rows<'a> {
    job: &'a TileJob<'a>,
    pairs: &'a [(u32, u32)],
    b: usize,
}

/// The terms of `R` rows.
#[inline(always)]
unsafe fn group<D: Dots, const R: usize>(
    rows: &Rows<'_>,
    scales: Scales,
    codes: *const u8,
    w: &BlockScales,
    acc: &mut [Lanes],
) -> usize {
    let mut x = [std::ptr::null::<QBlock>(); R];
    for r in 0..R {
        x[r] = rows.job.x.blocks(rows.pairs[r].0 as usize).wrapping_add(rows.b);
    }
    // SAFETY: the rows have this block.
    unsafe {
        let (first, second);
        if scales.halves() {
            first = sums::<D, R>(codes, &x, Part::First);
            second = sums::<D, R>(codes, &x, Part::Second);
        } else {
            first = sums::<D, R>(codes, &x, Part::Whole);
            second = [[_mm256_setzero_si256(); 2]; R];
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

/// A part of a block.
#[derive(Clone, Copy)]
enum Part {
    Whole,
    First,
    Second,
}

/// Integer sums of a part, by row, and by rows 0..8 and 8..16 of the tile.
#[inline(always)]
unsafe fn sums<D: Dots, const R: usize>(codes: *const u8, x: &[*const QBlock; R], part: Part) -> [[__m256i; 2]; R] {
    // SAFETY: the rows have the block.
    unsafe {
        let mut sums = [[_mm256_setzero_si256(); 2]; R];
        let mut q = [std::ptr::null::<i32>(); R];
        for r in 0..R {
            let x = &*x[r];
            q[r] = x.q.as_ptr().cast();
            if D::PLUS > 0 {
                let offset = match part {
                    Part::Whole => x.offset,
                    Part::First => x.offset_half[0],
                    Part::Second => x.offset_half[1],
                };
                let offset = _mm256_set1_epi32(offset);
                sums[r] = [if D::PLUS == 32 { _mm256_srai_epi32::<2>(offset) } else { offset }; 2];
            }
        }
        match part {
            Part::Whole => D::add(&mut sums, codes, &q, 0..8),
            Part::First => D::add(&mut sums, codes, &q, 0..4),
            Part::Second => D::add(&mut sums, codes, &q, 4..8),
        }
        sums
    }
}

/// Writes the codes of a block as bytes, and says where they are.
#[inline(always)]
unsafe fn unpack<D: Dots>(codes: Codes, from: *const u8, to: *mut u8) -> *const u8 {
    // SAFETY: 256 bytes of nibbles and their planes, 512 codes.
    unsafe {
        let low = _mm256_set1_epi8(15);
        for v in 0..8 {
            let both = _mm256_loadu_si256(from.add(32 * v).cast());
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(both), low);
            // The vector's half of its quad, `v / 2` and four on.
            let (at, half) = (v / 2, from.add(256 + 32 * (v % 2)));
            _mm256_store_si256(to.add(32 * v).cast(), code::<D>(codes, _mm256_and_si256(both, low), half, at));
            _mm256_store_si256(to.add(256 + 32 * v).cast(), code::<D>(codes, high, half, at + 4));
        }
    }
    to
}

/// Codes of half a quad from their nibbles and from the planes, of which this half begins at `planes`.
#[inline(always)]
unsafe fn code<D: Dots>(codes: Codes, nibbles: __m256i, planes: *const u8, quad: usize) -> __m256i {
    // SAFETY: the caller's, where the codes have planes.
    unsafe {
        match codes {
            Codes::Table(levels) => {
                _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(levels.as_ptr().cast())), nibbles)
            }
            Codes::Five { add } => {
                let bit = _mm256_set1_epi8((1u8 << quad) as i8);
                let set = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_loadu_si256(planes.cast()), bit), bit);
                let fifth = _mm256_and_si256(set, _mm256_set1_epi8(16));
                _mm256_add_epi8(_mm256_or_si256(nibbles, fifth), _mm256_set1_epi8(add as i8))
            }
            Codes::Six => {
                // Two bits go to their place above the nibble; what comes from other bytes is masked off.
                let plane = _mm256_loadu_si256(planes.add(quad / 4 * 64).cast());
                let turned = match quad % 4 {
                    0 => _mm256_slli_epi16::<4>(plane),
                    1 => _mm256_slli_epi16::<2>(plane),
                    2 => plane,
                    _ => _mm256_srli_epi16::<2>(plane),
                };
                let bits = _mm256_and_si256(turned, _mm256_set1_epi8(0x30));
                let six = _mm256_or_si256(nibbles, bits);
                if D::PLUS == 32 { six } else { _mm256_add_epi8(six, _mm256_set1_epi8(SIX_ADD as i8)) }
            }
            Codes::Nibble | Codes::Byte => nibbles,
        }
    }
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

//! Products with the 128-bit vectors of AArch64: a tile's 16 rows are four vectors.
//!
//! With the dot-product extension a quad takes one instruction a vector. Without it, byte products are added in pairs,
//! which fit 16 bits and then 32. Conversions from f16 and the dot product stand in inline assembly, since the
//! compiler's intrinsics for them are not stable.

use super::layout::{Codes, Layout, Scales};
use super::pack::unpack_codes;
use super::qblock::QBlock;
use super::{E4M3_FACTOR, FloatForm, GROUP_COLS, TILE_ROWS, TileJob};
use std::arch::aarch64::*;
use std::arch::asm;
use std::ops::Range;

/// Rows that share a block while its codes lie unpacked.
const ROWS: usize = 8;

/// The 16 rows of a tile.
type Lanes = [float32x4_t; 4];

/// Codes of a block as bytes; signed ones without the 128.
#[repr(C, align(64))]
struct BlockCodes([u8; 512]);

struct BlockScales {
    scale: Lanes,
    second: Lanes,
    min: Lanes,
}

/// Adds the four products of each row's quad of `w` with quad `J` of `x`.
trait Dot {
    unsafe fn quad<const J: i32>(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t;
}

/// Products of bytes by the dot product extension.
struct Extension;

impl Dot for Extension {
    #[inline(always)]
    unsafe fn quad<const J: i32>(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        let mut sum = sum;
        // SAFETY: registers only; the host has the extension where this type is used.
        unsafe {
            asm!(".arch_extension dotprod", "sdot {0:v}.4s, {1:v}.16b, {2:v}.4b[{3}]", inout(vreg) sum, in(vreg) w, in(vreg) x,
                 const J, options(pure, nomem, nostack));
        }
        sum
    }
}

/// Products of bytes by pairs, on processors without the extension.
struct PairDot;

impl Dot for PairDot {
    #[inline(always)]
    unsafe fn quad<const J: i32>(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: registers only.
        unsafe {
            let x = vreinterpretq_s8_s32(vdupq_laneq_s32::<J>(vreinterpretq_s32_s8(x)));
            let (low, high) = (vmull_s8(vget_low_s8(w), vget_low_s8(x)), vmull_high_s8(w, x));
            vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)))
        }
    }
}

/// Quantised tiles times rows.
///
/// # Safety
/// Shapes were checked, and `dot` only where the host has the extension.
pub(super) unsafe fn blocks(job: &TileJob<'_>, layout: Layout, tiles: Range<usize>, dot: bool) {
    // SAFETY: the caller's.
    unsafe {
        if dot { blocks_with::<Extension>(job, layout, tiles) } else { blocks_with::<PairDot>(job, layout, tiles) }
    }
}

// Every AArch64 has the set, so a kernel could vanish into its caller; as a function of its own it is found by the
// check of what is built (`scripts/check_inlining.py`).
#[inline(never)]
#[target_feature(enable = "neon")]
unsafe fn blocks_with<D: Dot>(job: &TileJob<'_>, layout: Layout, tiles: Range<usize>) {
    for tile in tiles {
        for pairs in job.pairs.chunks(ROWS) {
            let mut acc = [[vdupq_n_f32(0.0); 4]; ROWS];
            for b in 0..job.w.blocks() {
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

#[inline(always)]
unsafe fn block<D: Dot>(
    job: &TileJob<'_>,
    layout: Layout,
    tile: &[u8],
    b: usize,
    pairs: &[(u32, u32)],
    acc: &mut [Lanes; ROWS],
) {
    let bytes = layout.codes.block_bytes();
    let (codes, scales) = tile.split_at(layout.codes_bytes(job.w.blocks()));
    // SAFETY: whole blocks and groups of the planes; the caller's for the rows.
    unsafe {
        let codes = read_codes(layout.codes, &codes[b * bytes..][..bytes], !layout.scales.has_min());
        let w = read_scales(layout.scales, scales, b);
        for (pair, acc) in pairs.iter().zip(acc) {
            let x = &*job.x.blocks(pair.0 as usize).add(b);
            let sums = block_sums::<D>(&codes, x);
            for (v, acc) in acc.iter_mut().enumerate() {
                let [first, second] = sums[v];
                let term = if layout.scales.has_min() {
                    let sum = vcvtq_f32_s32(vaddq_s32(first, second));
                    vfmaq_f32(vnegq_f32(vmulq_n_f32(w.min[v], x.sum)), sum, w.scale[v])
                } else if layout.scales.halves() {
                    let first = vmulq_f32(vcvtq_f32_s32(first), w.scale[v]);
                    vfmaq_f32(first, vcvtq_f32_s32(second), w.second[v])
                } else {
                    vmulq_f32(vcvtq_f32_s32(vaddq_s32(first, second)), w.scale[v])
                };
                *acc = vfmaq_f32(*acc, term, vdupq_n_f32(x.d));
            }
        }
    }
}

/// Integer sums by vector of rows, each of both halves of the block.
#[inline(always)]
unsafe fn block_sums<D: Dot>(codes: &BlockCodes, x: &QBlock) -> [[int32x4_t; 2]; 4] {
    // SAFETY: 32 activations, and 32 vectors of codes.
    unsafe {
        let x = [vld1q_s8(x.q.as_ptr()), vld1q_s8(x.q.as_ptr().add(16))];
        let mut sums = [[vdupq_n_s32(0); 2]; 4];
        for (v, sums) in sums.iter_mut().enumerate() {
            for (half, sum) in sums.iter_mut().enumerate() {
                let at = codes.0.as_ptr().add(256 * half + 16 * v).cast::<i8>();
                *sum = D::quad::<0>(*sum, vld1q_s8(at), x[half]);
                *sum = D::quad::<1>(*sum, vld1q_s8(at.add(64)), x[half]);
                *sum = D::quad::<2>(*sum, vld1q_s8(at.add(128)), x[half]);
                *sum = D::quad::<3>(*sum, vld1q_s8(at.add(192)), x[half]);
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
        let levels = veorq_u8(vld1q_u8(levels.as_ptr()), vdupq_n_u8(0x80));
        for v in 0..16 {
            let both = vld1q_u8(bytes.as_ptr().add(16 * v));
            let to = out.0.as_mut_ptr().add(16 * v);
            vst1q_u8(to, vqtbl1q_u8(levels, vandq_u8(both, vdupq_n_u8(15))));
            vst1q_u8(to.add(256), vqtbl1q_u8(levels, vshrq_n_u8::<4>(both)));
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
        let none = [vdupq_n_f32(0.0); 4];
        match scales {
            Scales::F16 => BlockScales { scale: f16(group), second: none, min: none },
            Scales::Bf16 => BlockScales { scale: bf16(group), second: none, min: none },
            Scales::HalvesF16 => BlockScales { scale: f16(group), second: f16(group.add(32)), min: none },
            Scales::MinF16 => BlockScales { scale: f16(group), second: none, min: f16(group.add(32)) },
            Scales::ZeroByte => {
                let scale = f16(group);
                BlockScales { scale, second: none, min: times(scale, group.add(32)) }
            }
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
    unsafe { [four_f16(at), four_f16(at.add(8)), four_f16(at.add(16)), four_f16(at.add(24))] }
}

#[inline(always)]
unsafe fn four_f16(at: *const u8) -> float32x4_t {
    let wide: float32x4_t;
    // SAFETY: the caller's; else registers only.
    unsafe {
        let half = vld1_u16(at.cast());
        asm!("fcvtl {0:v}.4s, {1:v}.4h", lateout(vreg) wide, in(vreg) half, options(pure, nomem, nostack));
    }
    wide
}

/// Reads 16 bf16 as f32.
#[inline(always)]
unsafe fn bf16(at: *const u8) -> Lanes {
    // SAFETY: the caller's.
    unsafe { [four_bf16(at), four_bf16(at.add(8)), four_bf16(at.add(16)), four_bf16(at.add(24))] }
}

#[inline(always)]
unsafe fn four_bf16(at: *const u8) -> float32x4_t {
    // SAFETY: the caller's.
    unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(at.cast()))) }
}

/// `d` times 16 signed bytes.
#[inline(always)]
unsafe fn times(d: Lanes, at: *const u8) -> Lanes {
    // SAFETY: the caller's.
    unsafe {
        let bytes = vld1q_s8(at.cast());
        let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
        let wide =
            [vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)];
        let mut out = d;
        for v in 0..4 {
            out[v] = vmulq_f32(d[v], vcvtq_f32_s32(wide[v]));
        }
        out
    }
}

/// Float tiles times rows.
///
/// # Safety
/// Shapes were checked.
#[inline(never)]
#[target_feature(enable = "neon")]
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
                    FloatForm::E4m3 => float_tile::<3>(job, tile, x),
                    FloatForm::E4m3B128 => float_tile::<4>(job, tile, x),
                };
                store(job, pair.1, tile, sums);
            }
        }
    }
}

#[inline(always)]
unsafe fn float_tile<const FORM: u8>(job: &TileJob<'_>, tile: usize, x: *const f32) -> Lanes {
    let at = job.w.tile(tile).as_ptr();
    let factors = at.wrapping_add(job.w.float_codes_bytes());
    // SAFETY: tiles and rows are padded to a multiple of four inputs.
    unsafe {
        let mut sums = [[vdupq_n_f32(0.0); 4]; 4];
        for k in (0..job.w.cols).step_by(4) {
            for (i, sums) in sums.iter_mut().enumerate() {
                let index = (k + i) * TILE_ROWS;
                let w = match FORM {
                    0 => f32(at.add(4 * index)),
                    1 => f16(at.add(2 * index)),
                    2 => bf16(at.add(2 * index)),
                    3 => multiplied(e4m3(at.add(index)), [vdupq_n_f32(E4M3_FACTOR); 4]),
                    _ => multiplied(e4m3(at.add(index)), f32(factors.add(k / GROUP_COLS * TILE_ROWS * 4))),
                };
                let x = vdupq_n_f32(*x.add(k + i));
                for v in 0..4 {
                    sums[v] = vfmaq_f32(sums[v], w[v], x);
                }
            }
        }
        let [mut out, b, c, d] = sums;
        for v in 0..4 {
            out[v] = vaddq_f32(vaddq_f32(out[v], b[v]), vaddq_f32(c[v], d[v]));
        }
        out
    }
}

#[inline(always)]
unsafe fn multiplied(a: Lanes, b: Lanes) -> Lanes {
    // SAFETY: registers only.
    unsafe { [vmulq_f32(a[0], b[0]), vmulq_f32(a[1], b[1]), vmulq_f32(a[2], b[2]), vmulq_f32(a[3], b[3])] }
}

/// Reads 16 8-bit floats (E4M3) as f32, each divided by 256: as f16 whose exponents are 8 too small.
#[inline(always)]
unsafe fn e4m3(at: *const u8) -> Lanes {
    // SAFETY: the caller's; else registers only.
    unsafe {
        let bytes = vld1q_u8(at);
        let mut halves = [0u16; TILE_ROWS];
        for (i, wide) in [vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)].into_iter().enumerate() {
            let sign = vandq_u16(vshlq_n_u16::<8>(wide), vdupq_n_u16(0x8000));
            let rest = vshlq_n_u16::<7>(vandq_u16(wide, vdupq_n_u16(0x7f)));
            vst1q_u16(halves.as_mut_ptr().add(8 * i), vorrq_u16(sign, rest));
        }
        f16(halves.as_ptr().cast())
    }
}

/// Reads 16 f32 from any address.
#[inline(always)]
unsafe fn f32(at: *const u8) -> Lanes {
    let at = at.cast::<f32>();
    // SAFETY: the caller's.
    unsafe { [vld1q_f32(at), vld1q_f32(at.add(4)), vld1q_f32(at.add(8)), vld1q_f32(at.add(12))] }
}

/// Multiplies with the rows' scales and stores the outputs of one tile.
#[inline(always)]
unsafe fn store(job: &TileJob<'_>, row: u32, tile: usize, acc: Lanes) {
    let (mut values, scales) = ([0.0f32; TILE_ROWS], job.w.row_scales(tile));
    for (v, acc) in acc.into_iter().enumerate() {
        // SAFETY: 16 floats.
        unsafe {
            let scale = vld1q_f32(scales.as_ptr().add(4 * v));
            vst1q_f32(values.as_mut_ptr().add(4 * v), vmulq_f32(acc, scale));
        };
    }
    job.out.store(row, tile, job.lanes(tile), &values);
}

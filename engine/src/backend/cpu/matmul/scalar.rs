//! The definition of every product in portable code. Other instruction sets must give these bytes.
//!
//! Quantised weights, for output row `o`, over blocks of 32 inputs in order, with integer sums `i` (exact, so in any
//! order):
//!
//! | layout | `t` | then |
//! | --- | --- | --- |
//! | a scale a block | `i * scale` | `acc = fma(t, d, acc)` |
//! | with a minimum | `fma(i, scale, -(min * sum))` | the same |
//! | a scale a half block | `fma(i1, scale1, i0 * scale0)` | the same |
//!
//! `d` and `sum` are the activation block's. Float weights: four sums, of inputs `k % 4`, each `fma` in order, added as
//! `(s0 + s1) + (s2 + s3)`. An 8-bit float is
//! multiplied by the scale of its 128 inputs first. The result is multiplied by the row's scale.

use super::layout::Layout;
use super::pack::{TileBlock, unpack};
use super::qblock::QBlock;
use super::{E4M3_FACTOR, FloatForm, GROUP_COLS, PackedMatrix, TILE_ROWS};
use crate::format::blocks::decode::e4m3;
use half::{bf16, f16};

/// One tile of quantised weights times one row.
pub(super) fn blocks_tile(w: &PackedMatrix, layout: Layout, tile: usize, x: &[QBlock]) -> [f32; TILE_ROWS] {
    let (blocks, scales, tile) = (w.blocks(), w.row_scales(tile), w.tile(tile));
    let mut acc = [0.0; TILE_ROWS];
    for (b, x) in x[..blocks].iter().enumerate() {
        let w = unpack(layout, blocks, tile, b);
        for (lane, acc) in acc.iter_mut().enumerate() {
            *acc = term(layout, &w, lane, x).mul_add(x.d, *acc);
        }
    }
    std::array::from_fn(|l| acc[l] * scales[l])
}

fn term(layout: Layout, w: &TileBlock, lane: usize, x: &QBlock) -> f32 {
    let [i0, i1] = [0, 1].map(|half| half_dot(&w.codes, lane, half, x));
    let (scale0, scale1) = (w.scale[0][lane], w.scale[1][lane]);
    if layout.scales.has_min() {
        ((i0 + i1) as f32).mul_add(scale0, -(w.min[lane] * x.sum))
    } else if layout.scales.halves() {
        ((i1 + x.offset_half[1]) as f32).mul_add(scale1, (i0 + x.offset_half[0]) as f32 * scale0)
    } else {
        (i0 + i1 + x.offset) as f32 * scale0
    }
}

fn half_dot(codes: &[u8; 512], lane: usize, half: usize, x: &QBlock) -> i32 {
    let at = |k: usize| codes[k / 4 * 64 + lane * 4 + k % 4];
    (16 * half..16 * half + 16).map(|k| i32::from(at(k)) * i32::from(x.q[k])).sum()
}

/// One tile of float weights times one row of `cols.next_multiple_of(4)` values.
pub(super) fn float_tile(w: &PackedMatrix, form: FloatForm, tile: usize, x: &[f32]) -> [f32; TILE_ROWS] {
    let (scales, tile) = (w.row_scales(tile), w.tile(tile));
    let mut sums = [[0.0f32; TILE_ROWS]; 4];
    for (k, x) in x.iter().enumerate() {
        for (lane, sum) in sums[k % 4].iter_mut().enumerate() {
            *sum = w.float_weight(form, tile, k, lane).mul_add(*x, *sum);
        }
    }
    let [a, b, c, d] = sums;
    std::array::from_fn(|l| ((a[l] + b[l]) + (c[l] + d[l])) * scales[l])
}

impl PackedMatrix {
    /// Weight of input `k` in row `lane` of a tile, without the row's scale.
    pub(super) fn float_weight(&self, form: FloatForm, tile: &[u8], k: usize, lane: usize) -> f32 {
        let at = k * TILE_ROWS + lane;
        let short = |at: usize| u16::from_le_bytes([tile[2 * at], tile[2 * at + 1]]);
        let word = |at: usize| f32::from_le_bytes([tile[at], tile[at + 1], tile[at + 2], tile[at + 3]]);
        match form {
            FloatForm::F32 => word(4 * at),
            FloatForm::F16 => f16::from_bits(short(at)).to_f32(),
            FloatForm::Bf16 => bf16::from_bits(short(at)).to_f32(),
            FloatForm::E4m3 => e4m3(tile[at]),
            // The factor is 256 times the scale, which changes no bit of the product.
            FloatForm::E4m3B128 => {
                let factor = word(self.float_codes_bytes() + (k / GROUP_COLS * TILE_ROWS + lane) * 4);
                e4m3(tile[at]) / E4M3_FACTOR * factor
            }
        }
    }
}

//! Blocks of 32 values with one factor, for widths that are no multiple of 256: Q4_0, Q5_0, Q5_1, Q8_0, IQ4_NL,
//! MXFP4.

use super::codes::put_all;
use super::levels::{E2M1_LEVELS, IQ4, code_in, ends, iq4_ends};
use super::minimum::ScaleMin;
use super::search::{LevelSet, LevelTable, ScaledBlock, WholeNumbers};
use crate::format::BlockType;
use crate::format::blocks::decode::{E2M1, e8m0};
use half::f16;

/// The level of each value, with the factor that is stored.
fn coded(block: &ScaledBlock, levels: impl LevelSet, ends: impl Iterator<Item = f32>) -> (f16, Vec<f32>) {
    let group = block.group(0, block.x.len());
    let (stored, d) = block.factor(group.scale(levels, ends));
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    (stored, block.x.iter().map(|x| levels.nearest(x * inverse)).collect())
}

pub(super) fn q4_0(block: &ScaledBlock, out: &mut [u8]) {
    let (d, levels) = coded(block, WholeNumbers { min: -8.0, max: 7.0 }, ends(8.0));
    let codes = levels.iter().map(|q| (q + 8.0) as u8);
    out[..2].copy_from_slice(&d.to_le_bytes());
    put_all(BlockType::Q4_0, codes, out);
}

pub(super) fn q5_0(block: &ScaledBlock, out: &mut [u8]) {
    let (d, levels) = coded(block, WholeNumbers { min: -16.0, max: 15.0 }, ends(16.0));
    let codes = levels.iter().map(|q| (q + 16.0) as u8);
    out[..2].copy_from_slice(&d.to_le_bytes());
    put_all(BlockType::Q5_0, codes, out);
}

pub(super) fn q8_0(block: &ScaledBlock, out: &mut [u8]) {
    let ends = (-4..=4).map(|i| 127.0 + 0.25 * i as f32);
    let (d, levels) = coded(block, WholeNumbers { min: -127.0, max: 127.0 }, ends);
    out[..2].copy_from_slice(&d.to_le_bytes());
    put_all(BlockType::Q8_0, levels.iter().map(|q| *q as i8 as u8), out);
}

pub(super) fn q5_1(block: &ScaledBlock, out: &mut [u8]) {
    let fit = ScaleMin::fit(block.group(0, 32), 31.0, f32::INFINITY);
    let ((d, scale), (m, min)) = (block.factor(fit.scale), block.factor(fit.min));
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let levels = WholeNumbers { min: 0.0, max: 31.0 };
    let codes = block.x.iter().map(|x| levels.nearest((x - min) * inverse) as u8);
    out[..2].copy_from_slice(&d.to_le_bytes());
    out[2..4].copy_from_slice(&m.to_le_bytes());
    put_all(BlockType::Q5_1, codes, out);
}

pub(super) fn iq4_nl(block: &ScaledBlock, out: &mut [u8]) {
    let (d, levels) = coded(block, LevelTable(&IQ4), iq4_ends());
    let codes = levels.iter().map(|q| code_in(&IQ4, *q));
    out[..2].copy_from_slice(&d.to_le_bytes());
    put_all(BlockType::Iq4Nl, codes, out);
}

/// The biased exponent of the least power of two that is not below a normal number: no library's logarithm decides.
fn exponent_above(v: f32) -> i32 {
    let bits = v.to_bits();
    (bits >> 23) as i32 + i32::from(bits & 0x7f_ffff != 0)
}

pub(super) fn mxfp4(block: &ScaledBlock, out: &mut [u8]) {
    let group = block.group(0, 32);
    // The power of two that puts the largest value between 3 and 6, and those around it.
    let middle = exponent_above(block.largest / 6.0);
    let scale = |e: i32| e8m0(e as u8) / block.largest;
    let tried = (middle - 2..=middle + 1).map(|e| e.clamp(0, 254));
    let levels = LevelTable(&E2M1_LEVELS);
    let best = tried.map(|e| (group.error(levels, scale(e)), e)).reduce(|a, b| if b.0 < a.0 { b } else { a });
    let (_, e) = best.expect("four were tried");
    let codes = block.x.iter().map(|x| code_in(&E2M1, levels.nearest(x / scale(e))));
    out[0] = e as u8;
    put_all(BlockType::Mxfp4, codes, out);
}

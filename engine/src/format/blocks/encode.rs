//! Encoders. [`encode_row`] is what re-encoding at load and synthetic models need; [`quantize_row`] looks for the bytes
//! whose decoded values are nearest, where some inputs count more than others.
//!
//! The searches are plain Rust in a fixed order of float32 operations, so equal input makes equal bytes on every
//! machine, whatever the number of threads. One file a family of types: `search` has what they share.

mod block32;
mod codes;
mod grid;
mod levels;
mod minimum;
mod search;
mod symmetric;

use super::BlockType;
pub(crate) use codes::ValueGrid;
use half::{bf16, f16};
pub(crate) use search::row_weights;
use search::{ScaledBlock, WeightedRow};

/// Encodes a row as F32, F16, BF16 or Q8_0.
///
/// Q8_0: per 32 values `d = max|x| / 127`, `q = round(x / d)` with halves away from zero; `d` is stored as f16 and `q`
/// is made with the unrounded one.
///
/// # Panics
/// If `ty` is another type, `x` is no whole number of blocks or `out` is not its encoded length.
pub fn encode_row(ty: BlockType, x: &[f32], out: &mut [u8]) {
    assert_eq!(ty.row_bytes(x.len()), Some(out.len()), "a row of {} {} values", x.len(), ty.name());
    let block = match ty {
        BlockType::F32 => |x: &[f32], b: &mut [u8]| b.copy_from_slice(&x[0].to_le_bytes()),
        BlockType::F16 => |x: &[f32], b: &mut [u8]| b.copy_from_slice(&f16::from_f32(x[0]).to_le_bytes()),
        BlockType::Bf16 => |x: &[f32], b: &mut [u8]| b.copy_from_slice(&bf16::from_f32(x[0]).to_le_bytes()),
        BlockType::Q8_0 => q8_0,
        _ => panic!("{} cannot be written", ty.name()),
    };
    for (x, b) in x.chunks_exact(ty.elements()).zip(out.chunks_exact_mut(ty.bytes())) {
        block(x, b);
    }
}

/// Whether [`quantize_row`] writes this type.
pub fn can_quantize(ty: BlockType) -> bool {
    use BlockType::*;
    let plain = matches!(ty, F32 | F16 | Bf16 | Q8_0);
    plain || matches!(ty, Q4_0 | Q5_0 | Q5_1 | Iq4Nl | Mxfp4 | Q3K | Q4K | Q5K | Q6K | Iq3Xxs | Iq3S | Iq4Xs)
}

/// Encodes a row so that `sum importance (x - decoded)^2` is small. `importance` has an entry a value, of which only
/// the ratios count; without it all values count alike.
///
/// A value beyond what the type reaches becomes the nearest one that it does reach.
///
/// # Panics
/// If [`can_quantize`] says no, a value is not finite, or lengths differ.
pub fn quantize_row(ty: BlockType, x: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    assert!(can_quantize(ty), "{} cannot be written", ty.name());
    assert!(x.iter().all(|x| x.is_finite()), "a row to encode has finite values");
    let encode: fn(&ScaledBlock, &mut [u8]) = match ty {
        BlockType::Q4_0 => block32::q4_0,
        BlockType::Q5_0 => block32::q5_0,
        BlockType::Q5_1 => block32::q5_1,
        BlockType::Iq4Nl => block32::iq4_nl,
        BlockType::Mxfp4 => block32::mxfp4,
        BlockType::Q3K => symmetric::q3_k,
        BlockType::Q6K => symmetric::q6_k,
        BlockType::Iq4Xs => symmetric::iq4_xs,
        BlockType::Q4K => minimum::q4_k,
        BlockType::Q5K => minimum::q5_k,
        BlockType::Iq3S => grid::iq3_s,
        BlockType::Iq3Xxs => grid::iq3_xxs,
        BlockType::Q8_0 => block32::q8_0,
        _ => return encode_row(ty, &x.iter().map(|x| within(ty, *x)).collect::<Vec<_>>(), out),
    };
    assert_eq!(ty.row_bytes(x.len()), Some(out.len()), "a row of {} {} values", x.len(), ty.name());
    let row = WeightedRow::new(x, importance);
    for (i, out) in out.chunks_exact_mut(ty.bytes()).enumerate() {
        out.fill(0);
        if let Some(block) = row.block(i * ty.elements()..(i + 1) * ty.elements()) {
            encode(&block, out);
        }
    }
}

/// The value, or the largest finite one that a type of single values has in its place.
fn within(ty: BlockType, x: f32) -> f32 {
    let max = match ty {
        BlockType::F16 => f16::MAX.to_f32(),
        BlockType::Bf16 => bf16::MAX.to_f32(),
        _ => f32::MAX,
    };
    x.clamp(-max, max)
}

fn q8_0(x: &[f32], out: &mut [u8]) {
    let d = x.iter().fold(0.0f32, |m, x| m.max(x.abs())) / 127.0;
    let inverse = if d > 0.0 { 1.0 / d } else { 0.0 };
    out[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
    for (x, q) in x.iter().zip(&mut out[2..]) {
        // `as` saturates, and f32::round takes halves away from zero.
        *q = (x * inverse).round() as i8 as u8;
    }
}

#[cfg(test)]
mod tests;

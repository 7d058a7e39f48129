//! Encoders: what re-encoding at load and synthetic models need.

use super::BlockType;
use half::{bf16, f16};

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
mod tests {
    use super::*;

    #[test]
    fn a_row_of_zeros_encodes_to_zeros() {
        let mut out = [1; 34];
        encode_row(BlockType::Q8_0, &[0.0; 32], &mut out);
        assert_eq!(out, [0; 34]);
    }
}

//! Encoders: what re-encoding at load and synthetic models need.

use super::BlockType;
use half::{bf16, f16};

/// Encodes a row as F32, F16, BF16 or Q8_0.
///
/// Q8_0: per 32 values `d = max|x| / 127`, `q = round(x / d)` with halves away from zero; `d` is stored as f16 and `q` is made with
/// the unrounded one.
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

/// What a type is re-encoded to at load when no fast kernel reads it: Q8_0 if that costs no precision worth naming (at most 8.5 bits
/// an element), else BF16. `None` if it stays as it is.
pub fn reencoded(ty: BlockType, has_kernel: impl Fn(BlockType) -> bool) -> Option<BlockType> {
    match ty {
        _ if has_kernel(ty) => None,
        _ if ty.bits() <= BlockType::Q8_0.bits() => Some(BlockType::Q8_0),
        _ => Some(BlockType::Bf16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_without_a_kernel_become_q8_0_if_small_and_bf16_if_not() {
        let fast = |ty| matches!(ty, BlockType::Q8_0 | BlockType::Bf16 | BlockType::Q4K);
        assert_eq!(reencoded(BlockType::Q4K, fast), None);
        assert_eq!(reencoded(BlockType::Iq2S, fast), Some(BlockType::Q8_0));
        assert_eq!(reencoded(BlockType::Q5_1, fast), Some(BlockType::Q8_0));
        assert_eq!(reencoded(BlockType::F16, fast), Some(BlockType::Bf16));
        assert_eq!(reencoded(BlockType::F32, fast), Some(BlockType::Bf16));
    }

    #[test]
    fn a_row_of_zeros_encodes_to_zeros() {
        let mut out = [1; 34];
        encode_row(BlockType::Q8_0, &[0.0; 32], &mut out);
        assert_eq!(out, [0; 34]);
    }
}

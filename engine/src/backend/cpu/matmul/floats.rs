//! Forms of float weights.

use super::TILE_ROWS;
use crate::format::BlockType;

/// Inputs that share a factor in [`FloatForm::E4m3B128`].
pub(super) const GROUP_COLS: usize = 128;
/// What an 8-bit float is multiplied with that was read as an f16 of its bits, whose exponent has another bias.
pub(super) const E4M3_FACTOR: f32 = 256.0;

/// How the weights of a float matrix are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FloatForm {
    F32,
    F16,
    Bf16,
    E4m3,
    /// With 256 times the scales of 128 inputs behind all codes of a tile, f32, `[group][16 rows]`.
    E4m3B128,
}

impl FloatForm {
    pub(super) fn of(ty: BlockType) -> Option<Self> {
        match ty {
            BlockType::F32 => Some(Self::F32),
            BlockType::F16 => Some(Self::F16),
            BlockType::Bf16 => Some(Self::Bf16),
            BlockType::F8E4m3 => Some(Self::E4m3),
            BlockType::F8E4m3B128 => Some(Self::E4m3B128),
            _ => None,
        }
    }

    /// Bytes of a weight, without those of scales.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::E4m3 | Self::E4m3B128 => 1,
        }
    }

    /// Bytes of the weights of a tile.
    pub(super) fn codes_bytes(self, cols: usize) -> usize {
        cols.next_multiple_of(4) * TILE_ROWS * self.bytes()
    }

    /// Bytes of a tile.
    pub(super) fn tile_bytes(self, cols: usize) -> usize {
        let groups = if self == Self::E4m3B128 { cols / GROUP_COLS } else { 0 };
        self.codes_bytes(cols) + groups * TILE_ROWS * size_of::<f32>()
    }
}

//! The encodings of tensor data, each a run of elements in a run of bytes: those of GGUF files, and three into which
//! the quantised matrices of Hugging Face directories are brought ([`super::hf`]), because GGUF has none of their
//! size.

pub(crate) mod decode;
mod encode;
mod finite;
pub(crate) mod grids;
mod random;

pub use decode::decode_row;
pub(crate) use encode::{ValueGrid, row_weights};
pub use encode::{can_quantize, encode_row, quantize_row};
pub use finite::is_finite;
pub use random::{SplitMix, random_blocks};

/// How a tensor's elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the variants are GGUF's own names")]
pub enum BlockType {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq1S,
    Iq1M,
    Iq2Xxs,
    Iq2Xs,
    Iq2S,
    Iq3Xxs,
    Iq3S,
    Iq4Nl,
    Iq4Xs,
    Mxfp4,
    Nvfp4,
    /// An 8-bit float with 4 bits of exponent and 3 of mantissa (E4M3), which has no infinities.
    F8E4m3,
    /// A scale (f32) and 128 values of [`BlockType::F8E4m3`] that it multiplies.
    F8E4m3B128,
    /// A scale (f16), a zero point (u8), a byte of padding, and 128 nibbles: `scale * (nibble - zero)`. Nibbles lie as
    /// in four blocks of [`BlockType::Q4_0`].
    U4G128,
}

/// The id of an encoding that GGUF files do not have.
const NONE: u32 = u32::MAX;

/// (type, GGUF id, GGUF name, elements in a block, bytes of a block)
const TABLE: &[(BlockType, u32, &str, usize, usize)] = &[
    (BlockType::F32, 0, "F32", 1, 4),
    (BlockType::F16, 1, "F16", 1, 2),
    (BlockType::Q4_0, 2, "Q4_0", 32, 18),
    (BlockType::Q4_1, 3, "Q4_1", 32, 20),
    (BlockType::Q5_0, 6, "Q5_0", 32, 22),
    (BlockType::Q5_1, 7, "Q5_1", 32, 24),
    (BlockType::Q8_0, 8, "Q8_0", 32, 34),
    (BlockType::Q2K, 10, "Q2_K", 256, 84),
    (BlockType::Q3K, 11, "Q3_K", 256, 110),
    (BlockType::Q4K, 12, "Q4_K", 256, 144),
    (BlockType::Q5K, 13, "Q5_K", 256, 176),
    (BlockType::Q6K, 14, "Q6_K", 256, 210),
    (BlockType::Iq2Xxs, 16, "IQ2_XXS", 256, 66),
    (BlockType::Iq2Xs, 17, "IQ2_XS", 256, 74),
    (BlockType::Iq3Xxs, 18, "IQ3_XXS", 256, 98),
    (BlockType::Iq1S, 19, "IQ1_S", 256, 50),
    (BlockType::Iq4Nl, 20, "IQ4_NL", 32, 18),
    (BlockType::Iq3S, 21, "IQ3_S", 256, 110),
    (BlockType::Iq2S, 22, "IQ2_S", 256, 82),
    (BlockType::Iq4Xs, 23, "IQ4_XS", 256, 136),
    (BlockType::Iq1M, 29, "IQ1_M", 256, 56),
    (BlockType::Bf16, 30, "BF16", 1, 2),
    (BlockType::Mxfp4, 39, "MXFP4", 32, 17),
    (BlockType::Nvfp4, 40, "NVFP4", 64, 36),
    (BlockType::F8E4m3, NONE, "F8_E4M3", 1, 1),
    (BlockType::F8E4m3B128, NONE, "F8_E4M3_B128", 128, 132),
    (BlockType::U4G128, NONE, "U4_G128", 128, 68),
];

impl BlockType {
    /// The type itself where rows of `cols` values are whole blocks of it, else the next larger one with blocks of 32
    /// (of two of the same size the more exact); `None` if not even that fits.
    pub fn fitting(self, cols: usize) -> Option<Self> {
        if cols.is_multiple_of(self.elements()) {
            return Some(self);
        }
        let small = match self {
            Self::Iq3Xxs | Self::Iq3S | Self::Q3K | Self::Iq4Xs => Self::Iq4Nl,
            Self::Q4K => Self::Q5_0,
            Self::Q5K => Self::Q5_1,
            _ => Self::Q8_0,
        };
        cols.is_multiple_of(small.elements()).then_some(small)
    }

    fn row(self) -> &'static (BlockType, u32, &'static str, usize, usize) {
        TABLE.iter().find(|r| r.0 == self).expect("every variant stands in the table")
    }

    /// The type with this GGUF id, if it is one that is read here.
    pub fn from_gguf_id(id: u32) -> Option<Self> {
        TABLE.iter().find(|r| r.1 == id && id != NONE).map(|r| r.0)
    }

    /// Id in GGUF files, if they have this encoding.
    pub fn gguf_id(self) -> Option<u32> {
        Some(self.row().1).filter(|id| *id != NONE)
    }

    /// The type of this name in GGUF's spelling, whatever the case.
    pub fn named(name: &str) -> Option<Self> {
        TABLE.iter().find(|r| r.2.eq_ignore_ascii_case(name)).map(|r| r.0)
    }

    /// All types, in the order of their ids, those without one last.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|r| r.0)
    }

    /// Name in a report, in GGUF's spelling where GGUF has it, such as `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Elements in one block.
    pub fn elements(self) -> usize {
        self.row().3
    }

    /// Bytes of one block.
    pub fn bytes(self) -> usize {
        self.row().4
    }

    /// Bytes of a row of `n` elements; `None` if `n` is not a whole number of blocks, or the bytes are more than memory
    /// can have.
    pub fn row_bytes(self, n: usize) -> Option<usize> {
        if n.is_multiple_of(self.elements()) { (n / self.elements()).checked_mul(self.bytes()) } else { None }
    }

    /// Bits an element takes.
    pub fn bits(self) -> f64 {
        8.0 * self.bytes() as f64 / self.elements() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_container_format() {
        assert_eq!(BlockType::Q4K.row_bytes(2048), Some(8 * 144));
        assert_eq!(BlockType::Q4K.row_bytes(2080), None);
        assert_eq!(BlockType::from_gguf_id(23), Some(BlockType::Iq4Xs));
        assert_eq!(BlockType::from_gguf_id(15), None);
        assert_eq!(BlockType::Q8_0.bits(), 8.5);
    }
}

//! How a quantised tile lies in memory, and what each encoding becomes.
//!
//! A tile is 16 output rows by all inputs: first a plane of codes, then a plane of scales, padded to a cache line.
//! Codes of a block of 32 inputs are eight *quads*: quad `j` holds inputs `4j..4j+4` of the 16 rows, row after row, 64
//! bytes when a code is a byte. Smaller codes share bytes: the low nibbles of vector `v` are quad `v`, the high nibbles
//! quad `v + 4`; bit planes follow their block's nibbles.

use crate::format::BlockType;
use crate::format::blocks::decode;

/// How codes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codes {
    /// One byte, the signed weight plus 128.
    Byte,
    /// A nibble, unsigned, for weights with a minimum.
    Nibble,
    /// A nibble that selects from a table of signed weights plus 128.
    Table([u8; 16]),
    /// A nibble and a fifth bit (bit `j` of each byte of a 64-byte plane is quad `j`'s); `add` is added.
    Five {
        /// 112 makes the range -16..16 signed plus 128.
        add: u8,
    },
    /// A nibble and two bits (byte plane `j / 4`, bits `2 * (j % 4)`), in -32..32, plus 128 when read.
    Six,
}

impl Codes {
    /// Bytes of a block of 32 inputs by 16 rows.
    pub(super) const fn block_bytes(self) -> usize {
        match self {
            Codes::Byte => 512,
            Codes::Nibble | Codes::Table(_) => 256,
            Codes::Five { .. } => 256 + 64,
            Codes::Six => 256 + 128,
        }
    }
}

/// What is added to a six-bit code, so that it is the signed weight plus 128.
pub(super) const SIX_ADD: u8 = 96;

/// How scales are stored; each is an array over the tile's 16 rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scales {
    /// One f16 for each block.
    F16,
    /// bf16 a block: powers of two beyond f16's range.
    Bf16,
    /// f16 a half block.
    HalvesF16,
    /// f16 scale and f16 negated minimum a block.
    MinF16,
    /// f16 scale and a zero point, a byte, for 128 inputs: the minimum is their product.
    ZeroByte,
    /// f16 scale and f16 minimum for 256 inputs (64 bytes), then a byte each a block, `[8][scale 16, minimum 16]`.
    MinByte,
    /// f16 for 256 inputs, then a signed byte a block.
    Byte,
    /// f16 for 256 inputs, then a signed byte a half block.
    HalvesByte,
}

impl Scales {
    /// Blocks of 32 that share a group, and the group's bytes.
    pub(super) const fn group(self) -> (usize, usize) {
        match self {
            Scales::F16 | Scales::Bf16 => (1, 32),
            Scales::HalvesF16 | Scales::MinF16 => (1, 64),
            Scales::ZeroByte => (4, 32 + 16),
            Scales::MinByte => (8, 64 + 8 * 32),
            Scales::Byte => (8, 32 + 8 * 16),
            Scales::HalvesByte => (8, 32 + 16 * 16),
        }
    }

    /// Whether each half block has its scale.
    pub(super) const fn halves(self) -> bool {
        matches!(self, Scales::HalvesF16 | Scales::HalvesByte)
    }

    /// Whether a minimum is subtracted. If not, codes are signed plus 128.
    pub(super) const fn has_min(self) -> bool {
        matches!(self, Scales::MinF16 | Scales::ZeroByte | Scales::MinByte)
    }
}

/// Storage of a quantised matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) codes: Codes,
    pub(super) scales: Scales,
    /// A power of two that multiplies every weight; applied to the finished product, where it is exact.
    pub(super) factor: f32,
}

impl Layout {
    /// Bytes of the code plane of a tile with `blocks` blocks.
    pub(super) const fn codes_bytes(self, blocks: usize) -> usize {
        blocks * self.codes.block_bytes()
    }

    /// Bytes of a tile with `blocks` blocks.
    pub(super) const fn tile_bytes(self, blocks: usize) -> usize {
        let (per, bytes) = self.scales.group();
        (self.codes_bytes(blocks) + blocks.div_ceil(per) * bytes).next_multiple_of(64)
    }
}

/// The layout of `ty`, or `None` for float types and for those that are re-encoded as Q8_0.
pub(super) fn layout(ty: BlockType) -> Option<Layout> {
    use BlockType as B;
    let (codes, scales, factor) = match ty {
        B::Q8_0 => (Codes::Byte, Scales::F16, 1.0),
        B::Q4_0 => (Codes::Table(Q4_LEVELS), Scales::F16, 1.0),
        B::Iq4Nl => (Codes::Table(IQ4_LEVELS), Scales::F16, 1.0),
        B::Mxfp4 => (Codes::Table(E2M1_LEVELS), Scales::Bf16, 0.5),
        B::Nvfp4 => (Codes::Table(E2M1_LEVELS), Scales::HalvesF16, 0.5),
        B::Iq4Xs => (Codes::Table(IQ4_LEVELS), Scales::Byte, 1.0),
        B::Iq3S => (Codes::Table(IQ3_S_LEVELS), Scales::Byte, 1.0),
        B::Iq3Xxs => (Codes::Table(IQ3_XXS_LEVELS), Scales::Byte, 0.25),
        B::Iq1S => (Codes::Table(IQ1_LEVELS), Scales::Byte, 0.125),
        B::Iq1M => (Codes::Table(IQ1_LEVELS), Scales::HalvesByte, 0.125),
        B::Iq2Xxs => (Codes::Table(IQ2_LEVELS), Scales::Byte, 0.125),
        B::Iq2Xs => (Codes::Table(IQ2_LEVELS), Scales::HalvesByte, 0.125),
        B::Iq2S => (Codes::Table(IQ2_LEVELS), Scales::HalvesByte, 0.125),
        B::Q3K => (Codes::Table(Q3_LEVELS), Scales::HalvesByte, 1.0),
        B::Q4_1 => (Codes::Nibble, Scales::MinF16, 1.0),
        B::U4G128 => (Codes::Nibble, Scales::ZeroByte, 1.0),
        B::Q4K => (Codes::Nibble, Scales::MinByte, 1.0),
        B::Q5_0 => (Codes::Five { add: 112 }, Scales::F16, 1.0),
        B::Q5_1 => (Codes::Five { add: 0 }, Scales::MinF16, 1.0),
        B::Q5K => (Codes::Five { add: 0 }, Scales::MinByte, 1.0),
        B::Q6K => (Codes::Six, Scales::HalvesByte, 1.0),
        B::F32 | B::F16 | B::Bf16 | B::F8E4m3 | B::F8E4m3B128 | B::Q2K => return None,
    };
    Some(Layout { codes, scales, factor })
}

const fn plus_128(levels: [i8; 16]) -> [u8; 16] {
    let mut out = [0; 16];
    let mut i = 0;
    while i < 16 {
        out[i] = (levels[i] as u8) ^ 0x80;
        i += 1;
    }
    out
}

const Q3_LEVELS: [u8; 16] = plus_128([-4, -3, -2, -1, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0]);
const Q4_LEVELS: [u8; 16] = plus_128([-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7]);
const IQ4_LEVELS: [u8; 16] = plus_128(decode::IQ4_LEVELS);
/// Magnitudes of the code books with the sign as the fourth bit.
const IQ3_S_LEVELS: [u8; 16] = plus_128([1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15]);
const IQ3_XXS_LEVELS: [u8; 16] = plus_128([4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62]);
/// Eight times -1, 0 and 1, each with 1 added, and then with 1 taken.
const IQ1_LEVELS: [u8; 16] = plus_128([-7, 1, 9, 0, 0, 0, 0, 0, -9, -1, 7, 0, 0, 0, 0, 0]);
/// Indexed by a sixteenth of the magnitude.
const IQ2_LEVELS: [u8; 16] = plus_128([8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43, 0, 0, 0, 0, 0]);
/// Twice the values of E2M1, so that they are integers.
const E2M1_LEVELS: [u8; 16] = plus_128([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]);

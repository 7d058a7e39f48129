//! How a quantised matrix lies in device memory. `csrc/product.cu` reads what is packed here.
//!
//! A tile is 16 output rows by all inputs, a unit 128 inputs of it, a block 32. Lane `(g, t) = (lane / 4, lane % 4)` of a warp
//! multiplies rows `g` and `g + 8`, and of each block the quads (4 inputs, one word) `t` and `t + 4`. All that a lane needs of a
//! unit lies together, so that a warp reads whole lines of 512 bytes. A tile is, one after another, padded to 128 bytes:
//!
//! | part | a unit's share |
//! | --- | --- |
//! | codes | `[vector][lane][4 words]`: bytes: vector = block, words = (row g, g+8) of quad t, then of t+4; nibbles: vector = two blocks, words = (row g, g+8) of each block, quad t and t+4 sharing a word |
//! | planes | what exceeds a nibble, `[lane]`: five bits: a word for two blocks; six bits: a word a block |
//! | scales | `[g]`, of rows g and g+8: a half a block; or one or two bytes a block |
//! | groups | where 256 inputs share a half: `[g]`, for every second unit |

use crate::cuda::quantized::BLOCK;

/// Output rows of a tile.
pub const TILE_ROWS: usize = 16;
/// Inputs of a unit.
pub const UNIT: usize = 128;
const UNIT_BLOCKS: usize = UNIT / BLOCK;

/// How codes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codes {
    /// A signed byte.
    Byte,
    /// A nibble, unsigned.
    Nibble,
    /// A nibble that selects one of these.
    Table([i8; 16]),
    /// Five bits, unsigned.
    Five,
    /// Six bits, signed.
    Six,
}

/// How scales are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scales {
    /// f16 a block.
    F16,
    /// bf16 a block: powers of two beyond f16's range.
    Bf16,
    /// f16 scale and minimum for 256 inputs, a factor for each in a block: `d * s[0] * code - dmin * s[1]`.
    Min,
    /// f16 for 256 inputs, a factor a block.
    Byte,
    /// f16 for 256 inputs, a factor for each half block.
    Halves,
}

/// Storage of a quantised matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Of codes.
    pub codes: Codes,
    /// Of scales.
    pub scales: Scales,
}

/// Levels of IQ4_NL and IQ4_XS.
const IQ4_LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// Twice the values of E2M1, so that they are integers.
const E2M1_LEVELS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
const Q4_LEVELS: [i8; 16] = [-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7];

impl Layout {
    /// GGUF's Q8_0.
    pub const Q8_0: Self = Self { codes: Codes::Byte, scales: Scales::F16 };
    /// GGUF's Q4_0.
    pub const Q4_0: Self = Self { codes: Codes::Table(Q4_LEVELS), scales: Scales::F16 };
    /// GGUF's IQ4_NL.
    pub const IQ4_NL: Self = Self { codes: Codes::Table(IQ4_LEVELS), scales: Scales::F16 };
    /// GGUF's MXFP4; products are to be halved.
    pub const MXFP4: Self = Self { codes: Codes::Table(E2M1_LEVELS), scales: Scales::Bf16 };
    /// GGUF's IQ4_XS.
    pub const IQ4_XS: Self = Self { codes: Codes::Table(IQ4_LEVELS), scales: Scales::Byte };
    /// GGUF's Q4_K.
    pub const Q4_K: Self = Self { codes: Codes::Nibble, scales: Scales::Min };
    /// GGUF's Q5_K.
    pub const Q5_K: Self = Self { codes: Codes::Five, scales: Scales::Min };
    /// GGUF's Q6_K.
    pub const Q6_K: Self = Self { codes: Codes::Six, scales: Scales::Halves };

    /// Bytes of codes, planes and scales of a unit, and of a group of two units.
    const fn parts(self) -> (usize, usize, usize, usize) {
        let (codes, planes) = match self.codes {
            Codes::Byte => (2048, 0),
            Codes::Nibble | Codes::Table(_) => (1024, 0),
            Codes::Five => (1024, 256),
            Codes::Six => (1024, 512),
        };
        let (scales, group) = match self.scales {
            Scales::F16 | Scales::Bf16 => (128, 0),
            Scales::Min => (128, 64),
            Scales::Byte => (64, 32),
            Scales::Halves => (128, 32),
        };
        (codes, planes, scales, group)
    }

    /// Where planes, scales and groups of a tile of `units` units begin, and its bytes.
    const fn offsets(self, units: usize) -> [usize; 4] {
        let (codes, planes, scales, group) = self.parts();
        let scales_at = units * (codes + planes);
        let groups_at = scales_at + units * scales;
        [units * codes, scales_at, groups_at, (groups_at + units.div_ceil(2) * group).next_multiple_of(128)]
    }

    /// Bytes of a tile of rows of `cols`.
    pub const fn tile_bytes(self, cols: usize) -> usize {
        self.offsets(cols / UNIT)[3]
    }

    /// Bytes of a matrix.
    pub const fn matrix_bytes(self, rows: usize, cols: usize) -> usize {
        rows.div_ceil(TILE_ROWS) * self.tile_bytes(cols)
    }
}

/// One block of a row of weights: codes as stored (a signed byte's bits; an unsigned nibble or five bits; six bits as a signed byte),
/// and scales, of which a layout stores those that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// In the order of the inputs.
    pub codes: [u8; BLOCK],
    /// Bits of the f16 or bf16 scale of the block or of its group of 256.
    pub d: u16,
    /// Bits of the f16 minimum of its group.
    pub dmin: u16,
    /// Factors of the block: of scale and minimum, or of each half.
    pub s: [i8; 2],
}

/// Packs the matrix whose blocks `block(row, index)` gives, into zeroed memory of [`Layout::matrix_bytes`].
///
/// # Panics
/// If `cols` is no multiple of [`UNIT`], or `out` has another size.
pub fn pack(layout: Layout, rows: usize, cols: usize, block: impl Fn(usize, usize) -> Block, out: &mut [u8]) {
    assert!(cols.is_multiple_of(UNIT), "{cols} inputs are not whole units of {UNIT}");
    assert_eq!(out.len(), layout.matrix_bytes(rows, cols), "bytes of {rows} rows of {cols}");
    for (t, tile) in out.chunks_exact_mut(layout.tile_bytes(cols)).enumerate() {
        for r in 0..TILE_ROWS.min(rows - t * TILE_ROWS) {
            for b in 0..cols / BLOCK {
                put_block(layout, cols / UNIT, r, b, &block(t * TILE_ROWS + r, b), tile);
            }
        }
    }
}

fn put_block(layout: Layout, units: usize, r: usize, b: usize, block: &Block, tile: &mut [u8]) {
    let (g, high, unit, at) = (r % 8, r / 8, b / UNIT_BLOCKS, b % UNIT_BLOCKS);
    let [planes_at, scales_at, groups_at, _] = layout.offsets(units);
    let (codes_bytes, plane_bytes, scale_bytes, group_bytes) = layout.parts();
    for t in 0..4 {
        let lane = 4 * g + t;
        let quads = [t, t + 4].map(|quad| u32::from_le_bytes([0, 1, 2, 3].map(|i| block.codes[4 * quad + i])));
        let codes = &mut tile[unit * codes_bytes..];
        match layout.codes {
            Codes::Byte => (0..2).for_each(|q| or_word(codes, at * 128 + lane * 4 + 2 * q + high, quads[q])),
            Codes::Table(_) => or_word(codes, at / 2 * 128 + lane * 4 + at % 2 * 2 + high, in_order(quads)),
            _ => or_word(codes, at / 2 * 128 + lane * 4 + at % 2 * 2 + high, nibbles(quads)),
        }
        let planes = &mut tile[planes_at + unit * plane_bytes..];
        for (q, quad) in quads.into_iter().enumerate() {
            let i = 2 * q + high;
            match layout.codes {
                Codes::Five => or_word(planes, lane * 2 + at / 2, (quad >> 4 & 0x0101_0101) << (i + at % 2 * 4)),
                Codes::Six => or_word(planes, lane * 4 + at, (quad >> 4 & 0x0303_0303) << (2 * i)),
                _ => {}
            }
        }
    }
    let group = &mut tile[groups_at + unit / 2 * group_bytes..];
    match layout.scales {
        Scales::Min => or_word(group, 2 * g + high, u32::from(block.d) | u32::from(block.dmin) << 16),
        Scales::Byte | Scales::Halves => or_word(group, g, u32::from(block.d) << (16 * high)),
        Scales::F16 | Scales::Bf16 => {}
    }
    let scales = &mut tile[scales_at + unit * scale_bytes..];
    let s = block.s.map(|s| u32::from(s as u8));
    match layout.scales {
        Scales::F16 | Scales::Bf16 => or_word(scales, 4 * g + at, u32::from(block.d) << (16 * high)),
        Scales::Min | Scales::Halves => or_word(scales, 4 * g + at, (s[0] | s[1] << 8) << (16 * high)),
        Scales::Byte => or_word(scales, 2 * g + at / 2, s[0] << (16 * (at % 2) + 8 * high)),
    }
}

/// Low nibbles are the first quad's.
fn nibbles(quads: [u32; 2]) -> u32 {
    quads[0] & 0x0f0f_0f0f | (quads[1] & 0x0f0f_0f0f) << 4
}

/// Eight nibbles one after another, as a byte permutation selects.
fn in_order(quads: [u32; 2]) -> u32 {
    let codes = quads.into_iter().flat_map(u32::to_le_bytes);
    codes.enumerate().fold(0, |word, (i, code)| word | u32::from(code & 15) << (4 * i))
}

fn or_word(bytes: &mut [u8], index: usize, value: u32) {
    for (byte, v) in bytes[4 * index..4 * index + 4].iter_mut().zip(value.to_le_bytes()) {
        *byte |= v;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::product::sample;

    /// What a lane makes of a tile, as the kernel does it: the block's codes of row `r`, as signed numbers.
    fn codes_of(layout: Layout, tile: &[u8], units: usize, r: usize, b: usize) -> [i8; BLOCK] {
        let word = |at: usize| u32::from_le_bytes(*tile[4 * at..].first_chunk().unwrap());
        let (g, high, unit, at) = (r % 8, r / 8, b / 4, b % 4);
        let [planes_at, ..] = layout.offsets(units);
        let (codes_bytes, plane_bytes, ..) = layout.parts();
        let mut codes = [0; BLOCK];
        for (t, half) in (0..4).flat_map(|t| [(t, 0), (t, 1)]) {
            let (lane, codes_at) = (4 * g + t, unit * codes_bytes / 4);
            let two = || word(codes_at + at / 2 * 128 + lane * 4 + at % 2 * 2 + high);
            let plane = |i: usize| word((planes_at + unit * plane_bytes) / 4 + i);
            let bytes = match layout.codes {
                Codes::Byte => word(codes_at + at * 128 + lane * 4 + 2 * half + high).to_le_bytes(),
                Codes::Table(levels) => [0, 1, 2, 3].map(|i| levels[(two() >> (16 * half + 4 * i) & 15) as usize] as u8),
                Codes::Nibble => (two() >> (4 * half) & 0x0f0f_0f0f).to_le_bytes(),
                Codes::Five => {
                    let bits = plane(lane * 2 + at / 2) >> (at % 2 * 4 + 2 * half + high) & 0x0101_0101;
                    (two() >> (4 * half) & 0x0f0f_0f0f | bits << 4).to_le_bytes()
                }
                Codes::Six => {
                    let bits = plane(lane * 4 + at) >> (2 * (2 * half + high)) & 0x0303_0303;
                    (two() >> (4 * half) & 0x0f0f_0f0f | bits << 4).to_le_bytes().map(|c| ((c << 2) as i8 >> 2) as u8)
                }
            };
            codes[4 * (t + 4 * half)..][..4].copy_from_slice(&bytes.map(|c| c as i8));
        }
        codes
    }

    #[test]
    fn packed_codes_are_found_where_the_lanes_look() {
        let (rows, cols) = (24, 384);
        for layout in sample::LAYOUTS {
            let matrix = sample::Matrix::random(layout, rows, cols, 7);
            let packed = matrix.packed();
            for r in 0..rows {
                let tile = &packed[r / 16 * layout.tile_bytes(cols)..][..layout.tile_bytes(cols)];
                for b in 0..cols / BLOCK {
                    let got = codes_of(layout, tile, cols / UNIT, r % 16, b);
                    assert_eq!(got.map(i32::from), matrix.levels(r, b), "{layout:?} row {r} block {b}");
                }
            }
        }
    }

    #[test]
    fn bytes_are_those_of_the_blocks_and_little_more() {
        for (layout, gguf_bits) in
            [(Layout::Q8_0, 8.5), (Layout::Q4_K, 4.5), (Layout::Q5_K, 5.5), (Layout::Q6_K, 6.5625), (Layout::IQ4_XS, 4.25)]
        {
            let bits = layout.matrix_bytes(2048, 2048) as f64 * 8.0 / (2048.0 * 2048.0);
            assert!((0.0..=0.2).contains(&(bits - gguf_bits)), "{layout:?}: {bits} bits for {gguf_bits}");
        }
    }
}

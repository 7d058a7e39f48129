//! How a quantised matrix lies in device memory. `csrc/weights/layout.cuh` reads what is packed here.
//!
//! A tile is 16 output rows by all inputs, a unit 128 inputs of it, a block 32. Lane `(g, t) = (lane / 4, lane % 4)` of
//! a warp multiplies rows `g` and `g + 8`, and of each block the quads (4 inputs, one word) `t` and `t + 4`. All that a
//! lane needs of a unit lies together, so that a warp reads 512 neighbouring bytes at a time. A tile is, one after
//! another, padded to 64 bytes:
//!
//! - Codes, `[vector][lane][4 words]`. Bytes: a vector is a block, its words are (row g, g + 8) of quad t, then of
//!   t + 4 (8-bit floats: [`e4m3_word`]). Nibbles: a vector is two blocks, its words are (row g, g + 8) of each block,
//!   where quads t and t + 4 share a word (4-bit floats: [`e2m1_word`]). 16 bits: as bytes, four vectors of high bytes,
//!   then four of low ones. A grid: one vector, a word a block, whose bytes are the low 8 bits of the indices of
//!   (row g, g + 8) of quad t, then of t + 4.
//! - Planes, `[lane]`: what exceeds a nibble. Five bits: a word for two blocks, of signed codes with the sign. Six
//!   bits: a word a block. A grid: signs, a word for two blocks, and behind all lanes' signs bit 8 of the indices, half
//!   a word.
//! - Scales, `[g]`, of rows g and g + 8: an f16 or bf16 a block; or one or two bytes a block; or a nibble a block, a
//!   byte for both rows; or an f16 and a zero point a unit; or two f32 a unit, for rows 0 to 7 and for 8 to 15.
//! - Groups, `[g]`, for every second unit: the f16 values that 256 inputs share, where they do.
//! - Factors of the rows, 16 f32 at a multiple of 64 bytes, where rows have factors of their own.

use crate::cuda::rows::quantized::BLOCK;
use crate::cuda::runtime::compiler::source;

/// Output rows of a tile.
pub const TILE_ROWS: usize = 16;
/// Inputs of a unit.
pub const UNIT: usize = 128;
/// What a tile's bytes are a multiple of: two of the memory's sectors. 128 would cost experts of 512 inputs 1.8 % in
/// IQ3_S.
const TILE_ALIGN: usize = 64;
const UNIT_BLOCKS: usize = UNIT / BLOCK;

/// How codes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codes {
    /// One signed byte for each code.
    Byte,
    /// One unsigned nibble (4 bits) for each code.
    Nibble,
    /// One nibble for each code that selects one of these levels.
    Table([i8; 16]),
    /// Five bits for each code, unsigned.
    Five,
    /// Five bits for each code, signed.
    SignedFive,
    /// Six bits for each code, signed.
    Six,
    /// Sixteen bits, signed: `256 * high + low`, both signed bytes.
    Word,
    /// Eight bits, a float of 4 bits of exponent and 3 of mantissa (E4M3). Sums of their products are floats, the same
    /// ones wherever they are made.
    E4m3,
    /// Four bits, a float of 2 bits of exponent and 1 of mantissa (E2M1), which the device multiplies with its
    /// [`Scales::E4m3`] in f16; sums as those of [`Codes::E4m3`]. Bits are 2^-14 of the number there.
    E2m1,
    /// An unsigned nibble for each code, less the zero point of [`Scales::Zero`].
    Zeroed,
    /// Four at a time: an index of nine bits into the magnitudes of [`iq3_s_grid`], and a sign each.
    Grid,
}

/// How scales are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scales {
    /// One f16 for each block.
    F16,
    /// bf16 a block: powers of two beyond f16's range.
    Bf16,
    /// f16 scale and minimum for 256 inputs, a factor for each in a block: `d * s[0] * code - dmin * s[1]`.
    Min,
    /// f16 for 256 inputs, a factor a block.
    Byte,
    /// f16 for 256 inputs, a factor a block that is `1 + 2 * n`, stored as the nibble `n`.
    Nibble,
    /// f16 for 256 inputs, a factor for each half block.
    Halves,
    /// An 8-bit float (E4M3) for each half block.
    E4m3,
    /// f32 for 128 inputs of eight rows.
    Eights,
    /// f16 and a zero point, below 256, for 128 inputs.
    Zero,
}

/// Storage of a quantised matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// How codes are stored.
    pub codes: Codes,
    /// How scales are stored.
    pub scales: Scales,
    /// Whether every row has a factor (f32) of its own, which finished sums are multiplied with.
    pub row_factors: bool,
}

/// Levels of IQ4_NL and IQ4_XS.
const IQ4_LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// What finished sums of products with [`Codes::E2m1`] are to be multiplied with.
pub const E2M1_FACTOR: f32 = (1 << 14) as f32;
/// Twice the values of E2M1, so that they are integers.
pub const E2M1_LEVELS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
const Q4_LEVELS: [i8; 16] = [-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7];

impl Layout {
    /// GGUF's Q8_0: bytes, with an f16 scale for 32 of them.
    pub const Q8_0: Self = Self::of(Codes::Byte, Scales::F16);
    /// GGUF's Q4_0: nibbles that stand for -8 to 7, with an f16 scale for 32 of them.
    pub const Q4_0: Self = Self::of(Codes::Table(Q4_LEVELS), Scales::F16);
    /// GGUF's Q5_0: signed codes of five bits, with an f16 scale for 32 of them.
    pub const Q5_0: Self = Self::of(Codes::SignedFive, Scales::F16);
    /// GGUF's IQ4_NL: nibbles that select unevenly spaced levels, with an f16 scale for 32 of them.
    pub const IQ4_NL: Self = Self::of(Codes::Table(IQ4_LEVELS), Scales::F16);
    /// GGUF's MXFP4. Levels are doubled, so scales are stored halved.
    pub const MXFP4: Self = Self::of(Codes::Table(E2M1_LEVELS), Scales::Bf16);
    /// GGUF's IQ4_XS: the levels of IQ4_NL, with an f16 scale for 256 codes and a factor for each 32.
    pub const IQ4_XS: Self = Self::of(Codes::Table(IQ4_LEVELS), Scales::Byte);
    /// GGUF's Q4_K: nibbles, with an f16 scale and minimum for 256 of them and factors of both for each 32.
    pub const Q4_K: Self = Self::of(Codes::Nibble, Scales::Min);
    /// GGUF's Q5_K: codes of five bits, with an f16 scale and minimum for 256 of them and factors of both for each 32.
    pub const Q5_K: Self = Self::of(Codes::Five, Scales::Min);
    /// GGUF's Q6_K: codes of six bits, with an f16 scale for 256 of them and a factor for each 16.
    pub const Q6_K: Self = Self::of(Codes::Six, Scales::Halves);
    /// Sixteen bits with a scale for 32: for matrices of f32, f16 and bf16, and encodings without a layout of their
    /// own. [`Block::w16`] makes a block of it.
    pub const W16: Self = Self::of(Codes::Word, Scales::Bf16);
    /// 4-bit floats with an 8-bit scale for 16 of them (NVFP4), and a factor a row, of which [`E2M1_FACTOR`] is a part.
    pub const NVFP4: Self = Self { codes: Codes::E2m1, scales: Scales::E4m3, row_factors: true };
    /// 8-bit floats with a scale for 128 rows by 128 columns.
    pub const FP8_BLOCKS: Self = Self::of(Codes::E4m3, Scales::Eights);
    /// 8-bit floats with a factor a row.
    pub const FP8_ROWS: Self = Self { row_factors: true, ..Self::FP8_BLOCKS };
    /// 4-bit integers with a scale and a zero point for 128 of them (AWQ, GPTQ).
    pub const U4_G128: Self = Self::of(Codes::Zeroed, Scales::Zero);
    /// GGUF's IQ3_S: groups of four magnitudes from a grid, with an f16 scale for 256 weights and a factor for each 32.
    pub const IQ3_S: Self = Self::of(Codes::Grid, Scales::Nibble);

    /// Bytes of codes, planes and scales of a unit, and of a group of two units.
    pub const fn parts(self) -> (usize, usize, usize, usize) {
        let (codes, planes) = match self.codes {
            Codes::Byte | Codes::E4m3 => (2048, 0),
            Codes::Nibble | Codes::Table(_) | Codes::E2m1 | Codes::Zeroed => (1024, 0),
            Codes::Five | Codes::SignedFive => (1024, 256),
            Codes::Six => (1024, 512),
            Codes::Word => (4096, 0),
            Codes::Grid => (512, 320),
        };
        let (scales, group) = match self.scales {
            Scales::F16 | Scales::Bf16 => (128, 0),
            Scales::Min => (128, 64),
            Scales::Byte => (64, 32),
            Scales::Nibble => (32, 32),
            Scales::Halves => (128, 32),
            Scales::E4m3 => (128, 0),
            Scales::Eights => (16, 0),
            Scales::Zero => (64, 0),
        };
        (codes, planes, scales, group)
    }

    /// Bytes of all that a product needs of a unit of one tile, among it the group that two units share.
    pub const fn unit_bytes(self) -> usize {
        let (codes, planes, scales, group) = self.parts();
        codes + planes + scales + group
    }

    /// Where planes, scales, groups and factors of a tile of `units` units begin.
    pub const fn offsets(self, units: usize) -> [usize; 4] {
        let (codes, planes, scales, group) = self.parts();
        let scales_at = units * (codes + planes);
        let groups_at = scales_at + units * scales;
        [units * codes, scales_at, groups_at, (groups_at + units.div_ceil(2) * group).next_multiple_of(TILE_ALIGN)]
    }

    const fn of(codes: Codes, scales: Scales) -> Self {
        Self { codes, scales, row_factors: false }
    }

    /// This layout with a factor for every row.
    pub const fn with_row_factors(self) -> Self {
        Self { row_factors: true, ..self }
    }

    /// Bytes of a tile of rows of `cols`.
    pub const fn tile_bytes(self, cols: usize) -> usize {
        self.offsets(cols / UNIT)[3] + if self.row_factors { TILE_ROWS * size_of::<f32>() } else { 0 }
    }

    /// Bytes of a matrix.
    pub const fn matrix_bytes(self, rows: usize, cols: usize) -> usize {
        rows.div_ceil(TILE_ROWS) * self.tile_bytes(cols)
    }
}

/// One block of a row of weights: codes as stored (a signed byte's bits; an unsigned nibble or five bits; six bits, and
/// five signed ones, as a signed byte), and scales, of which a layout stores those that it has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Block {
    /// In the order of the inputs; of 16 bits the high bytes.
    pub codes: [u8; BLOCK],
    /// Of 16 bits the low bytes, signed.
    pub low: [u8; BLOCK],
    /// Of a grid the index of each quad, below 512.
    pub grid: [u16; 8],
    /// Of a grid: bit `i` says that input `i` is negative.
    pub signs: u32,
    /// Bits of the f16 or bf16 scale of the block or of its group of 256.
    pub d: u16,
    /// Bits of the f16 minimum of its group.
    pub dmin: u16,
    /// Factors of the block: of scale and minimum, or of each half; bits of 8-bit floats where they are such. The first
    /// is the zero point of a group that has one.
    pub s: [i8; 2],
    /// The scale of [`Scales::Eights`].
    pub scale: f32,
}

impl Block {
    /// The first factor as [`Scales::Nibble`] stores it.
    pub const fn nibble(&self) -> u8 {
        debug_assert!(self.s[0] > 0 && self.s[0] < 32 && self.s[0] % 2 == 1, "odd factors below 32 have a nibble");
        self.s[0] as u8 >> 1 & 15
    }

    /// These weights in [`Layout::W16`], rounded to the nearest of 65,279 steps.
    ///
    /// The scale is a bf16 that is rounded up, so that no code exceeds its range; a block whose largest magnitude is
    /// not finite or whose scale would be is NaN, below 1e-30 it is zero.
    pub fn w16(weights: &[f32; BLOCK]) -> Self {
        // 256 * 127 + 127: the largest number whose negation has signed bytes too.
        const TOP: f32 = 32639.0;
        let top = weights.iter().fold(0.0f32, |m, w| m.max(w.abs()));
        if !weights.iter().all(|w| w.is_finite()) {
            return Self { d: 0x7fc0, codes: [1; BLOCK], ..Self::default() };
        }
        if top < 1e-30 {
            return Self::default();
        }
        // Rounded up to eight bits: below f32's largest by a factor of 2^15, so this cannot overflow.
        let d = ((top / TOP).to_bits() + 0xffff) >> 16;
        let inverse = 1.0 / f64::from(f32::from_bits(d << 16));
        // Beside this number f64 has no fractions, so that adding it rounds, to even; the lowest bits are the step's.
        // Much faster than a call where the machine's baseline has no rounding.
        const ROUND: f64 = 1.5 * (1u64 << 52) as f64;
        let steps = weights.map(|w| (f64::from(w) * inverse + ROUND).to_bits() as i32);
        let low = steps.map(|s| s as i8);
        let high: [i8; BLOCK] = std::array::from_fn(|i| ((steps[i] - i32::from(low[i])) >> 8) as i8);
        Self { codes: high.map(|h| h as u8), low: low.map(|l| l as u8), d: d as u16, ..Self::default() }
    }
}

/// The magnitudes of IQ3_S by index: the device's own table, read from its source.
pub fn iq3_s_grid() -> Vec<[u8; 4]> {
    let (_, table) = source!("weights/iq3_s_grid.cuh").split_once("= {").expect("the header is a table");
    let words =
        table.split("0x").skip(1).map(|word| u32::from_str_radix(&word[..8], 16).expect("words of eight digits"));
    words.map(u32::to_le_bytes).collect()
}

/// Packs the matrix whose blocks `block(row, index)` gives, into zeroed memory of [`Layout::matrix_bytes`].
///
/// # Panics
/// If `cols` is no multiple of [`UNIT`], or `out` has another size.
///
/// Factors of rows become `factor(row)`, where the layout has them.
pub fn pack(
    layout: Layout,
    (rows, cols): (usize, usize),
    block: impl Fn(usize, usize) -> Block,
    factor: impl Fn(usize) -> f32,
    out: &mut [u8],
) {
    assert!(cols.is_multiple_of(UNIT), "{cols} inputs are not whole units of {UNIT}");
    assert_eq!(out.len(), layout.matrix_bytes(rows, cols), "bytes of {rows} rows of {cols}");
    for (t, tile) in out.chunks_exact_mut(layout.tile_bytes(cols)).enumerate() {
        for r in 0..TILE_ROWS.min(rows - t * TILE_ROWS) {
            for b in 0..cols / BLOCK {
                put_block(layout, cols / UNIT, r, b, &block(t * TILE_ROWS + r, b), tile);
            }
            put_factor(layout, cols / UNIT, r, factor(t * TILE_ROWS + r), tile);
        }
    }
}

/// Puts the factor of row `r` of a tile of `units` units, where the layout has them.
pub fn put_factor(layout: Layout, units: usize, r: usize, factor: f32, tile: &mut [u8]) {
    if layout.row_factors {
        let at = layout.offsets(units)[3] + r * size_of::<f32>();
        tile[at..at + size_of::<f32>()].copy_from_slice(&factor.to_le_bytes());
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
            Codes::E4m3 => (0..2).for_each(|q| or_word(codes, at * 128 + lane * 4 + 2 * q + high, e4m3_word(quads[q]))),
            Codes::Word => {
                let low = [t, t + 4].map(|quad| u32::from_le_bytes([0, 1, 2, 3].map(|i| block.low[4 * quad + i])));
                for q in 0..2 {
                    or_word(codes, at * 128 + lane * 4 + 2 * q + high, quads[q]);
                    or_word(codes, (4 + at) * 128 + lane * 4 + 2 * q + high, low[q]);
                }
            }
            Codes::Grid => {
                let low = |q: usize| u32::from(block.grid[t + 4 * q] & 255) << (8 * (2 * q + high));
                or_word(codes, lane * 4 + at, low(0) | low(1));
            }
            Codes::Table(_) => or_word(codes, at / 2 * 128 + lane * 4 + at % 2 * 2 + high, in_order(quads)),
            Codes::E2m1 => or_word(codes, at / 2 * 128 + lane * 4 + at % 2 * 2 + high, e2m1_word(quads)),
            _ => or_word(codes, at / 2 * 128 + lane * 4 + at % 2 * 2 + high, nibbles(quads)),
        }
        let planes = &mut tile[planes_at + unit * plane_bytes..];
        for (q, quad) in quads.into_iter().enumerate() {
            let i = 2 * q + high;
            match layout.codes {
                Codes::Five | Codes::SignedFive => {
                    or_word(planes, lane * 2 + at / 2, (quad >> 4 & 0x0101_0101) << (i + at % 2 * 4))
                }
                Codes::Six => or_word(planes, lane * 4 + at, (quad >> 4 & 0x0303_0303) << (2 * i)),
                Codes::Grid => {
                    let signs = block.signs >> (4 * (t + 4 * q)) & 15;
                    // Bit i to the lowest of byte i.
                    let spread = (signs * 0x0020_4081) & 0x0101_0101;
                    or_word(planes, lane * 2 + at / 2, spread << (i + at % 2 * 4));
                    let bit = u32::from(block.grid[t + 4 * q] >> 8) << (4 * at + i);
                    or_word(planes, 64 + lane / 2, bit << (16 * (lane % 2)));
                }
                _ => {}
            }
        }
    }
    let group = &mut tile[groups_at + unit / 2 * group_bytes..];
    match layout.scales {
        Scales::Min => or_word(group, 2 * g + high, u32::from(block.d) | u32::from(block.dmin) << 16),
        Scales::Byte | Scales::Nibble | Scales::Halves => or_word(group, g, u32::from(block.d) << (16 * high)),
        Scales::F16 | Scales::Bf16 | Scales::E4m3 | Scales::Eights | Scales::Zero => {}
    }
    let scales = &mut tile[scales_at + unit * scale_bytes..];
    let s = block.s.map(|s| u32::from(s as u8));
    match layout.scales {
        Scales::F16 | Scales::Bf16 => or_word(scales, 4 * g + at, u32::from(block.d) << (16 * high)),
        Scales::Min | Scales::Halves | Scales::E4m3 => or_word(scales, 4 * g + at, (s[0] | s[1] << 8) << (16 * high)),
        Scales::Byte => or_word(scales, 2 * g + at / 2, s[0] << (16 * (at % 2) + 8 * high)),
        Scales::Nibble => or_word(scales, g, u32::from(block.nibble()) << (8 * at + 4 * high)),
        // All rows and blocks that share it put what they have.
        Scales::Eights => or_word(scales, high, block.scale.to_bits()),
        Scales::Zero => or_word(scales, 2 * g + high, u32::from(block.d) | s[0] << 16),
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

/// A quad of 8-bit floats with its two middle ones in each other's places, and back.
#[inline(always)]
pub const fn e4m3_word(quad: u32) -> u32 {
    let [a, b, c, d] = quad.to_le_bytes();
    u32::from_le_bytes([a, c, b, d])
}

/// Two quads of 4-bit floats, a code a byte, in the bytes of a word: the second code of each first, then the first, the
/// fourth and the third. Of the first quad the sign is bit 7 and the rest bits 1 to 3, of the second bit 0 and 4 to 6.
#[inline(always)]
pub const fn e2m1_word(quads: [u32; 2]) -> u32 {
    let [a, b] = [swapped(quads[0]), swapped(quads[1])];
    (a & 0x0808_0808) << 4 | (a & 0x0707_0707) << 1 | (b & 0x0707_0707) << 4 | (b & 0x0808_0808) >> 3
}

/// The quads of an [`e2m1_word`].
pub const fn e2m1_quads(word: u32) -> [u32; 2] {
    let (a, b) =
        (word >> 4 & 0x0808_0808 | word >> 1 & 0x0707_0707, word >> 4 & 0x0707_0707 | (word & 0x0101_0101) << 3);
    [swapped(a), swapped(b)]
}

/// Neighbouring bytes in each other's places.
const fn swapped(word: u32) -> u32 {
    word >> 8 & 0x00ff_00ff | (word & 0x00ff_00ff) << 8
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
    fn codes_of(layout: Layout, tile: &[u8], units: usize, r: usize, b: usize) -> [i32; BLOCK] {
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
                Codes::E4m3 => e4m3_word(word(codes_at + at * 128 + lane * 4 + 2 * half + high)).to_le_bytes(),
                Codes::Table(levels) => {
                    [0, 1, 2, 3].map(|i| levels[(two() >> (16 * half + 4 * i) & 15) as usize] as u8)
                }
                Codes::E2m1 => e2m1_quads(two())[half].to_le_bytes().map(|c| E2M1_LEVELS[usize::from(c)] as u8),
                Codes::Nibble | Codes::Zeroed => (two() >> (4 * half) & 0x0f0f_0f0f).to_le_bytes(),
                Codes::Five => {
                    let bits = plane(lane * 2 + at / 2) >> (at % 2 * 4 + 2 * half + high) & 0x0101_0101;
                    (two() >> (4 * half) & 0x0f0f_0f0f | bits << 4).to_le_bytes()
                }
                Codes::SignedFive => {
                    let bits = plane(lane * 2 + at / 2) >> (at % 2 * 4 + 2 * half + high) & 0x0101_0101;
                    (two() >> (4 * half) & 0x0f0f_0f0f | (bits * 0xf0)).to_le_bytes()
                }
                Codes::Six => {
                    let bits = plane(lane * 4 + at) >> (2 * (2 * half + high)) & 0x0303_0303;
                    (two() >> (4 * half) & 0x0f0f_0f0f | bits << 4).to_le_bytes().map(|c| ((c << 2) as i8 >> 2) as u8)
                }
                Codes::Word => word(codes_at + at * 128 + lane * 4 + 2 * half + high).to_le_bytes(),
                Codes::Grid => {
                    let i = 2 * half + high;
                    let ninth = plane(64 + lane / 2) >> (16 * (lane % 2) + 4 * at + i) & 1;
                    let index = word(codes_at + lane * 4 + at) >> (8 * i) & 255 | ninth << 8;
                    let minus = (plane(lane * 2 + at / 2) >> (at % 2 * 4 + i) & 0x0101_0101).to_le_bytes();
                    let magnitudes = iq3_s_grid()[index as usize];
                    std::array::from_fn(|i| if minus[i] == 1 { magnitudes[i].wrapping_neg() } else { magnitudes[i] })
                }
            };
            let low = |i: usize| {
                let low = word(codes_at + (4 + at) * 128 + lane * 4 + 2 * half + high).to_le_bytes();
                i32::from(low[i] as i8)
            };
            for (i, byte) in bytes.into_iter().enumerate() {
                let value = i32::from(byte as i8);
                codes[4 * (t + 4 * half) + i] = if layout.codes == Codes::Word { 256 * value + low(i) } else { value };
            }
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
                    assert_eq!(got, matrix.levels(r, b), "{layout:?} row {r} block {b}");
                }
            }
        }
    }

    #[test]
    fn a_nibble_is_found_in_the_byte_that_both_rows_share_and_stands_for_its_odd_factor() {
        let (rows, cols, layout) = (16, 384, Layout::IQ3_S);
        let factor = |r: usize, b: usize| 1 + 2 * ((5 * r + 3 * b) % 16) as i8;
        let mut packed = vec![0; layout.matrix_bytes(rows, cols)];
        pack(layout, (rows, cols), |r, b| Block { s: [factor(r, b), 0], ..Block::default() }, |_| 1.0, &mut packed);
        let [_, scales_at, groups_at, _] = layout.offsets(cols / UNIT);
        assert_eq!(groups_at - scales_at, cols / UNIT * 32);
        for (r, b) in (0..rows).flat_map(|r| (0..cols / BLOCK).map(move |b| (r, b))) {
            let word = u32::from_le_bytes(*packed[scales_at + b / 4 * 32 + r % 8 * 4..].first_chunk().unwrap());
            assert_eq!((word >> (b % 4 * 8 + r / 8 * 4) & 15) * 2 + 1, factor(r, b) as u32, "row {r} block {b}");
        }
    }

    #[test]
    fn the_released_shape_s_experts_take_the_file_s_bits_of_iq3_s() {
        for (rows, cols) in [(1024, 2048), (2048, 512)] {
            assert_eq!(Layout::IQ3_S.matrix_bytes(rows, cols), rows * cols / 256 * 110, "{rows} rows of {cols}");
        }
    }

    #[test]
    fn bytes_are_those_of_the_blocks_and_little_more() {
        for (layout, gguf_bits) in [
            (Layout::Q8_0, 8.5),
            (Layout::Q5_0, 5.5),
            (Layout::Q4_K, 4.5),
            (Layout::Q5_K, 5.5),
            (Layout::Q6_K, 6.5625),
            (Layout::IQ4_XS, 4.25),
            (Layout::IQ3_S, 3.4375),
            (Layout::NVFP4, 4.5),
            (Layout::FP8_BLOCKS, 8.0),
            (Layout::FP8_ROWS, 8.0),
            (Layout::U4_G128, 4.15625),
        ] {
            let bits = layout.matrix_bytes(2048, 2048) as f64 * 8.0 / (2048.0 * 2048.0);
            assert!((0.0..=0.2).contains(&(bits - gguf_bits)), "{layout:?}: {bits} bits for {gguf_bits}");
        }
    }

    #[test]
    fn sixteen_bits_hold_weights_to_a_part_in_60000_of_the_block_s_largest() {
        let mut random = sample::Random(3);
        for scale in [1e-20f32, 0.02, 1.0, 3e30] {
            let weights: [f32; BLOCK] = std::array::from_fn(|_| random.signed() * scale);
            let block = Block::w16(&weights);
            let d = f64::from(f32::from_bits(u32::from(block.d) << 16));
            let top = weights.iter().fold(0.0f32, |m, w| m.max(w.abs()));
            for ((high, low), w) in block.codes.into_iter().zip(block.low).zip(weights) {
                let got = d * f64::from(256 * i32::from(high as i8) + i32::from(low as i8));
                assert!((got - f64::from(w)).abs() <= f64::from(top) / 60000.0, "{got} for {w}");
            }
        }
        assert_eq!(Block::w16(&[0.0; BLOCK]), Block::default());
        assert_eq!(Block::w16(&[f32::INFINITY; BLOCK]).d, 0x7fc0);
    }

    #[test]
    fn the_grid_has_512_entries_of_odd_magnitudes() {
        let grid = iq3_s_grid();
        assert_eq!(grid.len(), 512);
        assert!(grid.iter().flatten().all(|m| m % 2 == 1 && *m < 16));
    }
}

//! Random matrices with their definition, for tests on either machine.

use super::layout::{Block, Codes, E2M1_FACTOR, E2M1_LEVELS, Layout, Scales, iq3_s_grid, pack};
use crate::cuda::rows::quantized::{BLOCK, QuantizedRows};

/// Every layout that a kernel reads.
pub const LAYOUTS: [Layout; 16] = [
    Layout::Q8_0,
    Layout::Q5_0,
    Layout::Q4_0,
    Layout::IQ4_NL,
    Layout::MXFP4,
    Layout::IQ4_XS,
    Layout::Q4_K,
    Layout::Q5_K,
    Layout::Q6_K,
    Layout::W16,
    Layout::IQ3_S,
    Layout::NVFP4,
    Layout::FP8_BLOCKS,
    Layout::FP8_ROWS,
    Layout::U4_G128,
    Layout::U4_G128.with_row_factors(),
];

/// A generator that needs no state from elsewhere (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Draws the next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number drawn evenly from -1..1.
    pub fn signed(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Draws `n` numbers as [`Random::signed`] does.
    pub fn vector(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.signed()).collect()
    }
}

/// A matrix as blocks.
#[derive(Clone, Debug)]
pub struct Matrix {
    layout: Layout,
    rows: usize,
    cols: usize,
    blocks: Vec<Block>,
    factors: Vec<f32>,
    grid: Vec<[u8; 4]>,
}

impl Matrix {
    /// Every code and factor that the layout has may come; scales lie in a range of four powers of two.
    pub fn random(layout: Layout, rows: usize, cols: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut blocks: Vec<Block> = (0..rows * cols / BLOCK).map(|_| random_block(layout, &mut random)).collect();
        if !matches!(layout.scales, Scales::F16 | Scales::Bf16) {
            let each = if layout.scales == Scales::Zero { 4 } else { 8 };
            for row in blocks.chunks_mut(cols / BLOCK) {
                row.chunks_mut(each).for_each(|group| {
                    let first = group[0];
                    group.iter_mut().for_each(|b| (b.d, b.dmin) = (first.d, first.dmin));
                    if layout.scales == Scales::Zero {
                        group.iter_mut().for_each(|b| b.s = first.s);
                    }
                });
            }
        }
        if layout.scales == Scales::Eights {
            let n = cols / BLOCK;
            for i in 0..blocks.len() {
                blocks[i].scale = blocks[i / n / 8 * 8 * n + i % n / 4 * 4].scale;
            }
        }
        let whole = if layout.codes == Codes::E2m1 { E2M1_FACTOR } else { 1.0 };
        let factor = |_| whole * if layout.row_factors { 1.0 + 0.5 * random.signed() } else { 1.0 };
        let factors = (0..rows).map(factor).collect();
        Self { layout, rows, cols, blocks, factors, grid: iq3_s_grid() }
    }

    /// Lowers scales and minima to 2^-10 of what they are, as trained matrices have them: none is 256 or more.
    pub fn lowered(mut self) -> Self {
        let exponents = if self.layout.scales == Scales::Bf16 { 10 << 7 } else { 10 << 10 };
        if self.layout.row_factors {
            self.factors.iter_mut().for_each(|factor| *factor /= 1024.0);
            return self;
        }
        for block in &mut self.blocks {
            block.scale /= 1024.0;
            (block.d, block.dmin) = (block.d.saturating_sub(exponents), block.dmin.saturating_sub(exponents));
        }
        self
    }

    fn block(&self, row: usize, b: usize) -> &Block {
        &self.blocks[row * (self.cols / BLOCK) + b]
    }

    /// As the device wants it.
    pub fn packed(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.layout.matrix_bytes(self.rows, self.cols)];
        pack(self.layout, (self.rows, self.cols), |r, b| *self.block(r, b), |r| self.factors[r], &mut bytes);
        bytes
    }

    /// The integers that a block's codes stand for; of 8-bit floats their bits, signed; of 4-bit ones twice the value.
    pub fn levels(&self, row: usize, b: usize) -> [i32; BLOCK] {
        let block = self.block(row, b);
        std::array::from_fn(|i| {
            let (c, low) = (block.codes[i], block.low[i]);
            match self.layout.codes {
                Codes::Byte | Codes::Six | Codes::SignedFive | Codes::E4m3 => i32::from(c as i8),
                Codes::Nibble | Codes::Five | Codes::Zeroed => i32::from(c),
                Codes::Table(levels) => i32::from(levels[usize::from(c)]),
                Codes::E2m1 => i32::from(E2M1_LEVELS[usize::from(c)]),
                Codes::Word => 256 * i32::from(c as i8) + i32::from(low as i8),
                Codes::Grid => {
                    let magnitude = i32::from(self.grid[usize::from(block.grid[i / 4])][i % 4]);
                    if block.signs >> i & 1 == 1 { -magnitude } else { magnitude }
                }
            }
        })
    }

    /// What is multiplied with a level, and what is subtracted then, for each half of a block.
    fn scale(&self, row: usize, b: usize) -> ([f64; 2], f64) {
        let block = self.block(row, b);
        let (d, s) = (f16(block.d), block.s.map(f64::from));
        match self.layout.scales {
            Scales::F16 => ([d; 2], 0.0),
            Scales::Bf16 => ([f64::from(f32::from_bits(u32::from(block.d) << 16)); 2], 0.0),
            Scales::Min => ([d * s[0]; 2], f16(block.dmin) * s[1]),
            Scales::Byte | Scales::Nibble => ([d * s[0]; 2], 0.0),
            Scales::Halves => ([d * s[0], d * s[1]], 0.0),
            Scales::E4m3 => (block.s.map(|s| e4m3(s as u8)), 0.0),
            Scales::Eights => ([f64::from(block.scale); 2], 0.0),
            Scales::Zero => ([d; 2], d * s[0]),
        }
    }

    /// The definition of the product: output `row` for row `column` of `x`, and the sum of the magnitudes that went
    /// into it.
    pub fn dot(&self, row: usize, x: &QuantizedRows, column: usize) -> (f64, f64) {
        let n = self.cols / BLOCK;
        let (mut sum, mut size) = (0.0, 0.0);
        for b in 0..n {
            let (scale, min) = self.scale(row, b);
            for (i, (level, x)) in self.levels(row, b).into_iter().zip(x.values(column * n + b)).enumerate() {
                let level = match self.layout.codes {
                    Codes::E4m3 => e4m3(level as u8),
                    Codes::E2m1 => f64::from(level) * 0.5 / f64::from(E2M1_FACTOR),
                    _ => f64::from(level),
                };
                let term = (scale[i / 16] * level - min) * f64::from(self.factors[row]) * x;
                sum += term;
                size += term.abs();
            }
        }
        (sum, size)
    }
}

fn random_block(layout: Layout, random: &mut Random) -> Block {
    let mut codes = [0; BLOCK];
    for code in &mut codes {
        let bits = random.bits() as u8;
        *code = match layout.codes {
            Codes::Byte | Codes::Word => bits,
            Codes::Grid => 0,
            // NaN is left out.
            Codes::E4m3 if bits & 0x7f == 0x7f => 0,
            Codes::E4m3 => bits,
            Codes::Nibble | Codes::Zeroed | Codes::Table(_) | Codes::E2m1 => bits & 15,
            Codes::Five => bits & 31,
            Codes::SignedFive => (((bits << 3) as i8) >> 3) as u8,
            Codes::Six => (((bits << 2) as i8) >> 2) as u8,
        };
    }
    let (x, sign) = (random.bits(), (random.bits() as u16 & 1) << 15);
    // Exponents of 2^-4 to 1, any fraction.
    let half = |x: u64| (0x2c00 + (x & 0x0fff) as u16) | sign;
    let byte = |x: u64| match layout.scales {
        Scales::Min => (x & 63) as i8,
        Scales::Nibble => 1 + 2 * (x & 15) as i8,
        // From 2^-4 to 1.
        Scales::E4m3 => (24 + x % 32) as i8,
        Scales::Zero => (x & 15) as i8,
        _ => x as i8,
    };
    let d = if layout.scales == Scales::Bf16 { 0x3d80 + ((x & 3) as u16) * 0x80 } else { half(x) };
    let low = std::array::from_fn(|_| random.bits() as u8);
    let grid = std::array::from_fn(|_| random.bits() as u16 & 511);
    Block {
        codes,
        low,
        grid,
        signs: random.bits() as u32,
        d,
        dmin: half(x >> 12),
        s: [byte(x >> 24), byte(x >> 32)],
        scale: 1.0 + 0.5 * random.signed(),
    }
}

/// Value of the bits of a finite 8-bit float (E4M3).
fn e4m3(bits: u8) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    let magnitude = if exponent == 0 { fraction * 2f64.powi(-9) } else { (8.0 + fraction) * 2f64.powi(exponent - 10) };
    if bits >> 7 == 1 { -magnitude } else { magnitude }
}

/// Value of the bits of a finite f16.
fn f16(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let magnitude =
        if exponent == 0 { fraction * 2f64.powi(-24) } else { (1024.0 + fraction) * 2f64.powi(exponent - 25) };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_read_as_their_standard_says() {
        assert_eq!([e4m3(0x38), e4m3(0xfe), e4m3(0x01), e4m3(0x08)], [1.0, -448.0, 2f64.powi(-9), 2f64.powi(-6)]);
        assert_eq!([f16(0x3c00), f16(0xc000), f16(0x0001), f16(0x7bff)], [1.0, -2.0, 2f64.powi(-24), 65504.0]);
    }
}

//! Where an encoded row has the codes of its values, and which values they can stand for with its scales as they are:
//! `base + step * level`, a level being a whole number or one of a table. Encodings whose codes stand for several values
//! at once have no such grid.

use super::levels::{E2M1_LEVELS, IQ4, code_in};
use super::search::{LevelSet, LevelTable, WholeNumbers};
use crate::format::BlockType;
use crate::format::blocks::decode::{E2M1, decode_row};

/// Bits of a code: in which byte of the block, from which bit on, how many.
type Bits = (usize, usize, u32);

/// Where value `e` of a block has its code, low bits first.
fn places(ty: BlockType, e: usize) -> [Bits; 2] {
    const NONE: Bits = (0, 0, 0);
    // Of 32 values: nibbles of the first half are low ones.
    let nibble = |start: usize| (start + e % 16, 4 * (e / 16), 4);
    // Of 256 values: 8 groups of 32, and how types with scales for 16 count them.
    let (g, l, n, r) = (e / 32, e % 32, e / 128, e % 128 / 32);
    match ty {
        BlockType::Q8_0 => [(2 + e, 0, 8), NONE],
        BlockType::Q4_0 | BlockType::Iq4Nl => [nibble(2), NONE],
        BlockType::Mxfp4 => [nibble(1), NONE],
        BlockType::Q5_0 => [nibble(6), (2 + e / 8, e % 8, 1)],
        BlockType::Q5_1 => [nibble(8), (4 + e / 8, e % 8, 1)],
        BlockType::Iq4Xs => [(8 + 16 * g + l % 16, 4 * (l / 16), 4), NONE],
        BlockType::Q4K => [(16 + 32 * (g / 2) + l, 4 * (g % 2), 4), NONE],
        BlockType::Q5K => [(48 + 32 * (g / 2) + l, 4 * (g % 2), 4), (16 + l, g, 1)],
        BlockType::Q6K => [(64 * n + 32 * (r & 1) + l, 4 * (r / 2), 4), (128 + 32 * n + l, 2 * r, 2)],
        BlockType::Q3K => [(32 + 32 * n + l, 2 * r, 2), (l, 4 * n + r, 1)],
        _ => unreachable!("{} has no codes of single values", ty.name()),
    }
}

/// Writes the code of value `e` of a block.
fn put(ty: BlockType, block: &mut [u8], e: usize, code: u8) {
    let mut rest = u32::from(code);
    for (byte, shift, bits) in places(ty, e) {
        let mask = (1u32 << bits) - 1;
        block[byte] = block[byte] & !((mask << shift) as u8) | ((rest & mask) << shift) as u8;
        rest >>= bits;
    }
}

/// The code of value `e` of a block.
fn get(ty: BlockType, block: &[u8], e: usize) -> u8 {
    let [(low, low_shift, low_bits), (high, high_shift, high_bits)] = places(ty, e);
    let part = |byte: usize, shift: usize, bits: u32| u32::from(block[byte]) >> shift & ((1 << bits) - 1);
    (part(low, low_shift, low_bits) | part(high, high_shift, high_bits) << low_bits) as u8
}

/// Writes the codes of all values of a block.
pub(super) fn put_all(ty: BlockType, codes: impl Iterator<Item = u8>, block: &mut [u8]) {
    codes.enumerate().for_each(|(e, code)| put(ty, block, e, code));
}

/// What the codes of a type are.
#[derive(Clone, Copy)]
enum Codes {
    /// Whole numbers from 0 to this.
    Unsigned(f32),
    /// Bytes with a sign, but for -128.
    Signed,
    /// Places in a table of levels, which has them in ascending order beside it.
    Table(&'static [f32; 16], &'static [f32; 16]),
}

impl Codes {
    fn of(ty: BlockType) -> Option<Self> {
        Some(match ty {
            BlockType::Q8_0 => Self::Signed,
            BlockType::Q3K => Self::Unsigned(7.0),
            BlockType::Q4_0 | BlockType::Q4K => Self::Unsigned(15.0),
            BlockType::Q5_0 | BlockType::Q5_1 | BlockType::Q5K => Self::Unsigned(31.0),
            BlockType::Q6K => Self::Unsigned(63.0),
            BlockType::Iq4Nl | BlockType::Iq4Xs => Self::Table(&IQ4, &IQ4),
            BlockType::Mxfp4 => Self::Table(&E2M1, &E2M1_LEVELS),
            _ => return None,
        })
    }

    fn nearest(self, y: f32) -> f32 {
        match self {
            Self::Unsigned(max) => WholeNumbers { min: 0.0, max }.nearest(y),
            Self::Signed => WholeNumbers { min: -127.0, max: 127.0 }.nearest(y),
            Self::Table(_, ascending) => LevelTable(ascending).nearest(y),
        }
    }

    fn level(self, code: u8) -> f32 {
        match self {
            Self::Unsigned(_) => f32::from(code),
            Self::Signed => f32::from(code as i8),
            Self::Table(table, _) => table[usize::from(code)],
        }
    }

    fn code(self, level: f32) -> u8 {
        match self {
            Self::Unsigned(_) => level as u8,
            Self::Signed => level as i8 as u8,
            Self::Table(table, _) => code_in(table, level),
        }
    }

    /// The codes of level 0, if there is one, and of level 1.
    fn probes(self) -> (Option<u8>, u8) {
        match self {
            Self::Table(table, _) => (table.iter().position(|l| *l == 0.0).map(|at| at as u8), code_in(table, 1.0)),
            _ => (Some(0), 1),
        }
    }
}

/// The values that a row's codes can stand for.
pub(crate) struct ValueGrid {
    ty: BlockType,
    codes: Codes,
    base: Vec<f32>,
    step: Vec<f32>,
}

impl ValueGrid {
    /// Of an encoded row of `cols` values; `None` where codes stand for several values at once.
    pub(crate) fn of(ty: BlockType, cols: usize, row: &[u8]) -> Option<Self> {
        let codes = Codes::of(ty)?;
        let mut probe = row.to_vec();
        let mut all = |code: u8| {
            let blocks = probe.chunks_exact_mut(ty.bytes());
            blocks.for_each(|block| put_all(ty, std::iter::repeat_n(code, ty.elements()), block));
            let mut values = vec![0.0; cols];
            decode_row(ty, &probe, &mut values);
            values
        };
        let (zero, one) = codes.probes();
        // Levels of a table have no minimum beside them.
        let base = zero.map_or_else(|| vec![0.0; cols], &mut all);
        let step = all(one).iter().zip(&base).map(|(one, base)| one - base).collect();
        Some(Self { ty, codes, base, step })
    }

    /// The level of value `i` that is nearest to `x`; `None` if all its codes stand for one value.
    pub(crate) fn nearest(&self, i: usize, x: f32) -> Option<f32> {
        let y = (x - self.base[i]) / self.step[i];
        (self.step[i] != 0.0 && y.is_finite()).then(|| self.codes.nearest(y))
    }

    /// What a level of value `i` stands for.
    pub(crate) fn value(&self, i: usize, level: f32) -> f32 {
        self.base[i] + self.step[i] * level
    }

    /// The level that a row has of value `i`.
    pub(crate) fn get(&self, row: &[u8], i: usize) -> f32 {
        let (block, e) = (i / self.ty.elements(), i % self.ty.elements());
        self.codes.level(get(self.ty, &row[block * self.ty.bytes()..][..self.ty.bytes()], e))
    }

    /// Writes a level of value `i` to the row.
    pub(crate) fn put(&self, row: &mut [u8], i: usize, level: f32) {
        let (block, e) = (i / self.ty.elements(), i % self.ty.elements());
        put(self.ty, &mut row[block * self.ty.bytes()..][..self.ty.bytes()], e, self.codes.code(level));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::blocks::quantize_row;

    #[test]
    fn values_are_what_their_levels_say_and_levels_go_in_and_out() {
        for ty in BlockType::all().filter(|ty| Codes::of(*ty).is_some()) {
            let mut values: Vec<f32> = (0..2 * ty.elements()).map(|i| (i as f32 * 0.7).sin() * 0.1).collect();
            let mut row = vec![0; 2 * ty.bytes()];
            quantize_row(ty, &values, None, &mut row);
            let grid = ValueGrid::of(ty, values.len(), &row).unwrap();
            decode_row(ty, &row, &mut values);
            for (i, value) in values.iter().enumerate() {
                let level = grid.get(&row, i);
                let largest = grid.base[i].abs() + grid.step[i].abs() * 127.0;
                assert!((grid.value(i, level) - value).abs() <= 1e-5 * largest, "{}: value {i}", ty.name());
                let before = row.clone();
                grid.put(&mut row, i, level);
                assert!(row == before || ty == BlockType::Mxfp4 && level == 0.0, "{}: {i}", ty.name());
                grid.put(&mut row, i, 1.0);
                assert_eq!(grid.get(&row, i), 1.0, "{}: {i}", ty.name());
            }
        }
    }
}

//! A matrix whose rows are the lanes of vectors, in tiles of sixteen. Numbers that bfloat16 holds exactly, as most
//! files have them, take two bytes each: what a step costs is their bytes.

use crate::lines::Lines;
use std::sync::Arc;

/// Words of a cache line, which are the lanes of a vector.
pub(crate) const LINE: usize = 16;

/// What a word of two bfloat16 numbers has of the second.
const UPPER: u32 = 0xffff_0000;

/// A matrix `[rows, columns]`, in memory `[tiles, columns to an even number, 16]`; what fills it up are zeros.
#[derive(Clone, Debug)]
pub(crate) struct LaneMatrix {
    /// Whole cache lines, so that the load of a vector never straddles two.
    memory: Arc<Lines>,
    /// Where its words begin.
    start: usize,
    rows: usize,
    columns: usize,
    /// A word has the numbers of two columns, the first in its lower half.
    halves: bool,
}

impl LaneMatrix {
    /// The matrix of these values, row after row.
    pub(crate) fn new(values: &[f32], columns: usize) -> Self {
        let halves = values.iter().all(|value| value.to_bits() & !UPPER == 0);
        let rows = values.len() / columns;
        let mut matrix = Self { memory: Arc::default(), start: 0, rows, columns, halves };
        let mut memory = Lines::zeroed(matrix.words_len() * size_of::<u32>());
        let words: &mut [u32] = words_of(&mut memory);
        for (row, values) in values.chunks_exact(columns).enumerate() {
            for (column, value) in values.iter().enumerate() {
                let (word, shift) = matrix.place(row, column);
                words[word] |= value.to_bits() >> shift;
            }
        }
        matrix.memory = memory.into();
        matrix
    }

    /// Brings matrices, in this order, to memory of their own that lies together: a step reads them so.
    pub(crate) fn gather(all: &mut [&mut Self]) {
        let words = all.iter().map(|matrix| matrix.words_len()).sum::<usize>();
        let mut memory = Lines::alone(words * size_of::<u32>());
        let (mut start, into) = (0, words_of(&mut memory));
        for matrix in all.iter_mut() {
            into[start..start + matrix.words_len()].copy_from_slice(matrix.words_from(0));
            start += matrix.words_len();
        }
        let memory = Arc::new(memory);
        let mut start = 0;
        for matrix in all {
            (matrix.memory, matrix.start) = (memory.clone(), start);
            start += matrix.words_len();
        }
    }

    /// Whether a word has the numbers of two columns.
    pub(crate) fn is_halves(&self) -> bool {
        self.halves
    }

    /// Lines of a tile.
    pub(crate) fn tile_lines(&self) -> usize {
        lines_of(self.columns, self.halves)
    }

    /// The words of tiles from `tile` on, each with [`LaneMatrix::tile_lines`] lines.
    pub(crate) fn words_from(&self, tile: usize) -> &[u32] {
        let words = tile * self.tile_lines() * LINE..self.words_len();
        // SAFETY: memory of whole cache lines is aligned, and any bits are a word.
        let (_, all, _) = unsafe { self.memory.align_to::<u32>() };
        &all[self.start..][words]
    }

    fn words_len(&self) -> usize {
        self.rows.div_ceil(LINE) * self.tile_lines() * LINE
    }

    /// A number of it.
    pub(crate) fn at(&self, row: usize, column: usize) -> f32 {
        let (word, shift) = self.place(row, column);
        f32::from_bits(self.words_from(0)[word] << shift & if self.halves { UPPER } else { u32::MAX })
    }

    /// The largest magnitude in it.
    pub(crate) fn top(&self) -> f32 {
        let words = self.words_from(0).iter();
        let numbers = words.flat_map(|word| if self.halves { [word << 16, word & UPPER] } else { [*word, 0] });
        numbers.map(f32::from_bits).fold(0.0f32, |top, x| top.max(x.abs()))
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(self.words_from(0)) as u64
    }

    /// The word of a number, and the place of its upper half above the word's lower one.
    fn place(&self, row: usize, column: usize) -> (usize, u32) {
        let (within, shift) = if self.halves { (column / 2, 16 * (1 - column as u32 % 2)) } else { (column, 0) };
        ((row / LINE * self.tile_lines() + within) * LINE + row % LINE, shift)
    }
}

fn words_of(memory: &mut Lines) -> &mut [u32] {
    // SAFETY: memory of whole cache lines is aligned, and any bits are a word.
    unsafe { memory.align_to_mut::<u32>() }.1
}

/// Lines of a tile of so many columns.
fn lines_of(columns: usize, halves: bool) -> usize {
    let even = columns.next_multiple_of(2);
    if halves { even / 2 } else { even }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_found_where_it_was_put_and_takes_two_bytes_where_they_hold_it() {
        for (rows, columns) in [(1, 4), (3, 7), (16, 8), (17, 1), (40, 6)] {
            for (by, bytes) in [(0.5, 2), (0.3, 4)] {
                let values: Vec<f32> = (0..rows * columns).map(|i| (i % 200) as f32 * -by).collect();
                let matrix = LaneMatrix::new(&values, columns);
                let tiles = rows.div_ceil(LINE) * LINE * columns.next_multiple_of(2);
                assert!(values.len() == 1 || matrix.bytes() == (tiles * bytes) as u64, "{rows} x {columns}");
                for row in 0..rows {
                    assert!((0..columns).all(|column| matrix.at(row, column) == values[row * columns + column]));
                }
                assert_eq!(matrix.top(), values.iter().fold(0.0, |top: f32, x| top.max(-x)));
                let (mut first, mut second) = (matrix.clone(), LaneMatrix::new(&[1.0, 2.0], 2));
                LaneMatrix::gather(&mut [&mut second, &mut first]);
                assert_eq!((second.at(0, 1), first.words_from(0)), (2.0, matrix.words_from(0)));
            }
        }
    }
}

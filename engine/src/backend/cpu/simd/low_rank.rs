//! Products of rows with the two matrices of an adapter, `A x` and `B h`, the same bytes for any number of rows.

#![allow(
    clippy::needless_range_loop,
    reason = "an iterator is a function, which may lack its caller's instruction set"
)]

use crate::adapter::{LINE, LowRank};
use crate::backend::cpu::simd::{Kernel, LANES, Lanes, run};
use std::ops::Range;

const _: () = assert!(LINE == LANES, "a vector is a line of an adapter");

/// Sums of `A x` by the input's place among as many: one sum would wait for itself.
const SUMS: usize = 4;

/// Cache lines ahead of those that are read of A: what is read behind it follows it in memory.
const AHEAD: usize = 32;

/// `made[i] = scale_i * A x_i` for rows that have an adapter.
pub(crate) struct Reduce<'a> {
    pub(crate) part: &'a LowRank,
    /// The rows, and what their products are multiplied with.
    pub(crate) rows: &'a [(&'a [f32], f32)],
    /// `[rows, stride]`, of which the lanes of the adapter's rank are written.
    pub(crate) made: &'a mut [f32],
    pub(crate) stride: usize,
}

/// Adds `B h_i` to some columns of rows that have an adapter.
pub(crate) struct Expand<'a, 'b> {
    pub(crate) part: &'a LowRank,
    /// The columns; the first is the first of a tile.
    pub(crate) cols: Range<usize>,
    /// `[rows, stride]`, of which the adapter's rank is read.
    pub(crate) reduced: &'a [f32],
    pub(crate) stride: usize,
    /// For each row its columns.
    pub(crate) out: &'a mut [&'b mut [f32]],
}

impl Reduce<'_> {
    /// Computes it.
    ///
    /// # Panics
    /// If shapes do not fit.
    pub(crate) fn run(self) {
        let (inputs, lanes) = (self.part.inputs(), self.part.rank_lanes());
        assert!(inputs.is_multiple_of(SUMS), "{inputs} inputs are not {SUMS} sums");
        assert!(self.rows.iter().all(|(x, _)| x.len() == inputs), "rows are those of the matrix");
        assert!(
            lanes <= self.stride && self.rows.len() * self.stride <= self.made.len(),
            "there is room for all ranks"
        );
        run(self);
    }

    /// The products of `M` rows from row `at` on.
    #[inline(always)]
    unsafe fn tile<L: Lanes, const M: usize, const HALVES: bool>(&mut self, at: usize) -> usize {
        let mut x = [std::ptr::null::<f32>(); M];
        for i in 0..M {
            x[i] = self.rows[at + i].0.as_ptr();
        }
        for tile in 0..self.part.rank_lanes() / LANES {
            let mut a = self.part.a().words_from(tile).as_ptr();
            // SAFETY: the instruction set is the caller's promise; `run` has checked the lengths of rows and of what is
            // made, and a tile of A has as many columns as there are inputs.
            unsafe {
                let mut sums = [[L::splat(0.0); SUMS]; M];
                for k in (0..self.part.inputs()).step_by(SUMS) {
                    for s in (0..SUMS).step_by(2) {
                        L::prefetch(a.wrapping_add(AHEAD * LANES).cast());
                        let w = two_columns::<L, HALVES>(a);
                        a = a.wrapping_add(words_of_two(HALVES));
                        for i in 0..M {
                            sums[i][s] = L::splat(*x[i].add(k + s)).mul_add(w[0], sums[i][s]);
                            sums[i][s + 1] = L::splat(*x[i].add(k + s + 1)).mul_add(w[1], sums[i][s + 1]);
                        }
                    }
                }
                for i in 0..M {
                    let [first, second, third, fourth] = sums[i];
                    let sum = first.add(second).add(third.add(fourth)).mul(L::splat(self.rows[at + i].1));
                    sum.store(self.made.as_mut_ptr().add((at + i) * self.stride + tile * LANES));
                }
            }
        }
        M
    }

    /// The products of all rows.
    #[inline(always)]
    unsafe fn tiles<L: Lanes, const HALVES: bool>(&mut self) {
        let mut at = 0;
        while at < self.rows.len() {
            // SAFETY: so many rows are left.
            at += unsafe {
                match self.rows.len() - at {
                    4.. if L::TILE.0 == 8 => self.tile::<L, 4, HALVES>(at),
                    2.. if L::TILE.0 == 8 => self.tile::<L, 2, HALVES>(at),
                    _ => self.tile::<L, 1, HALVES>(at),
                }
            };
        }
    }
}

impl Kernel for Reduce<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn call<L: Lanes>(mut self) {
        // SAFETY: the caller's promise.
        unsafe { if self.part.a().is_halves() { self.tiles::<L, true>() } else { self.tiles::<L, false>() } }
    }
}

impl Expand<'_, '_> {
    /// Computes it.
    ///
    /// # Panics
    /// If shapes do not fit.
    pub(crate) fn run(self) {
        let (lanes, cols) = (self.part.rank_lanes(), &self.cols);
        assert!(cols.start.is_multiple_of(LANES) && cols.end <= self.part.out(), "columns {cols:?} of the matrix");
        assert!(self.out.iter().all(|row| row.len() == cols.len()), "rows have the columns");
        assert!(lanes <= self.stride && self.out.len() * self.stride <= self.reduced.len(), "all rows are reduced");
        run(self);
    }

    /// The products of `M` rows from row `at` on with `N` tiles from tile `tile` of the columns on. Ranks come in twos:
    /// where there is no second one, B and what is reduced have zeros.
    #[inline(always)]
    unsafe fn tile<L: Lanes, const M: usize, const N: usize, const HALVES: bool>(
        &mut self,
        at: usize,
        tile: usize,
    ) -> usize {
        let tile_words = self.part.b().tile_lines() * LANES;
        let b = self.part.b().words_from(self.cols.start / LANES + tile).as_ptr();
        // SAFETY: the instruction set is the caller's promise; `run` has checked rows, ranks and columns.
        unsafe {
            let h = self.reduced.as_ptr().add(at * self.stride);
            let mut sums = [[L::splat(0.0); N]; M];
            for r in (0..self.part.rank).step_by(2) {
                let mut w = [[L::splat(0.0); 2]; N];
                for j in 0..N {
                    let at = b.wrapping_add(j * tile_words + r / 2 * words_of_two(HALVES));
                    // What the next tiles read.
                    L::prefetch(at.wrapping_add(N * tile_words).cast());
                    w[j] = two_columns::<L, HALVES>(at);
                }
                for i in 0..M {
                    let (first, second) =
                        (L::splat(*h.add(i * self.stride + r)), L::splat(*h.add(i * self.stride + r + 1)));
                    for j in 0..N {
                        sums[i][j] = second.mul_add(w[j][1], first.mul_add(w[j][0], sums[i][j]));
                    }
                }
            }
            for i in 0..M {
                for j in 0..N {
                    let out = &mut self.out[at + i][(tile + j) * LANES..];
                    if out.len() >= LANES {
                        L::load(out.as_ptr()).add(sums[i][j]).store(out.as_mut_ptr());
                        continue;
                    }
                    let sums = sums[i][j].array();
                    for lane in 0..out.len() {
                        out[lane] += sums[lane];
                    }
                }
            }
        }
        N
    }

    /// The products of `M` rows from row `at` on with all tiles.
    #[inline(always)]
    unsafe fn tiles<L: Lanes, const M: usize, const HALVES: bool>(&mut self, at: usize) -> usize {
        let (mut tile, tiles) = (0, self.cols.len().div_ceil(LANES));
        while tile < tiles {
            // SAFETY: so many tiles are left.
            tile += unsafe {
                match tiles - tile {
                    4.. if L::TILE.0 > 1 => self.tile::<L, M, 4, HALVES>(at, tile),
                    _ => self.tile::<L, M, 1, HALVES>(at, tile),
                }
            };
        }
        M
    }

    /// The products of all rows.
    #[inline(always)]
    unsafe fn rows<L: Lanes, const HALVES: bool>(&mut self) {
        let mut at = 0;
        while at < self.out.len() {
            // SAFETY: so many rows are left.
            at += unsafe {
                match self.out.len() - at {
                    4.. if L::TILE.0 == 8 => self.tiles::<L, 4, HALVES>(at),
                    2.. if L::TILE.0 == 8 => self.tiles::<L, 2, HALVES>(at),
                    _ => self.tiles::<L, 1, HALVES>(at),
                }
            };
        }
    }
}

impl Kernel for Expand<'_, '_> {
    type Output = ();
    #[inline(always)]
    unsafe fn call<L: Lanes>(mut self) {
        // SAFETY: the caller's promise.
        unsafe { if self.part.b().is_halves() { self.rows::<L, true>() } else { self.rows::<L, false>() } }
    }
}

/// Words of two columns of a tile.
const fn words_of_two(halves: bool) -> usize {
    if halves { LANES } else { 2 * LANES }
}

/// Two columns of a tile.
///
/// # Safety
/// The instruction set of `L` exists, and the columns lie at `at`.
#[inline(always)]
unsafe fn two_columns<L: Lanes, const HALVES: bool>(at: *const u32) -> [L; 2] {
    // SAFETY: the caller's.
    unsafe {
        if HALVES {
            return L::load_bf16_pairs(at);
        }
        [L::load(at.cast()), L::load(at.add(LANES).cast())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::AdaptedMatrix;

    fn wave(len: usize, f: f32) -> Vec<f32> {
        (0..len).map(|i| (i as f32 * f).sin()).collect()
    }

    #[test]
    fn products_have_the_bits_of_their_definition_for_any_rows_and_columns() {
        for (rank, inputs, outputs) in [(1, 32, 8), (16, 64, 160), (17, 32, 24), (40, 64, 16), (4, 32, 100)] {
            let (a, b) = (wave(rank * inputs, 0.3), wave(outputs * rank, 0.7));
            let part = LowRank::new(AdaptedMatrix::Out, rank, 1.0, &a, &b);
            let stride = part.rank_lanes() + 16;
            for count in [1, 2, 3, 4, 7, 9] {
                let x: Vec<_> = (0..count).map(|i| wave(inputs, 0.5 + i as f32)).collect();
                let rows: Vec<_> = x.iter().enumerate().map(|(i, x)| (&x[..], 0.5 + i as f32)).collect();
                let mut made = vec![0.0; count * stride];
                Reduce { part: &part, rows: &rows, made: &mut made, stride }.run();
                for (i, (x, scale)) in rows.iter().enumerate() {
                    for r in 0..rank {
                        let sum = |s: usize| {
                            let own = (s..inputs).step_by(SUMS);
                            own.fold(0.0f32, |sum, k| x[k].mul_add(a[r * inputs + k], sum))
                        };
                        let want = ((sum(0) + sum(1)) + (sum(2) + sum(3))) * scale;
                        assert_eq!(made[i * stride + r], want, "rank {rank}, row {i} of {count}, {r}");
                    }
                }
                let cols = if outputs > 48 { 16..outputs - 16 } else { 0..outputs };
                let mut out = vec![vec![1.0f32; cols.len()]; count];
                let mut views: Vec<_> = out.iter_mut().map(|row| &mut row[..]).collect();
                Expand { part: &part, cols: cols.clone(), reduced: &made, stride, out: &mut views }.run();
                for (i, row) in out.iter().enumerate() {
                    for (col, got) in cols.clone().zip(row) {
                        let sum = (0..rank).fold(0.0f32, |sum, r| made[i * stride + r].mul_add(b[col * rank + r], sum));
                        assert_eq!(*got, 1.0 + sum, "rank {rank}, row {i} of {count}, column {col}");
                    }
                }
            }
        }
    }
}

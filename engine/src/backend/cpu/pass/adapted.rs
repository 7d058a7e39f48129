//! What adapters add to a product: `scale * B (A x)` for the rows of pieces that have one, and nothing for the others.
//!
//! Each thread computes `A x` for itself, which is a few rows' worth of work, and adds its own columns of `B (A x)`.
//! The sums are those of one row, so neither threads nor the batch show in a result.

use super::batch::RowBatch;
use crate::adapter::{ADAPTER_RANK_MAX, AdaptedMatrix, LowRank, ResidentAdapter};
use crate::backend::cpu::matmul::RowsView;
use crate::backend::cpu::simd::LANES;
use crate::backend::cpu::simd::rowops::{add_weighted, dot};
use crate::backend::cpu::team::shared::SharedBuffer;
use std::ops::Range;

/// A product of all rows with a matrix that adapters may change.
#[derive(Clone, Copy)]
pub(crate) struct AdaptedProduct<'a> {
    /// The block among all.
    pub(crate) block: usize,
    pub(crate) matrix: AdaptedMatrix,
    /// What was made, `[rows, out]`.
    pub(crate) made: &'a SharedBuffer<f32>,
}

impl AdaptedProduct<'_> {
    /// Adds to the columns `cols`, which are this thread's, what the adapters of the rows of `x` make.
    pub(crate) fn add(&self, batch: &RowBatch, x: RowsView<'_>, cols: Range<usize>) {
        for piece in &batch.pieces {
            let Some(ResidentAdapter { adapter, scale, .. }) = &piece.adapter else { continue };
            let part = adapter.part(self.block, self.matrix);
            let Some(part) = part.filter(|_| !cols.is_empty()) else { continue };
            for row in piece.first_row..piece.first_row + piece.rows {
                let at = row * part.out();
                // SAFETY: `x` was finished before the last barrier, and the columns are this thread's.
                unsafe {
                    add((part, *scale), x.row(row), self.made.get_mut(at + cols.start..at + cols.end), cols.start)
                };
            }
        }
    }
}

/// Adds what a change makes of a row to the columns of its output from `start` on.
fn add((part, scale): (&LowRank, f32), x: &[f32], out: &mut [f32], start: usize) {
    let (width, scale, mut reduced) = (part.out(), part.scale * scale, [0.0; ADAPTER_RANK_MAX]);
    let reduced = &mut reduced[..part.rank];
    for (into, a) in reduced.iter_mut().zip(part.a.chunks_exact(x.len())) {
        *into = scale * dot(a, x);
    }
    let b = &part.b[start..];
    if out.len().is_multiple_of(LANES) {
        assert!((part.rank - 1) * width + out.len() <= b.len(), "the columns are those of the matrix");
        // SAFETY: so many values lie behind the first of each row, as was just checked.
        unsafe { add_weighted(out, reduced, b.as_ptr(), width) };
        return;
    }
    // Heads that fill no vector have their sums one by one, in this order too.
    for (i, out) in out.iter_mut().enumerate() {
        *out += reduced.iter().enumerate().fold(0.0f32, |sum, (r, h)| h.mul_add(b[r * width + i], sum));
    }
}

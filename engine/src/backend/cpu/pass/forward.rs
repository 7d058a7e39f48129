//! One pass of rows through blocks, as an operator sees it: the rows, what sequences left behind, the residual stream,
//! and the phases that operators share.
//!
//! In a phase a thread writes the outputs that are its share (rows, or tiles of 16 output features, or heads of a
//! sequence) and reads what earlier phases wrote. Nothing is summed across threads, so their number never shows in a
//! result.

use crate::adapter::AdaptedMatrix;
use crate::backend::cpu::matmul::{OutView, PackedMatrix, RowForm, RowsView, TILE_ROWS, matmul, matmul_before};
use crate::backend::cpu::pass::adapted::AdaptedProduct;
use crate::backend::cpu::pass::batch::RowBatch;
use crate::backend::cpu::pass::experts::ExpertCount;
use crate::backend::cpu::pass::routes::Routes;
use crate::backend::cpu::pass::stream::StreamViews;
use crate::backend::cpu::simd::norm::norm_row;
use crate::backend::cpu::simd::rowops::{add, add_weighted};
use crate::backend::cpu::store::Store;
use crate::backend::cpu::team::pool::Team;
use crate::backend::cpu::team::shared::SharedBuffer;
use crate::model::ModelConfig;
use std::ops::Range;

/// What all threads of a pass see of it in a block.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub(crate) config: &'a ModelConfig,
    pub(crate) batch: &'a RowBatch,
    pub(crate) store: &'a Store,
    pub(crate) stream: StreamViews<'a>,
    pub(crate) experts: &'a ExpertCount,
    pub(crate) routes: &'a Routes,
}

impl Pass<'_> {
    /// The input of the next matrices: every row normed, and in int8 too if one of them reads that.
    pub(crate) fn norm(&self, team: Team, w: &[f32], q8: bool) {
        for row in team.share(self.batch.rows()) {
            self.norm_row(row, w, q8);
        }
        team.wait();
    }

    /// [`Pass::norm`] for some matrices.
    pub(crate) fn norm_for(&self, team: Team, w: &[f32], readers: &[PackedMatrix]) {
        self.norm(team, w, readers.iter().any(|m| m.input() == RowForm::Q8));
    }

    /// [`Pass::norm`] of one row, which is in this thread's share.
    pub(crate) fn norm_row(&self, row: usize, w: &[f32], q8: bool) {
        let hidden = self.config.hidden;
        // SAFETY: the residual stream was finished before the last barrier; the normed row is this thread's.
        unsafe {
            let x = self.stream.x.get(row * hidden..(row + 1) * hidden);
            norm_row(x, w, self.config.rms_eps, self.stream.normed.row_mut(row));
            if q8 {
                self.stream.normed.quantize(row..row + 1);
            }
        }
    }

    /// This thread's share of the products of all rows with some matrices that read the same input. `changed` are the
    /// block and its matrices as adapters know them, if they may change them.
    pub(crate) fn project<const N: usize>(
        &self,
        team: Team,
        inputs: &[PackedMatrix; N],
        outs: [&SharedBuffer<f32>; N],
        changed: Option<(usize, [AdaptedMatrix; N])>,
    ) {
        if let Some((block, matrices)) = &changed {
            self.reduce(team, *block, matrices, self.stream.normed);
        }
        let items = inputs.each_ref().map(|m| (m.tiles(), m.tile_bytes() as u64));
        team.share_costs(&items, |i, tiles| {
            let next = inputs.get(i + 1).map(|next| (next, 0));
            // SAFETY: the tiles are this thread's share.
            let out = unsafe { self.out(outs[i], self.batch.rows(), inputs[i].rows()) };
            matmul_before(next, &inputs[i], self.stream.normed, &self.batch.pairs, tiles.clone(), out);
            if let Some((block, matrices)) = changed {
                let product = AdaptedProduct { block, matrix: matrices[i], made: outs[i] };
                product.add(self.batch.adapted.as_ref(), columns(&tiles, inputs[i].rows()));
            }
        });
    }

    /// An operator's output matrix, times `scale`, added to the residual stream. `changed` is as for
    /// [`Pass::project`].
    pub(crate) fn mix(
        &self,
        team: Team,
        w: &PackedMatrix,
        x: RowsView<'_>,
        scale: f32,
        changed: Option<(usize, AdaptedMatrix)>,
    ) {
        if let Some((block, matrix)) = changed {
            self.reduce(team, block, &[matrix], x);
        }
        let tiles = team.share(w.tiles());
        let (hidden, rows, stream) = (w.rows(), self.batch.rows(), self.stream);
        // SAFETY: the tiles are this thread's share.
        let out = unsafe { self.out(stream.made, rows, hidden) };
        matmul(w, x, &self.batch.pairs, tiles.clone(), out);
        let cols = columns(&tiles, hidden);
        if let Some((block, matrix)) = changed {
            AdaptedProduct { block, matrix, made: stream.made }.add(self.batch.adapted.as_ref(), cols.clone());
        }
        for row in 0..rows {
            let part = row * hidden + cols.start..row * hidden + cols.end;
            // SAFETY: these columns are this thread's in both buffers.
            unsafe {
                match scale {
                    1.0 => add(stream.x.get_mut(part.clone()), stream.made.get(part)),
                    _ => add_weighted(stream.x.get_mut(part.clone()), &[scale], stream.made.part(part), hidden),
                }
            }
        }
    }

    /// Makes what adapters need of `x` before they add to the products of matrices of a block with it. Ends with a
    /// barrier if any row has an adapter.
    pub(crate) fn reduce(&self, team: Team, block: usize, matrices: &[AdaptedMatrix], x: RowsView<'_>) {
        if let Some(adapted) = &self.batch.adapted {
            adapted.reduce(team, block, matrices, x);
            team.wait();
        }
    }

    /// A buffer as `rows` rows of `cols`, for a product whose tiles the team has divided.
    ///
    /// # Safety
    /// Until the next barrier the calling thread writes its own tiles of its own rows only, and no other thread reads
    /// them.
    pub(crate) unsafe fn out<'b>(&self, buffer: &'b SharedBuffer<f32>, rows: usize, cols: usize) -> OutView<'b> {
        // SAFETY: `part` checks the bounds; the rest is the caller's promise.
        unsafe { OutView::new(buffer.part(0..rows * cols), rows, cols, cols) }
    }
}

/// The columns of some tiles.
pub(crate) fn columns(tiles: &Range<usize>, width: usize) -> Range<usize> {
    (tiles.start * TILE_ROWS).min(width)..(tiles.end * TILE_ROWS).min(width)
}

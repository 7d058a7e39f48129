//! The forward pass of one step, as every thread of the team runs it: a fixed sequence of phases with a barrier after
//! each.
//!
//! In a phase a thread writes the outputs that are its share (rows, or tiles of 16 output features, or heads of a
//! sequence) and reads what earlier phases wrote. Nothing is summed across threads, so their number never shows in a
//! result.

use crate::backend::Progress;
use crate::backend::cpu::blocks::{BlockThread, ExpertCount, Step};
use crate::backend::cpu::matmul::{OutView, PackedMatrix, RowForm, RowsView, TILE_ROWS, matmul, matmul_before};
use crate::backend::cpu::network::weights::CpuModel;
use crate::backend::cpu::network::workspace::Views;
use crate::backend::cpu::pass::batch::Batch;
use crate::backend::cpu::pass::probe::Recorder;
use crate::backend::cpu::pass::routes::Routes;
use crate::backend::cpu::sampler::SamplerScratch;
use crate::backend::cpu::simd::norm::norm_row;
use crate::backend::cpu::simd::rowops::{add, add_weighted};
use crate::backend::cpu::store::Store;
use crate::backend::cpu::team::pool::Team;
use crate::backend::cpu::team::shared::Shared;
use crate::format::blocks::decode_row;
use std::ops::Range;

/// What all threads of a step see.
pub(crate) struct Pass<'a> {
    pub(crate) model: &'a CpuModel,
    pub(crate) batch: &'a Batch,
    pub(crate) store: &'a Store,
    pub(crate) ws: Views<'a>,
    /// What blocks of each shape compute in.
    pub(crate) steps: &'a [Step<'a>],
    pub(crate) recorder: &'a Recorder,
    pub(crate) experts: &'a ExpertCount,
    pub(crate) routes: &'a Routes,
    /// Advanced after each block.
    pub(crate) progress: &'a Progress,
}

/// What one thread keeps to itself beside what the blocks need.
#[derive(Default)]
pub(crate) struct ThreadScratch {
    pub(crate) sampler: SamplerScratch,
}

impl Pass<'_> {
    /// All layers; leaves the residual stream of every row in the workspace.
    pub(crate) fn layers(&self, team: Team) {
        self.embed(team);
        for (i, block) in self.model.blocks.iter().enumerate() {
            let at = BlockThread { pass: self, team, norm: &block.norm, scale: block.scale, block: i };
            block.op.run(&self.steps[block.shape], at);
            team.wait();
            if team.index == 0 {
                self.progress.advance();
            }
            self.record(team, i);
        }
    }

    /// Embeddings, and what else a row needs once. The next phase divides rows in the same way, so no barrier follows.
    fn embed(&self, team: Team) {
        let hidden = self.model.config.hidden;
        for row in team.share(self.batch.rows()) {
            // SAFETY: the row is in this thread's share.
            let x = unsafe { self.ws.plain.x.get_mut(row * hidden..(row + 1) * hidden) };
            self.embed_row(row, x);
            self.steps.iter().for_each(|step| step.begin(row, self.batch.positions[row]));
            self.recorder.perturb(self.batch, row, x);
        }
    }

    /// The embedding of a row's token.
    pub(crate) fn embed_row(&self, row: usize, x: &mut [f32]) {
        let table = &self.model.embed;
        decode_row(table.ty, table.row(0, self.batch.tokens[row] as usize), x);
        if let Some(scale) = &table.scale {
            x.iter_mut().for_each(|x| *x *= scale[0]);
        }
        if self.model.config.embedding_scale != 1.0 {
            x.iter_mut().for_each(|x| *x *= self.model.config.embedding_scale);
        }
    }

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
        let hidden = self.model.config.hidden;
        // SAFETY: the residual stream was finished before the last barrier; the normed row is this thread's.
        unsafe {
            let x = self.ws.plain.x.get(row * hidden..(row + 1) * hidden);
            norm_row(x, w, self.model.config.rms_eps, self.ws.normed.row_mut(row));
            if q8 {
                self.ws.normed.quantize(row..row + 1);
            }
        }
    }

    /// This thread's share of the products of all rows with some matrices that read the same input.
    pub(crate) fn project<const N: usize>(&self, team: Team, inputs: &[PackedMatrix; N], outs: [&Shared<f32>; N]) {
        let items = inputs.each_ref().map(|m| (m.tiles(), m.tile_bytes() as u64));
        team.share_costs(&items, |i, tiles| {
            let next = inputs.get(i + 1).map(|next| (next, 0));
            // SAFETY: the tiles are this thread's share.
            let out = unsafe { self.out(outs[i], self.batch.rows(), inputs[i].rows()) };
            matmul_before(next, &inputs[i], self.ws.normed, &self.batch.pairs, tiles, out);
        });
    }

    /// An operator's output matrix, times `scale`, added to the residual stream.
    pub(crate) fn mix(&self, team: Team, w: &PackedMatrix, x: RowsView<'_>, scale: f32) {
        let tiles = team.share(w.tiles());
        let (hidden, rows, plain) = (w.rows(), self.batch.rows(), self.ws.plain);
        // SAFETY: the tiles are this thread's share.
        let out = unsafe { self.out(&plain.made, rows, hidden) };
        matmul(w, x, &self.batch.pairs, tiles.clone(), out);
        let cols = columns(&tiles, hidden);
        for row in 0..rows {
            let part = row * hidden + cols.start..row * hidden + cols.end;
            // SAFETY: these columns are this thread's in both buffers.
            unsafe {
                match scale {
                    1.0 => add(plain.x.get_mut(part.clone()), plain.made.get(part)),
                    _ => add_weighted(plain.x.get_mut(part.clone()), &[scale], plain.made.part(part), hidden),
                }
            }
        }
    }

    /// A buffer as `rows` rows of `cols`, for a product whose tiles the team has divided.
    ///
    /// # Safety
    /// Until the next barrier the calling thread writes its own tiles of its own rows only, and no other thread reads
    /// them.
    pub(crate) unsafe fn out<'b>(&self, buffer: &'b Shared<f32>, rows: usize, cols: usize) -> OutView<'b> {
        // SAFETY: `part` checks the bounds; the rest is the caller's promise.
        unsafe { OutView::new(buffer.part(0..rows * cols), rows, cols, cols) }
    }

    fn record(&self, team: Team, place: usize) {
        if team.index == 0 {
            // SAFETY: the stream was finished before the last barrier, and changes two barriers later, which this
            // thread is part of.
            self.recorder
                .hidden(place, || unsafe { self.ws.plain.x.get(0..self.batch.rows() * self.model.config.hidden) });
        }
    }
}

/// The columns of some tiles.
pub(crate) fn columns(tiles: &Range<usize>, width: usize) -> Range<usize> {
    (tiles.start * TILE_ROWS).min(width)..(tiles.end * TILE_ROWS).min(width)
}

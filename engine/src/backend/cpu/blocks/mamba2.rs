//! A Mamba-2 block: one projection in three parts, the convolution, the rule over each sequence's rows, gate and norm,
//! the out-projection.
//!
//! Prompt and continuation are computed in one form, position after position, so that neither chunks nor what was
//! computed together show in a result.

mod rule;

use super::conv::{Convolution, softplus};
use super::{BlockThread, Operator, Packing, whole_blocks};
use crate::backend::cpu::error::CpuError;
use crate::backend::cpu::matmul::{ActivationRows, PackedMatrix, RowForm, RowsView};
use crate::backend::cpu::pass::batch::{BatchPiece, RowBatch};
use crate::backend::cpu::pass::room::WorkspaceRoom;
use crate::backend::cpu::simd::norm::norm_row_in_place;
use crate::backend::cpu::simd::run;
use crate::backend::cpu::team::shared::{PerThread, SharedBuffer};
use crate::format::NotFinite;
use crate::model::{Mamba2Config, Mamba2Weights};
use rule::{Mamba2Head, Mamba2Scratch, SEGMENT};
use std::ops::Range;

/// Mamba-2's weights, packed for this processor.
pub(crate) struct Mamba2 {
    config: Mamba2Config,
    eps: f32,
    /// z, x | B | C, step sizes: all read the block's input.
    inputs: [PackedMatrix; 3],
    conv: Convolution,
    a_neg: Vec<f32>,
    d: Vec<f32>,
    dt_bias: Vec<f32>,
    norm: Option<Vec<f32>>,
    out: PackedMatrix,
}

/// What its rows are computed in.
pub(crate) struct Mamba2Buffers {
    config: Mamba2Config,
    plain: Mamba2Projections,
    out: ActivationRows,
    scratch: PerThread<Mamba2Scratch>,
}

/// What the input matrices and the convolution give.
struct Mamba2Projections {
    z: SharedBuffer<f32>,
    xbc: SharedBuffer<f32>,
    dt: SharedBuffer<f32>,
    /// x | B | C after the convolution.
    convolved: SharedBuffer<f32>,
}

/// The buffers in a step.
pub(crate) struct Mamba2Step<'a> {
    plain: &'a Mamba2Projections,
    out: RowsView<'a>,
    scratch: &'a PerThread<Mamba2Scratch>,
    /// Heads of each piece, and the cost of one, for sharing.
    costs: Vec<(usize, u64)>,
}

impl Operator for Mamba2 {
    type Config = Mamba2Config;
    type Weights = Mamba2Weights;
    type Buffers = Mamba2Buffers;
    type Step<'a> = Mamba2Step<'a>;

    fn check(config: &Mamba2Config) -> Result<(), CpuError> {
        whole_blocks("width of a Mamba-2 head", config.head_dim)?;
        whole_blocks("state of a Mamba-2 head", config.state_dim)
    }

    fn planned_bytes(w: &Mamba2Weights, exact: bool) -> u64 {
        [&w.z, &w.xbc, &w.dt, &w.out].into_iter().map(|t| PackedMatrix::planned_bytes(t, exact)).sum()
    }

    fn pack(w: &Mamba2Weights, packing: Packing) -> Result<Self, NotFinite> {
        let pack = |t| PackedMatrix::pack(t, 0, packing.exact);
        Ok(Self {
            config: w.config,
            eps: packing.eps,
            inputs: [pack(&w.z)?, pack(&w.xbc)?, pack(&w.dt)?],
            conv: Convolution::new(&w.conv, w.conv_bias.as_deref(), w.config.conv_taps),
            a_neg: w.a_neg.clone(),
            d: w.d.clone(),
            dt_bias: w.dt_bias.clone(),
            norm: w.norm.clone(),
            out: pack(&w.out)?,
        })
    }

    fn matrices(&self) -> Vec<&PackedMatrix> {
        self.inputs.iter().chain([&self.out]).collect()
    }

    fn buffers(config: &Mamba2Config, room: &mut WorkspaceRoom) -> Mamba2Buffers {
        Mamba2Buffers {
            config: *config,
            plain: Mamba2Projections {
                z: room.floats(config.values()),
                xbc: room.floats(config.channels()),
                dt: room.floats(config.heads),
                convolved: room.floats(config.channels()),
            },
            out: room.activations(1, config.values()),
            scratch: room.per_thread(|| Mamba2Scratch::new(config)),
        }
    }

    fn step<'a>(buffers: &'a mut Mamba2Buffers, batch: &RowBatch, _threads: usize) -> Mamba2Step<'a> {
        let Mamba2Buffers { config, plain, out, scratch } = buffers;
        out.set_len(batch.rows(), config.values());
        let costs = batch.pieces.iter().map(|piece| (config.heads, piece.rows as u64)).collect();
        Mamba2Step { plain, out: out.view(), scratch, costs }
    }

    fn run(&self, step: &Mamba2Step<'_>, at: BlockThread<'_>) {
        at.pass.norm_for(at.team, at.norm, &self.inputs);
        self.run_normed(step, at);
    }
}

impl Mamba2 {
    /// [`Operator::run`] from rows that are normed already.
    pub(super) fn run_normed(&self, step: &Mamba2Step<'_>, at: BlockThread<'_>) {
        let (pass, team, p) = (at.pass, at.team, step.plain);
        pass.project(team, &self.inputs, [&p.z, &p.xbc, &p.dt], None);
        team.wait();
        let strips = self.conv.strips();
        for unit in team.share(pass.batch.rows() * strips) {
            self.convolve(step, at, unit / strips, unit % strips);
        }
        team.wait();
        let mut scratch = step.scratch.of(team);
        team.share_costs(&step.costs, |piece, heads| {
            heads.for_each(|h| self.run_head(step, at, &pass.batch.pieces[piece], h, &mut scratch));
        });
        team.wait();
        for unit in team.share(pass.batch.rows() * self.config.groups) {
            self.finish(step, unit / self.config.groups, unit % self.config.groups);
        }
        team.wait();
        pass.mix(team, &self.out, step.out, at.scale, None);
        // SAFETY: convolutions are behind a barrier.
        unsafe { self.conv.keep_tails(&p.xbc, at) };
    }

    /// Whether it reads the int8 form of its input.
    pub(super) fn reads_q8(&self) -> bool {
        self.inputs.iter().any(|m| m.input() == RowForm::Q8)
    }

    /// Convolution of some channels of a row.
    fn convolve(&self, step: &Mamba2Step<'_>, at: BlockThread<'_>, row: usize, strip: usize) {
        let (p, store, channels) = (step.plain, at.pass.store, self.conv.channels);
        let piece = at.pass.batch.piece_of(row);
        let cols = self.conv.strip(strip);
        // SAFETY: projections were finished before the last barrier, tails change only after the next two, and the
        // output is this thread's.
        let (inputs, tail, out) = unsafe {
            (
                p.xbc.get(self.conv.rows_of(piece)),
                store.tails.get(store.shape.tail_at(piece.slot, at.block)),
                p.convolved.get_mut(row * channels + cols.start..row * channels + cols.end),
            )
        };
        self.conv.run(inputs, tail, row - piece.first_row, cols.start, out);
    }

    /// The rule over all rows of a piece for one head, then its gate.
    fn run_head(
        &self,
        step: &Mamba2Step<'_>,
        at: BlockThread<'_>,
        piece: &BatchPiece,
        h: usize,
        s: &mut Mamba2Scratch,
    ) {
        let (c, store) = (&self.config, at.pass.store);
        let len = c.head_dim * c.state_dim;
        let place = |slot: usize| {
            let all = store.shape.state_at(slot, at.block);
            // SAFETY: a plan has one piece a slot and writes a checkpoint once, and each head of a piece is one
            // thread's.
            unsafe { store.states.get_mut(all.start + h * len..all.start + (h + 1) * len) }
        };
        let mut row = 0;
        while row < piece.rows {
            let next = piece.exports.iter().map(|(after, _)| *after).filter(|after| *after > row).min();
            let n = SEGMENT.min(next.unwrap_or(piece.rows).min(piece.rows) - row);
            self.run_segment(step, piece.first_row + row..piece.first_row + row + n, h, place(piece.slot), s);
            row += n;
            for (_, checkpoint) in piece.exports.iter().filter(|(after, _)| *after == row) {
                place(*checkpoint).copy_from_slice(place(piece.slot));
            }
        }
    }

    fn run_segment(
        &self,
        step: &Mamba2Step<'_>,
        rows: Range<usize>,
        h: usize,
        state: &mut [f32],
        s: &mut Mamba2Scratch,
    ) {
        let (c, p) = (&self.config, step.plain);
        let (channels, values, group) = (c.channels(), c.values(), c.group(h) * c.state_dim);
        // SAFETY: both were finished before the last barrier.
        let (convolved, z, dt) = unsafe {
            (
                p.convolved.get(rows.start * channels..rows.end * channels),
                p.z.get(rows.start * values..rows.end * values),
                p.dt.get(rows.start * c.heads..rows.end * c.heads),
            )
        };
        for i in 0..rows.len() {
            s.dt[i] = softplus(dt[i * c.heads + h] + self.dt_bias[h]);
            s.decay[i] = chimere_kernels::reference::exp(s.dt[i] * self.a_neg[h]);
        }
        run(Mamba2Head {
            config: c,
            rows: rows.len(),
            x: &convolved[h * c.head_dim..],
            b: &convolved[values + group..],
            c: &convolved[values + c.groups * c.state_dim + group..],
            z: &z[h * c.head_dim..],
            d: self.d[h],
            state,
            scratch: s,
        });
        for (i, row) in rows.enumerate() {
            // SAFETY: the head's columns are this thread's alone.
            let out = unsafe { step.out.part_mut(row, h * c.head_dim..(h + 1) * c.head_dim) };
            out.copy_from_slice(&s.y[i * c.head_dim..][..c.head_dim]);
        }
    }

    /// Norm of a group's values, and the form that the out-projection reads.
    fn finish(&self, step: &Mamba2Step<'_>, row: usize, group: usize) {
        let values = self.config.group_values();
        let cols = group * values..(group + 1) * values;
        // SAFETY: heads are behind a barrier, and the group's columns are this thread's alone.
        unsafe {
            if let Some(norm) = &self.norm {
                norm_row_in_place(step.out.part_mut(row, cols.clone()), &norm[cols.clone()], self.eps);
            }
            if self.out.input() == RowForm::Q8 {
                step.out.quantize_part(row, cols);
            }
        }
    }
}

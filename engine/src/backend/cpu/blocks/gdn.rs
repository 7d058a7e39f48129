//! A gated-delta block: four projections, the rule over each sequence's rows, the out-projection.

mod rule;

use super::conv::Convolution;
use super::{BlockThread, Operator, Packing, whole_blocks};
use crate::adapter::AdaptedMatrix;
use crate::backend::cpu::error::CpuError;
use crate::backend::cpu::matmul::{ActivationRows, PackedMatrix, RowForm, RowsView, prefetch};
use crate::backend::cpu::pass::batch::{BatchPiece, RowBatch};
use crate::backend::cpu::pass::room::WorkspaceRoom;
use crate::backend::cpu::simd::run;
use crate::backend::cpu::store::Store;
use crate::backend::cpu::team::shared::{PerThread, SharedBuffer};
use crate::format::NotFinite;
use crate::model::{GdnConfig, GdnWeights};
use rule::{GdnJob, GdnParams, GdnScratch, GdnSink, NextJob};
use std::ops::Range;

/// The gated delta rule's weights, packed for this processor.
pub(crate) struct Gdn {
    /// qkv, z, b, a: all read the block's input.
    inputs: [PackedMatrix; 4],
    params: GdnParams,
    out: PackedMatrix,
}

/// What its rows are computed in.
pub(crate) struct GdnBuffers {
    config: GdnConfig,
    /// Value heads by key head.
    heads: Vec<usize>,
    projections: GdnProjections,
    out: ActivationRows,
    scratch: PerThread<GdnScratch>,
}

/// What the four input matrices give.
struct GdnProjections {
    qkv: SharedBuffer<f32>,
    z: SharedBuffer<f32>,
    b: SharedBuffer<f32>,
    a: SharedBuffer<f32>,
}

/// The buffers in a step.
pub(crate) struct GdnStep<'a> {
    heads: &'a [usize],
    projections: &'a GdnProjections,
    out: RowsView<'a>,
    scratch: &'a PerThread<GdnScratch>,
    jobs: Vec<GdnTask>,
    /// Units and cost of each job, for sharing.
    costs: Vec<(usize, u64)>,
}

/// Value heads `heads` (a range of [`GdnStep::heads`]) of a piece; all share a key head.
struct GdnTask {
    piece: usize,
    key_head: usize,
    heads: Range<usize>,
}

impl Operator for Gdn {
    type Config = GdnConfig;
    type Weights = GdnWeights;
    type Buffers = GdnBuffers;
    type Step<'a> = GdnStep<'a>;

    fn check(config: &GdnConfig) -> Result<(), CpuError> {
        whole_blocks("key width of a GDN head", config.key_dim)?;
        whole_blocks("value width of a GDN head", config.value_dim)
    }

    fn planned_bytes(w: &GdnWeights, exact: bool) -> u64 {
        [&w.qkv, &w.z, &w.b, &w.a, &w.out].into_iter().map(|t| PackedMatrix::planned_bytes(t, exact)).sum()
    }

    fn pack(w: &GdnWeights, packing: Packing) -> Result<Self, NotFinite> {
        let params = GdnParams {
            config: w.config,
            conv: Convolution::new(&w.conv, None, w.config.conv_taps),
            a_neg: w.a_neg.clone(),
            dt_bias: w.dt_bias.clone(),
            norm: w.norm.clone(),
            eps: packing.eps,
        };
        let pack = |t| PackedMatrix::pack(t, 0, packing.exact);
        let inputs = [pack(&w.qkv)?, pack(&w.z)?, pack(&w.b)?, pack(&w.a)?];
        Ok(Self { inputs, params, out: pack(&w.out)? })
    }

    fn matrices(&self) -> Vec<&PackedMatrix> {
        self.inputs.iter().chain([&self.out]).collect()
    }

    fn buffers(config: &GdnConfig, room: &mut WorkspaceRoom) -> GdnBuffers {
        GdnBuffers {
            config: *config,
            heads: heads_by_key(config),
            projections: GdnProjections {
                qkv: room.floats(config.channels()),
                z: room.floats(config.values()),
                b: room.floats(config.value_heads),
                a: room.floats(config.value_heads),
            },
            out: room.activations(1, config.values()),
            scratch: room.per_thread(|| GdnScratch::new(config)),
        }
    }

    fn step<'a>(buffers: &'a mut GdnBuffers, batch: &RowBatch, threads: usize) -> GdnStep<'a> {
        let GdnBuffers { config, heads, projections, out, scratch } = buffers;
        out.set_len(batch.rows(), config.values());
        let (jobs, costs) = divide(&batch.pieces, config, threads);
        GdnStep { heads, projections, out: out.view(), scratch, jobs, costs }
    }

    fn run(&self, step: &GdnStep<'_>, at: BlockThread<'_>) {
        let (pass, team, p) = (at.pass, at.team, step.projections);
        pass.norm_for(team, at.norm, &self.inputs);
        let matrices = [AdaptedMatrix::Qkv, AdaptedMatrix::Z, AdaptedMatrix::Beta, AdaptedMatrix::Alpha];
        pass.project(team, &self.inputs, [&p.qkv, &p.z, &p.b, &p.a], Some((at.block, matrices)));
        team.wait();
        let mut own = 0..0;
        team.share_costs(&step.costs, |job, _| own = if own.is_empty() { job } else { own.start }..job + 1);
        let mut scratch = step.scratch.of(team);
        for job in own.clone() {
            self.run_job(step, at, job..own.end, &mut scratch);
        }
        prefetch(&self.out, team.share(self.out.tiles()));
        team.wait();
        pass.mix(team, &self.out, step.out, at.scale, Some((at.block, AdaptedMatrix::Out)));
        // SAFETY: the jobs that read the tails are behind a barrier.
        unsafe { self.params.conv.keep_tails(&p.qkv, at) };
    }
}

impl Gdn {
    /// The first of some jobs of this thread.
    fn run_job(&self, step: &GdnStep<'_>, at: BlockThread<'_>, jobs: Range<usize>, scratch: &mut GdnScratch) {
        let (c, p, store, part) = (&self.params.config, step.projections, at.pass.store, &step.jobs[jobs.start]);
        let piece = &at.pass.batch.pieces[part.piece];
        let value_heads = &step.heads[part.heads.clone()];
        let rows = |width: usize| piece.first_row * width..(piece.first_row + piece.rows) * width;
        let sink = Sink { store, out: step.out, config: c, piece, block: at.block };
        // SAFETY: projections were finished before the last barrier, and tails change only after the next one.
        let (qkv, z, b, a, tail) = unsafe {
            (
                p.qkv.get(rows(c.channels())),
                p.z.get(rows(c.values())),
                p.b.get(rows(c.value_heads)),
                p.a.get(rows(c.value_heads)),
                store.tails.get(store.shape.tail_at(piece.slot, at.block)),
            )
        };
        let (form, start, rows, key_head) = (piece.form, piece.start, piece.rows, part.key_head);
        let (certain, unfolded) = (piece.certain(), piece.unfolded);
        run(GdnJob {
            params: &self.params,
            form,
            start,
            rows,
            certain,
            unfolded,
            key_head,
            value_heads,
            qkv,
            tail,
            z,
            b,
            a,
            next: step.jobs[jobs].get(1).map(|next| self.look_ahead(step, at, next)),
            scratch,
            sink,
        });
        let q8 = self.out.input() == RowForm::Q8;
        for row in (piece.first_row..piece.first_row + piece.rows).filter(|_| q8) {
            for h in value_heads {
                // SAFETY: the head's columns are this job's alone.
                unsafe { step.out.quantize_part(row, h * c.value_dim..(h + 1) * c.value_dim) };
            }
        }
    }

    /// What a job of this thread reads from far away. To ask for what is another's would take it from that core.
    fn look_ahead<'a>(&self, step: &GdnStep<'a>, at: BlockThread<'a>, next: &GdnTask) -> NextJob<'a> {
        let (store, slot) = (at.pass.store, at.pass.batch.pieces[next.piece].slot);
        // SAFETY: tails change only behind the next barrier.
        let tail = unsafe { store.tails.get(store.shape.tail_at(slot, at.block)) };
        let states = store.states.part(store.shape.state_at(slot, at.block));
        NextJob { states, tail, key_head: next.key_head, value_heads: &step.heads[next.heads.clone()] }
    }
}

/// Value heads sorted by key head.
fn heads_by_key(c: &GdnConfig) -> Vec<usize> {
    let mut order: Vec<usize> = (0..c.value_heads).collect();
    order.sort_by_key(|h| c.key_head(*h));
    order
}

/// A step's work in jobs, with their costs.
fn divide(pieces: &[BatchPiece], c: &GdnConfig, threads: usize) -> (Vec<GdnTask>, Vec<(usize, u64)>) {
    let (mut jobs, mut costs) = (Vec::new(), Vec::new());
    let ratio = c.value_heads / c.key_heads;
    // Value heads of one key head share its convolution; they part only where there would be too little to share.
    let step = if pieces.len() * c.key_heads < 2 * threads { 1 } else { ratio };
    for (i, piece) in pieces.iter().enumerate() {
        for key_head in 0..c.key_heads {
            for first in (0..ratio).step_by(step) {
                let heads = key_head * ratio + first..key_head * ratio + first + step;
                costs.push((1, (piece.rows * heads.len()) as u64));
                jobs.push(GdnTask { piece: i, key_head, heads });
            }
        }
    }
    (jobs, costs)
}

/// States and outputs of one piece in one block.
#[derive(Clone, Copy)]
struct Sink<'a> {
    store: &'a Store,
    out: RowsView<'a>,
    config: &'a GdnConfig,
    piece: &'a BatchPiece,
    block: usize,
}

// SAFETY: a plan has one piece a slot, and one job has each value head of a piece.
unsafe impl<'a> GdnSink<'a> for Sink<'a> {
    fn state(self, h: usize) -> &'a mut [f32] {
        let all = self.store.shape.state_at(self.piece.slot, self.block);
        let len = all.len() / self.config.value_heads;
        // SAFETY: as above.
        unsafe { self.store.states.get_mut(all.start + h * len..all.start + (h + 1) * len) }
    }

    #[inline(always)]
    fn export(self, rows: usize, h: usize) {
        for (_, place) in self.piece.exports.iter().filter(|(after, _)| *after == rows) {
            let all = self.store.shape.state_at(*place, self.block);
            let len = all.len() / self.config.value_heads;
            // SAFETY: a plan writes a checkpoint once, and one job has each value head of a piece.
            let kept = unsafe { self.store.states.get_mut(all.start + h * len..all.start + (h + 1) * len) };
            kept.copy_from_slice(self.state(h));
        }
    }

    fn factors(self, row: usize, h: usize) -> &'a mut [f32] {
        // SAFETY: as above.
        unsafe { self.store.drafted.factors(self.piece.slot, row, self.block, (h, self.config.value_heads)) }
    }

    fn out(self, row: usize, h: usize) -> &'a mut [f32] {
        let dim = self.config.value_dim;
        // SAFETY: as above.
        unsafe { self.out.part_mut(self.piece.first_row + row, h * dim..(h + 1) * dim) }
    }
}

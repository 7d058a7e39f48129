//! An attention block: three projections, norm and rotation where it has them, keys and values into their pages,
//! attention, the out-projection.

mod pages;

use super::{BlockThread, Operator, Packing, whole_blocks};
use crate::adapter::AdaptedMatrix;
use crate::backend::cpu::error::CpuError;
use crate::backend::cpu::matmul::{ActivationRows, PackedMatrix, RowForm, RowsView};
use crate::backend::cpu::pass::batch::{BatchPiece, RowBatch};
use crate::backend::cpu::pass::room::WorkspaceRoom;
use crate::backend::cpu::simd::gemm::Element;
use crate::backend::cpu::simd::run;
use crate::backend::cpu::store::{Kv, PAGE, Store};
use crate::backend::cpu::team::shared::{PerThread, SharedBuffer};
use crate::format::NotFinite;
use crate::model::{AttentionConfig, AttentionWeights};
use pages::{Angles, AttentionIo, AttentionJob, AttentionScratch, HeadRotation, Keep, QUERIES_MAX};
use std::marker::PhantomData;

/// Attention's weights, packed for this processor.
pub(crate) struct Attention {
    config: AttentionConfig,
    eps: f32,
    /// q with gates if there are some, k, v.
    inputs: [PackedMatrix; 3],
    q_norm: Option<Vec<f32>>,
    k_norm: Option<Vec<f32>>,
    out: PackedMatrix,
}

/// What its rows are computed in.
pub(crate) struct AttentionBuffers {
    config: AttentionConfig,
    plain: AttentionProjections,
    out: ActivationRows,
    scratch: PerThread<AttentionScratch>,
}

struct AttentionProjections {
    rotation: HeadRotation,
    /// Queries and, where there are some, their gates, `2 D` a head.
    qg: SharedBuffer<f32>,
    k: SharedBuffer<f32>,
    v: SharedBuffer<f32>,
    /// Cosines and sines of each row's position, the same in all blocks of a step.
    cos: SharedBuffer<f32>,
    sin: SharedBuffer<f32>,
}

/// The buffers in a step.
pub(crate) struct AttentionStep<'a> {
    plain: &'a AttentionProjections,
    out: RowsView<'a>,
    scratch: &'a PerThread<AttentionScratch>,
    jobs: Vec<AttentionTask>,
    /// Units and cost of each job, for sharing.
    costs: Vec<(usize, u64)>,
}

/// Some rows and query heads of a piece.
struct AttentionTask {
    piece: usize,
    row: usize,
    rows: usize,
    kv_head: usize,
    first_head: usize,
    heads: usize,
}

impl AttentionProjections {
    /// By which a row's heads turn.
    ///
    /// # Safety
    /// They were written behind an earlier barrier.
    unsafe fn angles(&self, row: usize) -> Angles<'_> {
        let half = self.rotation.frequencies.len();
        let part = row * half..(row + 1) * half;
        // SAFETY: the caller's.
        unsafe { Angles { cos: self.cos.get(part.clone()), sin: self.sin.get(part) } }
    }
}

impl Operator for Attention {
    type Config = AttentionConfig;
    type Weights = AttentionWeights;
    type Buffers = AttentionBuffers;
    type Step<'a> = AttentionStep<'a>;

    fn check(config: &AttentionConfig) -> Result<(), CpuError> {
        whole_blocks("width of an attention head", config.head_dim)
    }

    fn planned_bytes(w: &AttentionWeights, exact: bool) -> u64 {
        [&w.q, &w.k, &w.v, &w.out].into_iter().map(|t| PackedMatrix::planned_bytes(t, exact)).sum()
    }

    fn pack(w: &AttentionWeights, packing: Packing) -> Result<Self, NotFinite> {
        let pack = |t| PackedMatrix::pack(t, 0, packing.exact);
        Ok(Self {
            config: w.config,
            eps: packing.eps,
            inputs: [pack(&w.q)?, pack(&w.k)?, pack(&w.v)?],
            q_norm: w.q_norm.clone(),
            k_norm: w.k_norm.clone(),
            out: pack(&w.out)?,
        })
    }

    fn matrices(&self) -> Vec<&PackedMatrix> {
        self.inputs.iter().chain([&self.out]).collect()
    }

    fn buffers(config: &AttentionConfig, room: &mut WorkspaceRoom) -> AttentionBuffers {
        // Without positions nothing turns.
        let rotation = config.rope.as_ref().map_or(HeadRotation::NONE, HeadRotation::of);
        let half = rotation.frequencies.len();
        AttentionBuffers {
            config: *config,
            plain: AttentionProjections {
                rotation,
                qg: room.floats(config.query_rows()),
                k: room.floats(config.keys()),
                v: room.floats(config.keys()),
                cos: room.floats(half),
                sin: room.floats(half),
            },
            out: room.activations(1, config.queries()),
            scratch: room.per_thread(|| AttentionScratch::new(config)),
        }
    }

    fn step<'a>(buffers: &'a mut AttentionBuffers, batch: &RowBatch, _threads: usize) -> AttentionStep<'a> {
        let AttentionBuffers { config, plain, out, scratch } = buffers;
        out.set_len(batch.rows(), config.queries());
        let (jobs, costs) = divide(&batch.pieces, config);
        AttentionStep { plain, out: out.view(), scratch, jobs, costs }
    }

    /// Writes the angles by which the row's heads turn.
    fn begin(step: &AttentionStep<'_>, row: usize, position: u32) {
        let AttentionProjections { rotation, cos, sin, .. } = step.plain;
        let half = rotation.frequencies.len();
        let angles = row * half..(row + 1) * half;
        // SAFETY: the row is in this thread's share, and angles are read behind a barrier.
        unsafe { pages::angles(rotation, position, cos.get_mut(angles.clone()), sin.get_mut(angles)) };
    }

    fn run(&self, step: &AttentionStep<'_>, at: BlockThread<'_>) {
        at.pass.norm_for(at.team, at.norm, &self.inputs);
        self.run_normed(step, at);
    }
}

impl Attention {
    /// [`Operator::run`] from rows that are normed already.
    pub(super) fn run_normed(&self, step: &AttentionStep<'_>, at: BlockThread<'_>) {
        let (pass, team, p) = (at.pass, at.team, step.plain);
        let matrices = [AdaptedMatrix::Query, AdaptedMatrix::Key, AdaptedMatrix::Value];
        pass.project(team, &self.inputs, [&p.qg, &p.k, &p.v], Some((at.block, matrices)));
        team.wait();
        match &pass.store.kv {
            Kv::F32(kv) => self.attend(step, at, kv),
            Kv::F16(kv) => self.attend(step, at, kv),
        }
        team.wait();
        pass.mix(team, &self.out, step.out, at.scale, Some((at.block, AdaptedMatrix::Out)));
    }

    /// This thread's share of the keys and values of all rows, and of nothing else of the block. Whoever calls it waits
    /// for the team afterwards.
    pub(super) fn remember(&self, step: &AttentionStep<'_>, at: BlockThread<'_>) {
        let (pass, team, p) = (at.pass, at.team, step.plain);
        let inputs: &[PackedMatrix; 2] = self.inputs.last_chunk().expect("keys and values are the last of three");
        pass.norm_for(team, at.norm, inputs);
        pass.project(team, inputs, [&p.k, &p.v], Some((at.block, [AdaptedMatrix::Key, AdaptedMatrix::Value])));
        team.wait();
        for unit in team.share(pass.batch.rows() * self.config.kv_heads) {
            let (row, kv_head) = (unit / self.config.kv_heads, unit % self.config.kv_heads);
            match &pass.store.kv {
                Kv::F32(kv) => self.store(step, at, kv, row, kv_head),
                Kv::F16(kv) => self.store(step, at, kv, row, kv_head),
            }
        }
    }

    /// Whether it reads the int8 form of its input.
    pub(super) fn reads_q8(&self) -> bool {
        self.inputs.iter().any(|m| m.input() == RowForm::Q8)
    }

    fn attend<E: Element>(&self, step: &AttentionStep<'_>, at: BlockThread<'_>, kv: &SharedBuffer<E>) {
        let (team, kv_heads) = (at.team, self.config.kv_heads);
        for unit in team.share(at.pass.batch.rows() * kv_heads) {
            self.rotate_and_store(step, at, kv, unit / kv_heads, unit % kv_heads);
        }
        team.wait();
        let mut scratch = step.scratch.of(team);
        team.share_costs(&step.costs, |job, _| self.run_job(step, at, kv, &step.jobs[job], &mut scratch));
    }

    /// Norm and rotation of one row's queries of a key/value head's group, and its key and value into the cache.
    fn rotate_and_store<E: Element>(
        &self,
        step: &AttentionStep<'_>,
        at: BlockThread<'_>,
        kv: &SharedBuffer<E>,
        row: usize,
        kv_head: usize,
    ) {
        let (c, p) = (&self.config, step.plain);
        let (dim, group) = (c.head_dim, c.heads / c.kv_heads);
        // SAFETY: row and head are this thread's share of this phase.
        unsafe {
            for head in kv_head * group..(kv_head + 1) * group {
                let at = row * c.query_rows() + head * c.query_rows() / c.heads;
                pages::norm_and_rotate(p.qg.get_mut(at..at + dim), self.q_norm.as_deref(), self.eps, p.angles(row));
            }
        }
        self.store(step, at, kv, row, kv_head);
    }

    /// One row's key, after norm and rotation, and value into the cache.
    fn store<E: Element>(
        &self,
        step: &AttentionStep<'_>,
        at: BlockThread<'_>,
        kv: &SharedBuffer<E>,
        row: usize,
        kv_head: usize,
    ) {
        let (c, p, shape) = (&self.config, step.plain, &at.pass.store.shape);
        let dim = c.head_dim;
        let piece = at.pass.batch.piece_of(row);
        let position = at.pass.batch.positions[row] as usize;
        let (page, place) = (piece.pages[position / PAGE], position % PAGE);
        // SAFETY: row and head are this thread's share of this phase, in the projections and in the cache.
        unsafe {
            let first = (row * c.kv_heads + kv_head) * dim;
            let key = p.k.get_mut(first..first + dim);
            pages::norm_and_rotate(key, self.k_norm.as_deref(), self.eps, p.angles(row));
            let keys = kv.part(shape.keys_at(page, at.block, kv_head));
            let values = kv.part(shape.values_at(page, at.block, kv_head));
            let value = p.v.get(first..first + dim);
            run(Keep { key, value, keys: keys.add(place), values: values.add(place * dim) });
        }
    }

    fn run_job<E: Element>(
        &self,
        step: &AttentionStep<'_>,
        at: BlockThread<'_>,
        kv: &SharedBuffer<E>,
        part: &AttentionTask,
        scratch: &mut AttentionScratch,
    ) {
        let config = &self.config;
        let piece = &at.pass.batch.pieces[part.piece];
        let first = piece.first_row + part.row;
        let width = config.query_rows();
        // SAFETY: the rows were finished before the last barrier.
        let qg = unsafe { step.plain.qg.get(first * width..(first + part.rows) * width) };
        let (store, block, kv_head, out) = (at.pass.store, at.block, part.kv_head, step.out);
        run(AttentionJob {
            config,
            start: piece.start + part.row,
            rows: part.rows,
            from: piece.from,
            first_head: part.first_head,
            heads: part.heads,
            qg,
            cache: HeadCache { kv, store, piece, block, kv_head, out, first, config },
            scratch,
            element: PhantomData::<E>,
        });
        let q8 = self.out.input() == RowForm::Q8;
        let cols = part.first_head * config.head_dim..(part.first_head + part.heads) * config.head_dim;
        for row in (first..first + part.rows).filter(|_| q8) {
            // SAFETY: these heads of these rows are this job's alone.
            unsafe { step.out.quantize_part(row, cols.clone()) };
        }
    }
}

/// A step's work in jobs, with their costs.
fn divide(pieces: &[BatchPiece], c: &AttentionConfig) -> (Vec<AttentionTask>, Vec<(usize, u64)>) {
    let (mut jobs, mut costs) = (Vec::new(), Vec::new());
    let group = c.heads / c.kv_heads;
    for (i, piece) in pieces.iter().enumerate() {
        // A lone row parts its heads among threads; rows of a prompt read each page together.
        let heads = if piece.rows == 1 { group.min(4) } else { group.min(QUERIES_MAX) };
        let rows = (QUERIES_MAX / heads).max(1);
        for kv_head in 0..c.kv_heads {
            for row in (0..piece.rows).step_by(rows) {
                for first in (0..group).step_by(heads) {
                    let (rows, heads) = (rows.min(piece.rows - row), heads.min(group - first));
                    let first_head = kv_head * group + first;
                    costs.push((1, (rows * heads * ((piece.start + row) / PAGE + 1)) as u64));
                    jobs.push(AttentionTask { piece: i, row, rows, kv_head, first_head, heads });
                }
            }
        }
    }
    (jobs, costs)
}

/// The cache of one sequence in one block and head.
struct HeadCache<'a, E> {
    kv: &'a SharedBuffer<E>,
    store: &'a Store,
    piece: &'a BatchPiece,
    block: usize,
    kv_head: usize,
    out: RowsView<'a>,
    first: usize,
    config: &'a AttentionConfig,
}

// SAFETY: pages are written in the phase before; rows and heads are divided among jobs.
unsafe impl<E: Element> AttentionIo<E> for HeadCache<'_, E> {
    fn keys(&self, n: usize) -> &[E] {
        // SAFETY: as above.
        unsafe { self.kv.get(self.store.shape.keys_at(self.piece.pages[n], self.block, self.kv_head)) }
    }

    fn values(&self, n: usize) -> &[E] {
        // SAFETY: as above.
        unsafe { self.kv.get(self.store.shape.values_at(self.piece.pages[n], self.block, self.kv_head)) }
    }

    fn out(&self, row: usize, head: usize) -> &mut [f32] {
        let dim = self.config.head_dim;
        // SAFETY: as above.
        unsafe { self.out.part_mut(self.first + row, head * dim..(head + 1) * dim) }
    }
}

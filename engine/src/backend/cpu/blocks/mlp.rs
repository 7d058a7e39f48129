//! A dense feed-forward part, which is also what an expert is.

use super::{BlockThread, Operator, Packing, whole_blocks};
use crate::adapter::AdaptedMatrix;
use crate::backend::cpu::error::CpuError;
use crate::backend::cpu::matmul::{
    ActivationRows, NextTiles, PackedMatrix, RowForm, RowsView, TILE_ROWS, matmul_before,
};
use crate::backend::cpu::pass::adapted::AdaptedProduct;
use crate::backend::cpu::pass::batch::RowBatch;
use crate::backend::cpu::pass::forward::Pass;
use crate::backend::cpu::pass::room::WorkspaceRoom;
use crate::backend::cpu::simd::rowops::{relu2, swiglu};
use crate::backend::cpu::team::shared::SharedBuffer;
use crate::format::{NotFinite, Tensor};
use crate::model::{MlpConfig, MlpWeights};
use std::ops::Range;

/// Output features of gate and up that one unit of work has: one block of the int8 form.
const UNIT: usize = 32;

/// What adapters may change of the matrices that read a row.
pub(super) const GATE_AND_UP: [AdaptedMatrix; 2] = [AdaptedMatrix::Gate, AdaptedMatrix::Up];

/// How many units of work so many columns are.
pub(super) fn units(width: usize) -> usize {
    width.div_ceil(UNIT)
}

/// The columns of some units, of `width` in all, and their tiles.
pub(super) fn columns_of(units: Range<usize>, width: usize) -> (Range<usize>, Range<usize>) {
    let cols = (units.start * UNIT).min(width)..(units.end * UNIT).min(width);
    let tiles = cols.start / TILE_ROWS..cols.end.div_ceil(TILE_ROWS);
    (cols, tiles)
}

/// The feed-forward part's weights, packed for this processor.
pub(crate) struct Mlp {
    /// Where the activation has one.
    pub(super) gate: Option<PackedMatrix>,
    pub(super) up: PackedMatrix,
    pub(super) down: PackedMatrix,
}

/// What stands between its matrices, for some rows.
pub(crate) struct MlpBuffers {
    width: usize,
    gate: SharedBuffer<f32>,
    up: SharedBuffer<f32>,
    act: ActivationRows,
}

/// The buffers in a step.
#[derive(Clone, Copy)]
pub(crate) struct MlpStep<'a> {
    gate: &'a SharedBuffer<f32>,
    up: &'a SharedBuffer<f32>,
    /// What the down matrix reads.
    pub(super) act: RowsView<'a>,
}

impl MlpBuffers {
    /// For `times` rows of a row of the step.
    pub(super) fn new(room: &mut WorkspaceRoom, times: usize, config: &MlpConfig) -> Self {
        let width = config.width;
        let gate = room.floats(if config.activation.is_gated() { times * width } else { 0 });
        let up = room.floats(times * width);
        Self { width, gate, up, act: room.activations(times, width) }
    }

    /// For so many rows.
    pub(super) fn step(&mut self, rows: usize) -> MlpStep<'_> {
        self.act.set_len(rows, self.width);
        MlpStep { gate: &self.gate, up: &self.up, act: self.act.view() }
    }
}

impl Operator for Mlp {
    type Config = MlpConfig;
    type Weights = MlpWeights;
    type Buffers = MlpBuffers;
    type Step<'a> = MlpStep<'a>;

    fn check(config: &MlpConfig) -> Result<(), CpuError> {
        whole_blocks("feed-forward width", config.width)
    }

    fn planned_bytes(weights: &MlpWeights, exact: bool) -> u64 {
        weights.matrices().map(|t| PackedMatrix::planned_bytes(t, exact)).sum()
    }

    fn pack(weights: &MlpWeights, packing: Packing) -> Result<Self, NotFinite> {
        Self::pack_one(weights, 0, packing.exact)
    }

    fn matrices(&self) -> Vec<&PackedMatrix> {
        self.gate.iter().chain([&self.up, &self.down]).collect()
    }

    fn buffers(config: &MlpConfig, room: &mut WorkspaceRoom) -> MlpBuffers {
        MlpBuffers::new(room, 1, config)
    }

    fn step<'a>(buffers: &'a mut MlpBuffers, batch: &RowBatch, _threads: usize) -> MlpStep<'a> {
        buffers.step(batch.rows())
    }

    fn run(&self, step: &MlpStep<'_>, BlockThread { pass, team, norm, scale, block }: BlockThread<'_>) {
        pass.norm(team, norm, self.reads_q8());
        pass.reduce(team, block, &GATE_AND_UP, pass.stream.normed);
        team.share_costs(&[(self.units(), 1)], |_, units| {
            self.activate(pass, pass.stream.normed, &pass.batch.pairs, units, *step, (None, Some(block)));
        });
        team.wait();
        pass.mix(team, &self.down, step.act, scale, Some((block, AdaptedMatrix::Down)));
    }
}

impl Mlp {
    /// Matrix `index` of each stack.
    pub(super) fn pack_one(w: &MlpWeights, index: usize, exact: bool) -> Result<Self, NotFinite> {
        let pack = |t: &Tensor| PackedMatrix::pack(t, index, exact);
        Ok(Self { gate: w.gate.as_ref().map(pack).transpose()?, up: pack(&w.up)?, down: pack(&w.down)? })
    }

    /// Gate and up may be of different types.
    pub(super) fn reads_q8(&self) -> bool {
        self.gate.iter().chain([&self.up]).any(|m| m.input() == RowForm::Q8)
    }

    /// The matrix that [`Mlp::activate`] begins with.
    pub(super) fn first(&self) -> &PackedMatrix {
        self.gate.as_ref().unwrap_or(&self.up)
    }

    /// Units of work of gate and up together.
    pub(super) fn units(&self) -> usize {
        units(self.up.rows())
    }

    /// `silu(gate x) * (up x)`, or `relu(up x)^2` without a gate, for some units and rows: pairs of a row of `x` and
    /// the row of the buffers that it is for. `next` is what the thread reads afterwards, and `changed` the block, if
    /// adapters may change it: its rows are those of the step, and reduced for [`GATE_AND_UP`].
    pub(super) fn activate(
        &self,
        pass: &Pass<'_>,
        x: RowsView<'_>,
        pairs: &[(u32, u32)],
        units: Range<usize>,
        step: MlpStep<'_>,
        (next, changed): (NextTiles<'_>, Option<usize>),
    ) {
        let (width, q8, act) = (self.up.rows(), self.down.input() == RowForm::Q8, step.act);
        let (cols, tiles) = columns_of(units, width);
        let up = Some((&self.up, tiles.start));
        let gate = self.gate.iter().map(|gate| (gate, AdaptedMatrix::Gate, step.gate, up));
        for (m, matrix, made, next) in gate.chain([(&self.up, AdaptedMatrix::Up, step.up, next)]) {
            // SAFETY: these tiles of these rows are this thread's alone.
            let out = unsafe { pass.out(made, act.len(), width) };
            matmul_before(next, m, x, pairs, tiles.clone(), out);
            if let Some(block) = changed {
                AdaptedProduct { block, matrix, made }.add(pass.batch.adapted.as_ref(), cols.clone());
            }
        }
        for (_, out) in pairs {
            let row = *out as usize;
            let part = row * width + cols.start..row * width + cols.end;
            // SAFETY: these columns of the expert's rows are this thread's alone.
            unsafe {
                let out = act.part_mut(row, cols.clone());
                match self.gate {
                    Some(_) => swiglu(step.gate.get(part.clone()), step.up.get(part), out),
                    None => relu2(step.up.get(part), out),
                }
                if q8 {
                    act.quantize_part(row, cols.clone());
                }
            }
        }
    }
}

//! A short convolution between two gates: three projections, the gated values through the convolution, the gate of its
//! output, the out-projection. [`chimere_kernels::reference::short_conv`] is its definition.

use super::conv::Convolution;
use super::{BlockThread, Operator, Packing, whole_blocks};
use crate::backend::cpu::error::CpuError;
use crate::backend::cpu::matmul::{ActivationRows, PackedMatrix, RowForm, RowsView};
use crate::backend::cpu::pass::batch::RowBatch;
use crate::backend::cpu::pass::room::WorkspaceRoom;
use crate::backend::cpu::team::shared::SharedBuffer;
use crate::format::NotFinite;
use crate::model::{ShortConvConfig, ShortConvWeights};
use std::ops::Range;

/// The convolution's weights, packed for this processor.
pub(crate) struct ShortConv {
    /// B, C and x: all read the block's input.
    inputs: [PackedMatrix; 3],
    conv: Convolution,
    out: PackedMatrix,
}

/// What its rows are computed in.
pub(crate) struct ShortConvBuffers {
    config: ShortConvConfig,
    plain: ShortConvProjections,
    out: ActivationRows,
}

/// What the input matrices give.
struct ShortConvProjections {
    /// B and, behind a barrier, what goes into the convolution: B times x.
    gated: SharedBuffer<f32>,
    out_gate: SharedBuffer<f32>,
    values: SharedBuffer<f32>,
}

/// The buffers in a step.
pub(crate) struct ShortConvStep<'a> {
    plain: &'a ShortConvProjections,
    out: RowsView<'a>,
}

impl Operator for ShortConv {
    type Config = ShortConvConfig;
    type Weights = ShortConvWeights;
    type Buffers = ShortConvBuffers;
    type Step<'a> = ShortConvStep<'a>;

    fn check(config: &ShortConvConfig) -> Result<(), CpuError> {
        whole_blocks("channels of a short convolution", config.channels)
    }

    fn planned_bytes(w: &ShortConvWeights, exact: bool) -> u64 {
        [&w.in_gate, &w.out_gate, &w.values, &w.out].into_iter().map(|t| PackedMatrix::planned_bytes(t, exact)).sum()
    }

    fn pack(w: &ShortConvWeights, packing: Packing) -> Result<Self, NotFinite> {
        let pack = |t| PackedMatrix::pack(t, 0, packing.exact);
        Ok(Self {
            inputs: [pack(&w.in_gate)?, pack(&w.out_gate)?, pack(&w.values)?],
            conv: Convolution::new(&w.conv, None, w.config.taps).without_activation(),
            out: pack(&w.out)?,
        })
    }

    fn matrices(&self) -> Vec<&PackedMatrix> {
        self.inputs.iter().chain([&self.out]).collect()
    }

    fn buffers(config: &ShortConvConfig, room: &mut WorkspaceRoom) -> ShortConvBuffers {
        ShortConvBuffers {
            config: *config,
            plain: ShortConvProjections {
                gated: room.floats(config.channels),
                out_gate: room.floats(config.channels),
                values: room.floats(config.channels),
            },
            out: room.activations(1, config.channels),
        }
    }

    fn step<'a>(buffers: &'a mut ShortConvBuffers, batch: &RowBatch, _threads: usize) -> ShortConvStep<'a> {
        let ShortConvBuffers { config, plain, out } = buffers;
        out.set_len(batch.rows(), config.channels);
        ShortConvStep { plain, out: out.view() }
    }

    fn run(&self, step: &ShortConvStep<'_>, at: BlockThread<'_>) {
        let (pass, team, p) = (at.pass, at.team, step.plain);
        pass.norm_for(team, at.norm, &self.inputs);
        pass.project(team, &self.inputs, [&p.gated, &p.out_gate, &p.values], None);
        team.wait();
        let strips = self.conv.strips();
        for unit in team.share(pass.batch.rows() * strips) {
            self.gate(step, unit / strips, self.conv.strip(unit % strips));
        }
        team.wait();
        for unit in team.share(pass.batch.rows() * strips) {
            self.convolve(step, at, unit / strips, self.conv.strip(unit % strips));
        }
        team.wait();
        pass.mix(team, &self.out, step.out, at.scale, None);
        // SAFETY: convolutions are behind a barrier.
        unsafe { self.conv.keep_tails(&p.gated, at) };
    }
}

impl ShortConv {
    /// What of some channels of a row goes into the convolution.
    fn gate(&self, step: &ShortConvStep<'_>, row: usize, channels: Range<usize>) {
        let first = row * self.conv.channels;
        let place = first + channels.start..first + channels.end;
        // SAFETY: projections were finished before the last barrier, and these channels are this thread's.
        let (gated, values) = unsafe { (step.plain.gated.get_mut(place.clone()), step.plain.values.get(place)) };
        gated.iter_mut().zip(values).for_each(|(gate, value)| *gate *= value);
    }

    /// Convolution of some channels of a row, its gate, and the form that the out-projection reads.
    fn convolve(&self, step: &ShortConvStep<'_>, at: BlockThread<'_>, row: usize, channels: Range<usize>) {
        let (p, store) = (step.plain, at.pass.store);
        let piece = at.pass.batch.piece_of(row);
        let first = row * self.conv.channels;
        // SAFETY: what goes into convolutions was finished before the last barrier, tails change only after the next
        // one, and the output is this thread's.
        unsafe {
            let tail = store.tails.get(store.shape.tail_at(piece.slot, at.block));
            let out = step.out.part_mut(row, channels.clone());
            let inputs = p.gated.get(self.conv.rows_of(piece));
            self.conv.run(inputs, tail, row - piece.first_row, channels.start, out);
            let gates = p.out_gate.get(first + channels.start..first + channels.end);
            let out = step.out.part_mut(row, channels.clone());
            out.iter_mut().zip(gates).for_each(|(value, gate)| *value *= gate);
            if self.out.input() == RowForm::Q8 {
                step.out.quantize_part(row, channels);
            }
        }
    }
}

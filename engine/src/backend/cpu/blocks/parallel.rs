//! Attention and Mamba-2 side by side: the stream is normed once for both, and takes one output after the other.

use super::attention::{Attention, AttentionBuffers, AttentionStep};
use super::mamba2::{Mamba2, Mamba2Buffers, Mamba2Step};
use super::{BlockThread, Operator, Packing};
use crate::backend::cpu::error::CpuError;
use crate::backend::cpu::matmul::PackedMatrix;
use crate::backend::cpu::pass::batch::RowBatch;
use crate::backend::cpu::pass::room::WorkspaceRoom;
use crate::format::NotFinite;
use crate::model::{ParallelConfig, ParallelWeights};

/// Weights of both, packed for this processor.
pub(crate) struct Parallel {
    attention: Attention,
    mamba: Mamba2,
}

/// What rows of both are computed in.
pub(crate) struct ParallelBuffers {
    attention: AttentionBuffers,
    mamba: Mamba2Buffers,
}

/// The buffers in a step.
pub(crate) struct ParallelStep<'a> {
    attention: AttentionStep<'a>,
    mamba: Mamba2Step<'a>,
}

impl Operator for Parallel {
    type Config = ParallelConfig;
    type Weights = ParallelWeights;
    type Buffers = ParallelBuffers;
    type Step<'a> = ParallelStep<'a>;

    fn check(config: &ParallelConfig) -> Result<(), CpuError> {
        Attention::check(&config.attention)?;
        Mamba2::check(&config.mamba)
    }

    fn planned_bytes(weights: &ParallelWeights, exact: bool) -> u64 {
        Attention::planned_bytes(&weights.attention, exact) + Mamba2::planned_bytes(&weights.mamba, exact)
    }

    fn pack(weights: &ParallelWeights, packing: Packing) -> Result<Self, NotFinite> {
        let attention = Attention::pack(&weights.attention, packing)?;
        Ok(Self { attention, mamba: Mamba2::pack(&weights.mamba, packing)? })
    }

    fn matrices(&self) -> Vec<&PackedMatrix> {
        self.attention.matrices().into_iter().chain(self.mamba.matrices()).collect()
    }

    fn buffers(config: &ParallelConfig, room: &mut WorkspaceRoom) -> ParallelBuffers {
        ParallelBuffers {
            attention: Attention::buffers(&config.attention, room),
            mamba: Mamba2::buffers(&config.mamba, room),
        }
    }

    fn step<'a>(buffers: &'a mut ParallelBuffers, batch: &RowBatch, threads: usize) -> ParallelStep<'a> {
        ParallelStep {
            attention: Attention::step(&mut buffers.attention, batch, threads),
            mamba: Mamba2::step(&mut buffers.mamba, batch, threads),
        }
    }

    fn begin(step: &ParallelStep<'_>, row: usize, position: u32) {
        Attention::begin(&step.attention, row, position);
    }

    fn run(&self, step: &ParallelStep<'_>, at: BlockThread<'_>) {
        at.pass.norm(at.team, at.norm, self.attention.reads_q8() || self.mamba.reads_q8());
        self.attention.run_normed(&step.attention, at);
        // Both add to the same columns of the stream on the same thread, but read buffers of their own.
        self.mamba.run_normed(&step.mamba, at);
    }
}

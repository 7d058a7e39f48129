//! The test's operator: each channel times a factor. The least that this backend needs of an operator.

use super::{BlockThread, Operator, Packing};
use crate::backend::cpu::error::CpuError;
use crate::backend::cpu::matmul::PackedMatrix;
use crate::backend::cpu::pass::batch::RowBatch;
use crate::backend::cpu::pass::room::WorkspaceRoom;
use crate::format::NotFinite;
use crate::model::{ScaleConfig, ScaleWeights};
use std::marker::PhantomData;

/// The factors that each row is multiplied with, `[hidden]`.
pub(crate) struct Scale(Vec<f32>);

/// Empty: rows are scaled where they lie.
pub(crate) struct ScaleBuffers;

/// Nor in a step.
pub(crate) struct ScaleStep<'a>(PhantomData<&'a ()>);

impl Operator for Scale {
    type Config = ScaleConfig;
    type Weights = ScaleWeights;
    type Buffers = ScaleBuffers;
    type Step<'a> = ScaleStep<'a>;

    fn check(_: &ScaleConfig) -> Result<(), CpuError> {
        Ok(())
    }

    fn planned_bytes(_: &ScaleWeights, _: bool) -> u64 {
        0
    }

    fn pack(weights: &ScaleWeights, _: Packing) -> Result<Self, NotFinite> {
        Ok(Self(weights.factors.clone()))
    }

    fn matrices(&self) -> Vec<&PackedMatrix> {
        Vec::new()
    }

    fn buffers(_: &ScaleConfig, _: &mut WorkspaceRoom) -> ScaleBuffers {
        ScaleBuffers
    }

    fn step<'a>(_: &'a mut ScaleBuffers, _: &RowBatch, _: usize) -> ScaleStep<'a> {
        ScaleStep(PhantomData)
    }

    fn run(&self, _: &ScaleStep<'_>, BlockThread { pass, team, norm, .. }: BlockThread<'_>) {
        let hidden = self.0.len();
        // Ends with a barrier, as every operator has one before it changes the stream.
        pass.norm(team, norm, false);
        for row in team.share(pass.batch.rows()) {
            // SAFETY: the row is this thread's in both buffers.
            let (x, normed) =
                unsafe { (pass.stream.x.get_mut(row * hidden..(row + 1) * hidden), pass.stream.normed.row(row)) };
            x.iter_mut().zip(normed).zip(&self.0).for_each(|((x, y), factor)| *x += y * factor);
        }
    }
}

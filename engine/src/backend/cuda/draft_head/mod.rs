//! Draft models: small models on the device that propose tokens behind a step's samples, before the next step is
//! planned. The rest of the backend knows [`DraftModel`] alone; which kind a model has is known here.

mod backfill;
mod guessing;
mod layer;
mod mtp;

use super::error::CudaResult;
use super::layout::weights::Draft;
use super::network::{BlockLoader, Network};
use super::rank::memory::RankMemory;
use super::rank::pass::Pass;
use super::rank::staging::Staging;
use super::rank::weights::Matrix;
use super::step::leader::{AskedAt, Leader};
use super::step::rows::Row;
use super::step::sampling::{Sampling, WantedOutputs};
use crate::ids::SlotId;
use crate::model::{BlockConfig, Model};
use crate::step::StepPlan;
use chimere_kernels::cuda::Device;
use cudarc::driver::CudaSlice;

/// The model on a device as a draft model computes beside it: both share memory and kernels, one pass after the other.
pub(crate) struct ModelRank<'a> {
    pub(crate) device: &'a Device,
    pub(crate) network: &'a mut Network,
    pub(crate) memory: RankMemory<'a>,
}

/// A model that proposes tokens. Everything is enqueued, and nothing waits for the device; passes use up the residual
/// stream.
pub(crate) trait DraftModel {
    /// Captures the graphs of its passes for as many sequences as there are slots.
    fn capture(&mut self, rank: &mut ModelRank<'_>, slots: usize) -> CudaResult<()>;

    /// Takes note of what a plan copies, clears and restores before its rows.
    fn begin(&mut self, plan: &StepPlan);

    /// Reads the rows of a pass that has just gone through all layers.
    fn observe(&mut self, rank: &mut ModelRank<'_>, pass: &Pass<'_>) -> CudaResult<()>;

    /// Keeps what [`DraftModel::backfill`] will read of the rows of a decode pass that has just gone through all
    /// layers.
    fn keep(&self, rank: &mut ModelRank<'_>, pass: &Pass<'_>) -> CudaResult<()>;

    /// Rows that were kept wait from now on.
    fn defer(&mut self, rows: &[Row]);

    /// Whether rows that wait have to be read before these, whose pass would take their place.
    fn is_due(&self, rows: &[Row]) -> bool;

    /// Reads the rows of these slots that wait. `words`: where the arrays of a pass lie, and how many rows it may have.
    fn backfill(
        &mut self,
        rank: &mut ModelRank<'_>,
        slots: &mut dyn Iterator<Item = SlotId>,
        staging: &Staging,
        words: (&mut CudaSlice<i32>, usize),
    ) -> CudaResult<()>;

    /// Sends who asks for proposals, and how they are drawn.
    fn ask(&mut self, device: &Device, staging: &Staging, asked: &[AskedAt], sampling: &Sampling) -> CudaResult<()>;

    /// Proposes tokens behind what the step sampled; `None` where nobody asks for any that can be made.
    fn propose(
        &mut self,
        device: &Device,
        decode_rows: &CudaSlice<i32>,
        sampling: &Sampling,
        staging: &Staging,
        wanted: &mut WantedOutputs,
    ) -> CudaResult<Option<Leader>>;

    /// Makes the rows of a decode pass that follows the step before, whose outcome the device alone knows. `what`: the
    /// rows as they were planned, what they follow, and that step.
    fn follow(
        &mut self,
        device: &Device,
        staging: &Staging,
        what: (&[Row], &[i32], &Leader),
        decode_rows: &mut CudaSlice<i32>,
        sampling: &mut Sampling,
    ) -> CudaResult<()>;
}

/// Loads the draft model of a model whose layers were loaded before it; `blocks` are its own.
pub(crate) fn load(
    loader: &mut BlockLoader<'_>,
    network: &Network,
    model: &Model,
    blocks: &[BlockConfig],
    weights: Draft<Matrix, CudaSlice<f32>>,
) -> CudaResult<Box<dyn DraftModel>> {
    Ok(Box::new(mtp::MtpHead::new(loader, network, model, blocks, weights)?))
}

//! A backend on one GPU: its parts, and how a plan goes through them.

mod inspection;
mod laps;
mod launch;
mod start;

use crate::backend::cuda::draft_head::DraftModel;
use crate::backend::cuda::error::CudaBackendError;
use crate::backend::cuda::layout::shape::Counts;
use crate::backend::cuda::network::Network;
use crate::backend::cuda::rank::experts::ExpertTier;
use crate::backend::cuda::rank::graphs::Graphs;
use crate::backend::cuda::rank::staging::{Ring, Staging};
use crate::backend::cuda::rank::store::Store;
use crate::backend::cuda::rank::workspace::Workspace;
use crate::backend::cuda::step::history::HistoryKernel;
use crate::backend::cuda::step::host::HostCopies;
use crate::backend::cuda::step::leader::Leader;
use crate::backend::cuda::step::pooling::HiddenSums;
use crate::backend::cuda::step::sampling::{InFlight, Sampling, WantedOutputs};
use crate::backend::cuda::step::stored::StoredStates;
use crate::backend::steps::{self, AwaitedRules, Forward, StepDevice, UnfinishedSteps};
use crate::backend::{Backend, BackendError, BackendInfo, Pending};
use crate::constraint::{Constraint, StepRules};
use crate::ids::StepId;
use crate::step::{StepOutcome, StepPlan};
use chimere_kernels::cuda::Device;
use cudarc::driver::CudaSlice;
use std::sync::Arc;

/// Computes steps on one GPU; the module's head says how.
pub struct CudaBackend {
    info: BackendInfo,
    counts: Counts,
    store: Store,
    stored: StoredStates,
    /// If there is one whose proposals are wanted.
    draft_model: Option<Box<dyn DraftModel>>,
    /// If there is a second tier of the prefix cache.
    host: Option<HostCopies>,
    /// If not all experts lie on the device.
    experts: Option<ExpertTier>,
    work: Workspace,
    /// Experts of the next step's decode rows, if they are given.
    given: Option<Vec<i32>>,
    /// Arrays of a decode pass's bucket, as [`columns`] lays them out.
    decode_rows: CudaSlice<i32>,
    /// Arrays of the rows of prompts, as [`columns`] lays them out.
    prefill_rows: CudaSlice<i32>,
    /// Pieces of the prompts, `[pieces][4]`: slot, position of the first row, number of the first row, rows.
    pieces: CudaSlice<i32>,
    /// `[tiles][2]` of the prompts' attention.
    tiles: CudaSlice<i32>,
    /// `[chunks]`: where states are kept on the way.
    exports: CudaSlice<i32>,
    history: HistoryKernel,
    /// By what the rows of prompts are put into tiles, if a layer attends.
    tiled: Option<chimere_kernels::cuda::attention::AttentionShape>,
    /// Rows whose logits are wanted.
    wanted: CudaSlice<i32>,
    sampling: Sampling,
    pooling: HiddenSums,
    graphs: Graphs,
    /// The first layers of passes with drafts. Such a step is launched when the device has nothing to do, and launching
    /// a graph takes the longer the more it has: the device begins while the host launches the others.
    first_graphs: Graphs,
    network: Network,
    ring: Ring,
    device: Arc<Device>,
    /// Rows of the last forward.
    last_rows: usize,
    /// The last step, if it asked for guesses that another can go on with.
    leader: Option<Leader>,
    steps: UnfinishedSteps<Self>,
}

/// A step whose logits are on their way.
pub(in crate::backend) struct UnsampledStep {
    id: StepId,
    staging: Arc<Staging>,
    wanted: WantedOutputs,
}

impl StepDevice for CudaBackend {
    type Forwarded = UnsampledStep;
    type Finished = InFlight;

    const COMPUTES: bool = false;

    fn capacity(&self) -> &BackendInfo {
        &self.info
    }

    fn steps(&mut self) -> &mut UnfinishedSteps<Self> {
        &mut self.steps
    }

    fn forward(&mut self, plan: &StepPlan, rules: &AwaitedRules<'_>) -> Result<Forward<Self>, BackendError> {
        let forwarded = self.enqueue(plan).map_err(|e| lost(&self.device, plan.id, &e))?;
        Ok(match rules.now() {
            Some(constraints) => Forward::Finished(self.finish(forwarded, &constraints)?),
            None => Forward::Waits(forwarded),
        })
    }

    fn finish(&mut self, forwarded: UnsampledStep, constraints: &[Constraint]) -> Result<InFlight, BackendError> {
        let step = forwarded.id;
        self.sample(forwarded, constraints).map_err(|e| lost(&self.device, step, &e))
    }

    fn outcome(finished: InFlight) -> Result<StepOutcome, BackendError> {
        finished.wait()
    }
}

impl Backend for CudaBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    fn launch(&mut self, plan: StepPlan) -> Result<Pending, BackendError> {
        steps::launch(self, plan)
    }

    fn constrain(&mut self, rules: StepRules) -> Result<(), BackendError> {
        steps::constrain(self, rules)
    }
}

fn lost(device: &Device, step: StepId, error: &CudaBackendError) -> BackendError {
    BackendError::Device { step, why: device.explain(error) }
}

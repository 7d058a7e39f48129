//! Attention and Mamba-2 side by side: both read the rows of one norm, and the residual stream takes one output after
//! the other.

use super::{BlockPass, FirstMatrix, LoadedWeights, OperatorRun, attention, mamba2};
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::operators::operator::Setting;
use crate::backend::cuda::layout::products::RowCount;
use crate::backend::cuda::rank::memory::RankMemory;
use crate::backend::cuda::rank::products::ProductKernels;
use crate::model::{AttentionConfig, Mamba2Config, ParallelConfig};
use chimere_kernels::cuda::{Device, KernelCache};

/// Weights of both on the device, with their products.
pub(crate) struct BoundParallel {
    attention: attention::BoundAttention,
    mamba: mamba2::BoundMamba2,
}

/// The kernels of the attention and of the Mamba-2 mixer that stand side by side.
pub(crate) struct ParallelKernels {
    attention: attention::AttentionKernels,
    mamba: mamba2::Mamba2Kernels,
}

impl OperatorRun for ParallelConfig {
    type Bound = BoundParallel;
    type Kernels = ParallelKernels;

    fn load(&self, device: &Device, cache: &KernelCache, s: &Setting) -> CudaResult<ParallelKernels> {
        Ok(ParallelKernels {
            attention: self.attention.load(device, cache, s)?,
            mamba: self.mamba.load(device, cache, s)?,
        })
    }

    fn bind(
        &self,
        w: LoadedWeights<Self>,
        products: &mut ProductKernels<'_>,
        hidden: usize,
    ) -> CudaResult<BoundParallel> {
        Ok(BoundParallel {
            attention: self.attention.bind(w.attention, products, hidden)?,
            mamba: self.mamba.bind(w.mamba, products, hidden)?,
        })
    }

    fn first(bound: &BoundParallel, rows: RowCount) -> FirstMatrix<'_> {
        FirstMatrix { halves: None, ..AttentionConfig::first(&bound.attention, rows) }
    }

    fn launch(
        bound: &BoundParallel,
        kernels: &mut ParallelKernels,
        at: BlockPass<'_>,
        memory: &mut RankMemory<'_>,
    ) -> CudaResult<()> {
        // What in-projections and mixers write is used up before the other operator writes it anew.
        bound.attention.mix(&mut kernels.attention, at, memory)?;
        bound.attention.projections.write_aside(at, memory.work)?;
        Mamba2Config::launch(&bound.mamba, &mut kernels.mamba, at, memory)
    }
}

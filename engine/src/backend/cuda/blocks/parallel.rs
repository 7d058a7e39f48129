//! Attention and Mamba-2 side by side: both read the rows of one norm, and the residual stream takes one output after
//! the other.

use super::{BlockPass, OperatorRun, attention, mamba2};
use crate::backend::cuda::error::CudaBackendError;
use crate::backend::cuda::layout::operators::operator::Setting;
use crate::backend::cuda::layout::operators::parallel::Weights;
use crate::backend::cuda::rank::products::ProductKernels;
use crate::backend::cuda::rank::store::Store;
use crate::backend::cuda::rank::weights::Matrix;
use crate::backend::cuda::rank::workspace::Workspace;
use crate::model::{AttentionConfig, Mamba2Config, ParallelConfig};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::CudaSlice;

/// Weights of both on the device, with their products.
pub(crate) struct Bound {
    attention: attention::Bound,
    mamba: mamba2::Bound,
}

/// Kernels of both.
pub(crate) struct Kernels {
    attention: attention::Kernels,
    mamba: mamba2::Kernels,
}

impl OperatorRun for ParallelConfig {
    type Bound = Bound;
    type Kernels = Kernels;

    fn load(&self, device: &Device, cache: &KernelCache, s: &Setting) -> Result<Kernels, CudaBackendError> {
        Ok(Kernels { attention: self.attention.load(device, cache, s)?, mamba: self.mamba.load(device, cache, s)? })
    }

    fn bind(
        &self,
        w: Weights<Matrix, CudaSlice<f32>>,
        products: &mut ProductKernels<'_>,
        hidden: usize,
    ) -> Result<Bound, CudaBackendError> {
        Ok(Bound {
            attention: self.attention.bind(w.attention, products, hidden)?,
            mamba: self.mamba.bind(w.mamba, products, hidden)?,
        })
    }

    fn first(bound: &Bound) -> &Matrix {
        AttentionConfig::first(&bound.attention)
    }

    fn launch(
        bound: &Bound,
        kernels: &mut Kernels,
        at: BlockPass<'_>,
        store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        // What in-projections and mixers write is used up before the other operator writes it anew.
        bound.attention.mix(&mut kernels.attention, at, store, work)?;
        bound.attention.projections.write_aside(at, work)?;
        Mamba2Config::launch(&bound.mamba, &mut kernels.mamba, at, store, work)
    }
}

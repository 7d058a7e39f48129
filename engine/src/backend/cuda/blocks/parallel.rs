//! Attention and Mamba-2 side by side: both read the rows of one norm, and the residual stream takes one output after
//! the other.

use super::{BlockPass, Memory, Operator, Setting, WantedProducts, attention, mamba2};
use crate::backend::cuda::error::CudaBackendError;
use crate::backend::cuda::matrices::Kernels as Products;
use crate::backend::cuda::plan::{MatrixPlan, VectorPlan};
use crate::backend::cuda::shape::{Counts, Widths};
use crate::backend::cuda::store::Store;
use crate::backend::cuda::weights::{Matrix, Packed};
use crate::backend::cuda::workspace::Workspace;
use crate::model::{AttentionConfig, Mamba2Config, ParallelConfig, ParallelWeights};
use chimere_kernels::cuda::attention::{AttentionShape, KvType};
use chimere_kernels::cuda::{Device, KernelCache, Program};
use cudarc::driver::CudaSlice;

/// Weights of both, planned or on the device.
pub(in crate::backend::cuda) struct Weights<M, V> {
    attention: attention::Weights<M, V>,
    mamba: mamba2::Weights<M, V>,
}

/// Weights of both on the device, with their products.
pub(in crate::backend::cuda) struct Bound {
    attention: attention::Bound,
    mamba: mamba2::Bound,
}

/// Kernels of both.
pub(in crate::backend::cuda) struct Kernels {
    attention: attention::Kernels,
    mamba: mamba2::Kernels,
}

impl Operator for ParallelConfig {
    type Source = ParallelWeights;
    type Weights<M, V> = Weights<M, V>;
    type Bound = Bound;
    type Kernels = Kernels;

    fn check(&self) -> Result<(), CudaBackendError> {
        self.attention.check()?;
        self.mamba.check()
    }

    fn widths(&self) -> Widths {
        self.attention.widths().widest(self.mamba.widths())
    }

    fn scratch(&self, counts: Counts, hidden: usize) -> usize {
        self.attention.scratch(counts, hidden).max(self.mamba.scratch(counts, hidden))
    }

    fn memory(&self, kv: KvType, drafts: usize) -> Memory {
        let Memory { key_page, value_page, .. } = self.attention.memory(kv, drafts);
        Memory { key_page, value_page, ..self.mamba.memory(kv, drafts) }
    }

    fn takes_drafts(&self) -> bool {
        self.attention.takes_drafts() && self.mamba.takes_drafts()
    }

    fn tiled(&self, eps: f32) -> Option<AttentionShape> {
        self.attention.tiled(eps)
    }

    fn plan(w: &ParallelWeights, scale: f32) -> Weights<MatrixPlan<'_>, VectorPlan<'_>> {
        Weights { attention: AttentionConfig::plan(&w.attention, scale), mamba: Mamba2Config::plan(&w.mamba, scale) }
    }

    fn map<M, V, N, W>(
        w: Weights<M, V>,
        matrix: &mut impl FnMut(M) -> N,
        vector: &mut impl FnMut(V) -> W,
    ) -> Weights<N, W> {
        Weights {
            attention: AttentionConfig::map(w.attention, matrix, vector),
            mamba: Mamba2Config::map(w.mamba, matrix, vector),
        }
    }

    fn products<M: Packed, V>(
        &self,
        w: &Weights<M, V>,
        hidden: usize,
        wanted: &mut WantedProducts,
    ) -> Result<(), CudaBackendError> {
        self.attention.products::<M, V>(&w.attention, hidden, wanted)?;
        self.mamba.products::<M, V>(&w.mamba, hidden, wanted)
    }

    fn programs(&self, s: &Setting) -> Result<Vec<Program>, CudaBackendError> {
        Ok([self.attention.programs(s)?, self.mamba.programs(s)?].concat())
    }

    fn kernel_bytes(&self, s: &Setting) -> usize {
        self.attention.kernel_bytes(s) + self.mamba.kernel_bytes(s)
    }

    fn load(&self, device: &Device, cache: &KernelCache, s: &Setting) -> Result<Kernels, CudaBackendError> {
        Ok(Kernels { attention: self.attention.load(device, cache, s)?, mamba: self.mamba.load(device, cache, s)? })
    }

    fn bind(
        &self,
        w: Weights<Matrix, CudaSlice<f32>>,
        products: &mut Products<'_>,
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

//! Attention and Mamba-2 side by side: both read the rows of one norm, and the residual stream takes one output after
//! the other.

use super::operator::{Memory, OperatorPlan, Setting, WantedProducts};
use super::{attention, mamba2};
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::matrix::{MatrixPlan, Packed, VectorPlan};
use crate::backend::cuda::layout::shape::{Counts, Widths};
use crate::model::{AttentionConfig, Mamba2Config, ParallelConfig, ParallelWeights};
use chimere_kernels::cuda::Program;
use chimere_kernels::cuda::attention::{AttentionShape, KvType};

/// Weights of both, planned or on the device.
pub(crate) struct Weights<M, V> {
    pub(crate) attention: attention::Weights<M, V>,
    pub(crate) mamba: mamba2::Weights<M, V>,
}

impl OperatorPlan for ParallelConfig {
    type Source = ParallelWeights;
    type Weights<M, V> = Weights<M, V>;

    fn check(&self) -> CudaResult<()> {
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

    fn products<M: Packed, V>(&self, w: &Weights<M, V>, hidden: usize, wanted: &mut WantedProducts) -> CudaResult<()> {
        self.attention.products::<M, V>(&w.attention, hidden, wanted)?;
        self.mamba.products::<M, V>(&w.mamba, hidden, wanted)
    }

    fn programs(&self, s: &Setting) -> CudaResult<Vec<Program>> {
        Ok([self.attention.programs(s)?, self.mamba.programs(s)?].concat())
    }

    fn kernel_bytes(&self, s: &Setting) -> usize {
        self.attention.kernel_bytes(s) + self.mamba.kernel_bytes(s)
    }
}

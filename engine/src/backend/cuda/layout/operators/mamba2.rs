//! A Mamba-2 block: one product of the projections, the rule over its rows, the out-projection into the residual
//! stream.
//!
//! Its state is written at every position: it has no updates that a state may lack.

use super::operator::{Memory, OperatorPlan, Setting, WantedProducts, supported};
use super::projections::Projections;
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::matrix::{MatrixPlan, Packed, TensorRows, VectorPlan};
use crate::backend::cuda::layout::shape::{Counts, Widths};
use crate::model::{Mamba2Config, Mamba2Weights};
use chimere_kernels::cuda::Program;
use chimere_kernels::cuda::attention::KvType;
use chimere_kernels::cuda::mamba2::{self, Counters, Mamba2Shape};
use chimere_kernels::cuda::quantized::Planes;

/// Mamba-2's weights, planned or on the device.
pub(crate) struct Weights<M, V> {
    /// Inputs z | x | B | C | step sizes.
    pub(crate) projections: Projections<M>,
    /// `[channels, taps]`, the last tap is the current token's.
    pub(crate) conv: V,
    /// Bias of each channel of the convolution, `[channels]`; zeros where the model has none.
    pub(crate) conv_bias: V,
    /// Decay rate of each head, `-exp(A_log)`, `[H]`.
    pub(crate) a_neg: V,
    /// Factor with which the input of a head passes by the state, `[H]`.
    pub(crate) d: V,
    /// Bias of each head's step size, `[H]`.
    pub(crate) dt_bias: V,
    /// Weight of the norm of the output, `[H * P]`; zeros where the model has none.
    pub(crate) norm: V,
}

/// Sizes as the kernels name them.
pub(crate) fn shape(m: &Mamba2Config, planes: Planes) -> Mamba2Shape {
    let Mamba2Config { heads, head_dim, state_dim, groups, normed, .. } = *m;
    Mamba2Shape { heads, head_dim, state_dim, groups, normed, planes }
}

/// Values that a model may leave out.
fn given(values: Option<&Vec<f32>>, len: usize) -> VectorPlan<'_> {
    values.map_or(VectorPlan::Zeros(len), |values| VectorPlan::Values(values))
}

impl OperatorPlan for Mamba2Config {
    type Source = Mamba2Weights;
    type Weights<M, V> = Weights<M, V>;

    fn check(&self) -> CudaResult<()> {
        let taps = self.conv_taps == mamba2::TAPS;
        supported(taps, "a convolution's window", format_args!("{} taps", self.conv_taps), "4 taps")?;
        Ok(shape(self, Planes::One).check()?)
    }

    fn widths(&self) -> Widths {
        Widths { inputs: shape(self, Planes::One).inputs(), mixed: self.values(), ..Widths::default() }
    }

    fn scratch(&self, counts: Counts, _hidden: usize) -> usize {
        let (shape, pieces) = (shape(self, Planes::One), counts.slots);
        mamba2::scratch(shape, counts.decode, 0).max(mamba2::scratch(shape, counts.prefill, pieces))
    }

    fn takes_drafts(&self) -> bool {
        // It has its state in registers of one step alone: what a row changes cannot be taken back.
        false
    }

    fn memory(&self, _kv: KvType, _drafts: usize) -> Memory {
        let shape = shape(self, Planes::One);
        Memory { state: shape.state(), ring: shape.tail(), ..Memory::default() }
    }

    fn plan(w: &Mamba2Weights, scale: f32) -> Weights<MatrixPlan<'_>, VectorPlan<'_>> {
        let (config, inputs) = (w.config, [&w.z, &w.xbc, &w.dt].map(TensorRows::whole).to_vec());
        Weights {
            projections: Projections::plan(inputs, &w.out, w.z.cols(), scale),
            conv: VectorPlan::Values(&w.conv),
            conv_bias: given(w.conv_bias.as_ref(), config.channels()),
            a_neg: VectorPlan::Values(&w.a_neg),
            d: VectorPlan::Values(&w.d),
            dt_bias: VectorPlan::Values(&w.dt_bias),
            norm: given(w.norm.as_ref(), config.values()),
        }
    }

    fn products<M: Packed, V>(&self, w: &Weights<M, V>, hidden: usize, wanted: &mut WantedProducts) -> CudaResult<()> {
        w.projections.products(hidden, wanted)
    }

    fn map<M, V, N, W>(
        w: Weights<M, V>,
        matrix: &mut impl FnMut(M) -> N,
        vector: &mut impl FnMut(V) -> W,
    ) -> Weights<N, W> {
        Weights {
            projections: w.projections.map(matrix),
            conv: vector(w.conv),
            conv_bias: vector(w.conv_bias),
            a_neg: vector(w.a_neg),
            d: vector(w.d),
            dt_bias: vector(w.dt_bias),
            norm: vector(w.norm),
        }
    }

    fn programs(&self, s: &Setting) -> CudaResult<Vec<Program>> {
        Ok(vec![mamba2::program(shape(self, s.planes))?])
    }

    fn kernel_bytes(&self, s: &Setting) -> usize {
        Counters::bytes(shape(self, s.planes), s.counts.decode)
    }
}

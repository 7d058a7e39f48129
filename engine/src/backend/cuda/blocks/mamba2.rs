//! A Mamba-2 block: one product of the projections, the rule over its rows, the out-projection into the residual
//! stream.
//!
//! Its state is written at every position: it has no updates that a state may lack.

use super::projections::{BoundProjections, Projections};
use super::{BlockPass, Memory, Operator, Setting, WantedProducts, supported};
use crate::backend::cuda::error::CudaBackendError;
use crate::backend::cuda::matrices::Kernels as Products;
use crate::backend::cuda::plan::{MatrixPlan, TensorRows, VectorPlan};
use crate::backend::cuda::shape::{Counts, Widths};
use crate::backend::cuda::store::Store;
use crate::backend::cuda::weights::{Matrix, Packed};
use crate::backend::cuda::workspace::Workspace;
use crate::model::{Mamba2Config, Mamba2Weights};
use chimere_kernels::cuda::attention::KvType;
use chimere_kernels::cuda::gdn_prefill::{MixedRows, Pieces};
use chimere_kernels::cuda::mamba2::{self, Counters, Mamba2, Mamba2Shape};
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::{Device, KernelCache, Program};
use cudarc::driver::CudaSlice;

/// Mamba-2's weights, planned or on the device.
pub(in crate::backend::cuda) struct Weights<M, V> {
    /// Inputs z | x | B | C | step sizes.
    pub(in crate::backend::cuda) projections: Projections<M>,
    /// `[channels, taps]`, the last tap is the current token's.
    conv: V,
    /// `[channels]`.
    conv_bias: V,
    /// `-exp(A_log)`, `[H]`.
    a_neg: V,
    /// `[H]`.
    d: V,
    /// `[H]`.
    dt_bias: V,
    /// `[H * P]`.
    norm: V,
}

/// Its weights on the device, with their products.
pub(in crate::backend::cuda) struct Bound {
    projections: BoundProjections,
    conv: CudaSlice<f32>,
    conv_bias: CudaSlice<f32>,
    a_neg: CudaSlice<f32>,
    d: CudaSlice<f32>,
    dt_bias: CudaSlice<f32>,
    norm: CudaSlice<f32>,
}

/// Kernels of all such blocks, and what their launches count in.
pub(in crate::backend::cuda) struct Kernels {
    kernels: Mamba2,
    counters: Counters,
}

/// Sizes as the kernels name them.
fn shape(m: &Mamba2Config, planes: Planes) -> Mamba2Shape {
    let Mamba2Config { heads, head_dim, state_dim, groups, normed, .. } = *m;
    Mamba2Shape { heads, head_dim, state_dim, groups, normed, planes }
}

/// Values that a model may leave out.
fn given(values: Option<&Vec<f32>>, len: usize) -> VectorPlan<'_> {
    values.map_or(VectorPlan::Zeros(len), |values| VectorPlan::Values(values))
}

impl Operator for Mamba2Config {
    type Source = Mamba2Weights;
    type Weights<M, V> = Weights<M, V>;
    type Bound = Bound;
    type Kernels = Kernels;

    fn check(&self) -> Result<(), CudaBackendError> {
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

    fn products<M: Packed, V>(
        &self,
        w: &Weights<M, V>,
        hidden: usize,
        wanted: &mut WantedProducts,
    ) -> Result<(), CudaBackendError> {
        w.projections.products(hidden, wanted)
    }

    fn programs(&self, s: &Setting) -> Result<Vec<Program>, CudaBackendError> {
        Ok(vec![mamba2::program(shape(self, s.planes))?])
    }

    fn kernel_bytes(&self, s: &Setting) -> usize {
        Counters::bytes(shape(self, s.planes), s.counts.decode)
    }

    fn load(&self, device: &Device, cache: &KernelCache, s: &Setting) -> Result<Kernels, CudaBackendError> {
        let shape = shape(self, s.planes);
        let counters = Counters::new(device, shape, s.counts.decode)?;
        Ok(Kernels { kernels: Mamba2::load(device, cache, shape)?, counters })
    }

    fn bind(
        &self,
        w: Weights<Matrix, CudaSlice<f32>>,
        products: &mut Products<'_>,
        hidden: usize,
    ) -> Result<Bound, CudaBackendError> {
        Ok(Bound {
            projections: BoundProjections::new(products, w.projections, hidden)?,
            conv: w.conv,
            conv_bias: w.conv_bias,
            a_neg: w.a_neg,
            d: w.d,
            dt_bias: w.dt_bias,
            norm: w.norm,
        })
    }

    fn first(bound: &Bound) -> &Matrix {
        bound.projections.first()
    }

    fn launch(
        bound: &Bound,
        kernels: &mut Kernels,
        at: BlockPass<'_>,
        store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        bound.projections.read(at, work)?;
        mix(bound, kernels, at, store, work)?;
        bound.projections.write(at, work)
    }
}

/// Convolution, rule, gate and norm of all rows.
fn mix(
    bound: &Bound,
    Kernels { kernels, counters }: &mut Kernels,
    at: BlockPass<'_>,
    store: &mut Store,
    work: &mut Workspace,
) -> Result<(), CudaBackendError> {
    let layer = mamba2::LayerWeights {
        taps: &bound.conv.as_view(),
        conv_bias: &bound.conv_bias.as_view(),
        a_neg: &bound.a_neg.as_view(),
        d: &bound.d.as_view(),
        dt_bias: &bound.dt_bias.as_view(),
        norm: &bound.norm.as_view(),
        eps: at.eps,
    };
    let mut kept = store.recurrent(at.place.recurrent);
    let memory = mamba2::Memory { state: &mut kept.states, tail: &mut kept.rings };
    let (x, scratch) = (work.inputs.as_view(), &mut work.scratch.as_view_mut());
    let (mut codes, mut meta) = work.mixed.views_mut();
    let out = MixedRows { codes: &mut codes, meta: &mut meta };
    match &at.pass.prompts {
        None => {
            let (count, slots, positions) = (at.pass.rows.count, &at.pass.slots, &at.pass.positions);
            let rows = mamba2::StepRows { count, slots, positions };
            // SAFETY: slots were checked against the store, no two rows of a pass share one, and what the kernel reads
            // early was written by the step before.
            Ok(unsafe { kernels.decode(at.device, rows, &x, layer, memory, counters, scratch, out) }?)
        }
        Some(p) => {
            let pieces = Pieces { list: p.pieces, count: p.count, rows: at.pass.rows.count, exports: p.exports };
            // SAFETY: pieces follow one another, begin at whole chunks and have slots of their own.
            Ok(unsafe { kernels.prefill(at.device, pieces, &x, layer, memory, scratch, out) }?)
        }
    }
}

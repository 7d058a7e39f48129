//! A Mamba-2 block: one product of the projections, the rule over its rows, the out-projection into the residual
//! stream.
//!
//! Its state is written at every position: it has no updates that a state may lack.

use super::projections::BoundProjections;
use super::{BlockPass, OperatorRun};
use crate::backend::cuda::error::CudaBackendError;
use crate::backend::cuda::layout::operators::mamba2::{Weights, shape};
use crate::backend::cuda::layout::operators::operator::Setting;
use crate::backend::cuda::rank::products::ProductKernels;
use crate::backend::cuda::rank::store::Store;
use crate::backend::cuda::rank::weights::Matrix;
use crate::backend::cuda::rank::workspace::Workspace;
use crate::model::Mamba2Config;
use chimere_kernels::cuda::gdn_prefill::{MixedRows, Pieces};
use chimere_kernels::cuda::mamba2::{self, Counters, Mamba2};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::CudaSlice;

/// Its weights on the device, with their products.
pub(crate) struct Bound {
    projections: BoundProjections,
    conv: CudaSlice<f32>,
    conv_bias: CudaSlice<f32>,
    a_neg: CudaSlice<f32>,
    d: CudaSlice<f32>,
    dt_bias: CudaSlice<f32>,
    norm: CudaSlice<f32>,
}

/// Kernels of all such blocks, and what their launches count in.
pub(crate) struct Kernels {
    kernels: Mamba2,
    counters: Counters,
}

impl OperatorRun for Mamba2Config {
    type Bound = Bound;
    type Kernels = Kernels;

    fn load(&self, device: &Device, cache: &KernelCache, s: &Setting) -> Result<Kernels, CudaBackendError> {
        let shape = shape(self, s.planes);
        let counters = Counters::new(device, shape, s.counts.decode)?;
        Ok(Kernels { kernels: Mamba2::load(device, cache, shape)?, counters })
    }

    fn bind(
        &self,
        w: Weights<Matrix, CudaSlice<f32>>,
        products: &mut ProductKernels<'_>,
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
    let memory = mamba2::Mamba2State { state: &mut kept.states, tail: &mut kept.rings };
    let (x, scratch) = (work.inputs.as_view(), &mut work.scratch.as_view_mut());
    let (mut codes, mut meta) = work.mixed.views_mut();
    let out = MixedRows { codes: &mut codes, meta: &mut meta };
    match &at.pass.prompts {
        None => {
            let (count, slots, positions) = (at.pass.rows.count, &at.pass.slots, &at.pass.positions);
            let rows = mamba2::Mamba2Rows { count, slots, positions };
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

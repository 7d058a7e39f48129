//! A Mamba-2 block: one product of the projections, the rule over its rows, the out-projection into the residual
//! stream.
//!
//! Its state is written at every position: it has no updates that a state may lack.

use super::projections::BoundProjections;
use super::{BlockPass, FirstMatrix, LoadedWeights, OperatorRun};
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::operators::mamba2::shape;
use crate::backend::cuda::layout::operators::operator::Setting;
use crate::backend::cuda::layout::products::RowCount;
use crate::backend::cuda::rank::memory::RankMemory;
use crate::backend::cuda::rank::products::ProductKernels;
use crate::model::Mamba2Config;
use chimere_kernels::cuda::gdn_prefill::{MixedRows, Pieces};
use chimere_kernels::cuda::mamba2::{self, Counters, Mamba2};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::CudaSlice;

/// Its weights on the device, with their products.
pub(crate) struct BoundMamba2 {
    projections: BoundProjections,
    conv: CudaSlice<f32>,
    conv_bias: CudaSlice<f32>,
    a_neg: CudaSlice<f32>,
    d: CudaSlice<f32>,
    dt_bias: CudaSlice<f32>,
    norm: CudaSlice<f32>,
}

/// Kernels of all such blocks, and what their launches count in.
pub(crate) struct Mamba2Kernels {
    kernels: Mamba2,
    counters: Counters,
}

impl OperatorRun for Mamba2Config {
    type Bound = BoundMamba2;
    type Kernels = Mamba2Kernels;

    fn load(&self, device: &Device, cache: &KernelCache, s: &Setting) -> CudaResult<Mamba2Kernels> {
        let shape = shape(self, s.planes);
        let counters = Counters::new(device, shape, s.counts.decode)?;
        Ok(Mamba2Kernels { kernels: Mamba2::load(device, cache, shape)?, counters })
    }

    fn bind(
        &self,
        w: LoadedWeights<Self>,
        products: &mut ProductKernels<'_>,
        hidden: usize,
    ) -> CudaResult<BoundMamba2> {
        Ok(BoundMamba2 {
            projections: BoundProjections::new(products, w.projections, hidden)?,
            conv: w.conv,
            conv_bias: w.conv_bias,
            a_neg: w.a_neg,
            d: w.d,
            dt_bias: w.dt_bias,
            norm: w.norm,
        })
    }

    fn first(bound: &BoundMamba2, rows: RowCount) -> FirstMatrix<'_> {
        FirstMatrix { halves: None, ..bound.projections.first(rows) }
    }

    fn launch(
        bound: &BoundMamba2,
        kernels: &mut Mamba2Kernels,
        at: BlockPass<'_>,
        memory: &mut RankMemory<'_>,
    ) -> CudaResult<()> {
        bound.projections.read(at, memory.work)?;
        mix(bound, kernels, at, memory)?;
        bound.projections.write(at, memory.work)
    }
}

/// Convolution, rule, gate and norm of all rows.
fn mix(
    bound: &BoundMamba2,
    kernels: &mut Mamba2Kernels,
    at: BlockPass<'_>,
    memory: &mut RankMemory<'_>,
) -> CudaResult<()> {
    let Mamba2Kernels { kernels, counters } = kernels;
    let layer = mamba2::LayerWeights {
        taps: &bound.conv.as_view(),
        conv_bias: &bound.conv_bias.as_view(),
        a_neg: &bound.a_neg.as_view(),
        d: &bound.d.as_view(),
        dt_bias: &bound.dt_bias.as_view(),
        norm: &bound.norm.as_view(),
        eps: at.eps,
    };
    let RankMemory { store, work } = memory;
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

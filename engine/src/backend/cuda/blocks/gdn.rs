//! A gated-delta block: one product of four projections, the rule over its rows, the out-projection into the residual
//! stream.

use super::projections::BoundProjections;
use super::{BlockPass, FirstMatrix, LoadedWeights, OperatorRun};
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::operators::gdn::{drafts, heads};
use crate::backend::cuda::layout::operators::operator::Setting;
use crate::backend::cuda::layout::products::RowCount;
use crate::backend::cuda::rank::memory::RankMemory;
use crate::backend::cuda::rank::products::ProductKernels;
use crate::model::GdnConfig;
use chimere_kernels::cuda::gdn_decode::{self, GdnDecode};
use chimere_kernels::cuda::gdn_prefill::{self, GdnPrefill};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::CudaSlice;

/// Its weights on the device, with their products.
pub(crate) struct BoundGdn {
    projections: BoundProjections,
    conv: CudaSlice<f32>,
    a_neg: CudaSlice<f32>,
    dt_bias: CudaSlice<f32>,
    norm: CudaSlice<f32>,
}

/// Kernels of all such blocks.
pub(crate) struct GdnKernels {
    decode: GdnDecode,
    /// For passes with drafted rows or behind such, if there are any.
    drafting: Option<GdnDecode>,
    prefill: GdnPrefill,
}

impl OperatorRun for GdnConfig {
    type Bound = BoundGdn;
    type Kernels = GdnKernels;

    fn load(&self, device: &Device, cache: &KernelCache, s: &Setting) -> CudaResult<GdnKernels> {
        let (heads, stride) = (heads(self), heads(self).inputs());
        let prefill = GdnPrefill::load(device, cache, heads, stride, s.planes)?;
        let mut decode = drafts(s).map(|drafts| GdnDecode::load(device, cache, heads, stride, s.planes, drafts));
        let without = decode.next().expect("passes without drafts are always there")?;
        Ok(GdnKernels { decode: without, drafting: decode.next().transpose()?, prefill })
    }

    fn bind(&self, w: LoadedWeights<Self>, products: &mut ProductKernels<'_>, hidden: usize) -> CudaResult<BoundGdn> {
        Ok(BoundGdn {
            projections: BoundProjections::new(products, w.projections, hidden)?.mixing_halves(self.values()),
            conv: w.conv,
            a_neg: w.a_neg,
            dt_bias: w.dt_bias,
            norm: w.norm,
        })
    }

    fn first(bound: &BoundGdn, rows: RowCount) -> FirstMatrix<'_> {
        bound.projections.first(rows)
    }

    fn launch(
        bound: &BoundGdn,
        kernels: &mut GdnKernels,
        at: BlockPass<'_>,
        memory: &mut RankMemory<'_>,
    ) -> CudaResult<()> {
        let halves = at.pass.prompts.is_some() && kernels.prefill.half_inputs();
        bound.projections.read_as(at, memory.work, halves)?;
        mix(bound, kernels, at, memory)?;
        bound.projections.write(at, memory.work)
    }
}

/// Convolution, rule and gated norm of all rows.
fn mix(bound: &BoundGdn, kernels: &GdnKernels, at: BlockPass<'_>, memory: &mut RankMemory<'_>) -> CudaResult<()> {
    let weights = gdn_decode::LayerWeights {
        taps: &bound.conv.as_view(),
        decay: &bound.a_neg.as_view(),
        dt_bias: &bound.dt_bias.as_view(),
        norm: &bound.norm.as_view(),
        eps: at.eps,
    };
    let RankMemory { store, work } = memory;
    let mut kept = store.recurrent(at.place.recurrent);
    let memory = gdn_decode::GdnState { state: &mut kept.states, tail: &mut kept.rings };
    let x = work.inputs.as_view();
    let (mut codes, mut meta) = work.mixed.views_mut();
    match &at.pass.prompts {
        None => {
            let rows = gdn_decode::GdnRows {
                count: at.pass.rows.count,
                slots: &at.pass.slots,
                positions: &at.pass.positions,
                pending: &at.pass.pending,
                drafted: &at.pass.drafted,
            };
            let updates = gdn_decode::Updates(&mut kept.updates);
            let decode = kernels.drafting.as_ref().filter(|_| at.pass.drafts).unwrap_or(&kernels.decode);
            // SAFETY: slots were checked against the store, rows that share one are a piece with its drafts, what the
            // kernel reads early was written by the step before, and `StoredStates` counts what is pending.
            Ok(unsafe { decode.launch(at.device, rows, &x, weights, memory, updates, &mut codes, &mut meta) }?)
        }
        Some(p) => {
            let pieces =
                gdn_prefill::Pieces { list: p.pieces, count: p.count, rows: at.pass.rows.count, exports: p.exports };
            let halves = bound.projections.mixes_halves(at).then_some(&work.made);
            let out = (gdn_prefill::MixedRows { codes: &mut codes, meta: &mut meta }, halves);
            let scratch = &mut work.scratch.as_view_mut();
            // SAFETY: pieces follow one another, begin at whole chunks and have slots of their own.
            Ok(unsafe { kernels.prefill.launch(at.device, pieces, &x, weights, memory, scratch, out) }?)
        }
    }
}

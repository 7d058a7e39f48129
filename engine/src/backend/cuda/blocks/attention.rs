//! An attention block: one product of three projections, attention over the paged cache, the out-projection into the
//! residual stream.
//!
//! Heads of a width that no kernel has are taken for wider ones: rows of zeros stand behind each head's in the
//! in-projections, so that what is added to its scores and what it puts out there are zeros.

use super::projections::BoundProjections;
use super::{BlockPass, FirstMatrix, LoadedWeights, OperatorRun};
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::operators::attention::{drafting, shape_in};
use crate::backend::cuda::layout::operators::operator::{OperatorPlan, Setting};
use crate::backend::cuda::layout::products::RowCount;
use crate::backend::cuda::rank::memory::RankMemory;
use crate::backend::cuda::rank::products::ProductKernels;
use crate::model::AttentionConfig;
use chimere_kernels::cuda::attention::{self, Attention};
use chimere_kernels::cuda::{CudaError, Device, KernelCache};
use cudarc::driver::{CudaSlice, CudaView};

/// Its weights on the device, with their products.
pub(crate) struct BoundAttention {
    pub(crate) projections: BoundProjections,
    q_norm: CudaSlice<f32>,
    k_norm: CudaSlice<f32>,
}

/// Kernels of all such blocks, and their scratch.
pub(crate) struct AttentionKernels {
    attention: Attention,
    /// For passes with drafted rows, if there are any.
    drafting: Option<Attention>,
    scratch: attention::DecodeScratch,
}

impl OperatorRun for AttentionConfig {
    type Bound = BoundAttention;
    type Kernels = AttentionKernels;

    fn load(&self, device: &Device, cache: &KernelCache, s: &Setting) -> CudaResult<AttentionKernels> {
        let shape = shape_in(self, s);
        let scratch = attention::DecodeScratch::new(device, shape, s.counts.decode, s.context)?;
        let load = |shape| Attention::load(device, cache, shape, s.kv);
        Ok(AttentionKernels { attention: load(shape)?, drafting: drafting(self, s).map(load).transpose()?, scratch })
    }

    fn bind(
        &self,
        w: LoadedWeights<Self>,
        products: &mut ProductKernels<'_>,
        hidden: usize,
    ) -> CudaResult<BoundAttention> {
        let width = self.widths().mixed;
        let projections = BoundProjections::new(products, w.projections, hidden)?.mixing_halves(width);
        Ok(BoundAttention { projections, q_norm: w.q_norm, k_norm: w.k_norm })
    }

    fn first(bound: &BoundAttention, rows: RowCount) -> FirstMatrix<'_> {
        bound.projections.first(rows)
    }

    fn launch(
        bound: &BoundAttention,
        kernels: &mut AttentionKernels,
        at: BlockPass<'_>,
        memory: &mut RankMemory<'_>,
    ) -> CudaResult<()> {
        bound.mix(kernels, at, memory)?;
        bound.projections.write(at, memory.work)
    }

    fn remember(
        bound: &BoundAttention,
        kernels: &mut AttentionKernels,
        at: BlockPass<'_>,
        memory: &mut RankMemory<'_>,
    ) -> CudaResult<()> {
        bound.projections.read(at, memory.work)?;
        with_cache(bound, (at, false), memory, |rows, x, norms, cache, out| {
            // SAFETY: as in `attend`.
            unsafe { kernels.attention.write(at.device, rows, x, norms, cache, out) }
        })
    }
}

impl BoundAttention {
    /// All but the out-projection: from the residual stream into the mixed rows of the workspace.
    pub(crate) fn mix(
        &self,
        kernels: &mut AttentionKernels,
        at: BlockPass<'_>,
        memory: &mut RankMemory<'_>,
    ) -> CudaResult<()> {
        self.projections.read_as(at, memory.work, reads_halves(kernels, at))?;
        attend(self, kernels, at, memory)
    }
}

/// Whether input rows are f16: those of prompts.
fn reads_halves(kernels: &AttentionKernels, at: BlockPass<'_>) -> bool {
    at.pass.prompts.is_some() && kernels.attention.half_inputs()
}

/// Norms, rotation, the cache's new entries, and attention over all of them.
fn attend(
    bound: &BoundAttention,
    kernels: &mut AttentionKernels,
    at: BlockPass<'_>,
    memory: &mut RankMemory<'_>,
) -> CudaResult<()> {
    let halves = reads_halves(kernels, at);
    let AttentionKernels { attention, drafting, scratch } = kernels;
    let decode = drafting.as_ref().filter(|_| at.pass.drafts).unwrap_or(attention);
    with_cache(bound, (at, halves), memory, |rows, x, norms, cache, out| {
        // SAFETY: slots, positions and pages were checked when the step was planned; rows of a decode pass that share a
        // slot are a piece with its drafts, tiles were made of the prefill's pieces; tables and earlier positions were
        // written before this step's first kernel.
        unsafe {
            match &at.pass.prompts {
                None => decode.decode(at.device, rows, x, norms, cache, scratch, out),
                Some(p) => attention.prefill(at.device, rows, (p.tiles, p.tile_count), x, norms, cache, out),
            }
        }
    })
}

/// Calls `launch` with the pass's rows, what the in-projections left of them, as f16 or not, and the block's part of
/// the cache.
fn with_cache(
    bound: &BoundAttention,
    (at, half_inputs): (BlockPass<'_>, bool),
    memory: &mut RankMemory<'_>,
    launch: impl FnOnce(
        attention::AttentionRows<'_>,
        &CudaView<'_, f32>,
        attention::Norms<'_>,
        attention::Cache<'_, '_>,
        attention::Out<'_, '_>,
    ) -> Result<(), CudaError>,
) -> CudaResult<()> {
    let norms = attention::Norms { query: &bound.q_norm.as_view(), key: &bound.k_norm.as_view() };
    let RankMemory { store, work } = memory;
    let pages_max = store.shape.table;
    let mut kv = store.kv(at.place.cached);
    let rows = attention::AttentionRows {
        count: at.pass.rows.count,
        slots: &at.pass.slots,
        positions: &at.pass.positions,
        page_table: &kv.table,
        pages_max,
        half_inputs,
    };
    let cache = attention::Cache { keys: &mut kv.keys, values: &mut kv.values };
    let x = work.inputs.as_view();
    let (mut codes, mut meta) = work.mixed.views_mut();
    let halves = bound.projections.mixes_halves(at).then_some(&work.made);
    let out = attention::Out { codes: &mut codes, meta: &mut meta, halves };
    Ok(launch(rows, &x, norms, cache, out)?)
}

//! An attention block: one product of three projections, attention over the paged cache, the out-projection into the
//! residual stream.
//!
//! Heads of a width that no kernel has are taken for wider ones: rows of zeros stand behind each head's in the
//! in-projections, so that what is added to its scores and what it puts out there are zeros.

use super::projections::{BoundProjections, Projections};
use super::{BlockPass, Memory, Operator, Setting, WantedProducts, supported};
use crate::backend::cuda::error::CudaBackendError;
use crate::backend::cuda::matrices::{Kernels as Products, RowCount};
use crate::backend::cuda::pack::Heads;
use crate::backend::cuda::plan::{MatrixPlan, TensorRows, VectorPlan};
use crate::backend::cuda::shape::Widths;
use crate::backend::cuda::store::Store;
use crate::backend::cuda::weights::{Matrix, Packed};
use crate::backend::cuda::workspace::Workspace;
use crate::model::{AttentionConfig, AttentionWeights, Rope};
use chimere_kernels::cuda::attention::{self, Attention, AttentionShape, KvType};
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::wide::HalfPlace;
use chimere_kernels::cuda::{CudaError, Device, KernelCache, Program};
use cudarc::driver::{CudaSlice, CudaView};

/// Attention's weights, planned or on the device.
pub(in crate::backend::cuda) struct Weights<M, V> {
    /// Inputs q (per head D of query, then D of gate) | k | v.
    pub(in crate::backend::cuda) projections: Projections<M>,
    /// `[D]`.
    q_norm: V,
    /// `[D]`.
    k_norm: V,
}

/// Its weights on the device, with their products.
pub(in crate::backend::cuda) struct Bound {
    pub(super) projections: BoundProjections,
    q_norm: CudaSlice<f32>,
    k_norm: CudaSlice<f32>,
}

/// Kernels of all such blocks, and their scratch.
pub(in crate::backend::cuda) struct Kernels {
    attention: Attention,
    /// For passes with drafted rows, if there are any.
    drafting: Option<Attention>,
    scratch: attention::Scratch,
}

/// The zeros behind heads, where no kernel has their width.
fn heads(a: &AttentionConfig) -> Option<Heads> {
    let padded = attention::DIMS.into_iter().find(|dim| *dim >= a.head_dim)?;
    (padded != a.head_dim && a.head_dim.is_multiple_of(32)).then_some(Heads { own: a.head_dim, padded })
}

/// Heads as the kernels name them, with outputs of one plane.
fn shape(a: &AttentionConfig, eps: f32) -> AttentionShape {
    let rope = a.rope.unwrap_or(Rope { dim: 0, theta: 1.0 });
    let widened = |values: usize| heads(a).map_or(values, |heads| heads.widened(values));
    AttentionShape {
        dim: widened(a.head_dim),
        heads: a.heads,
        kv_heads: a.kv_heads,
        rotary: rope.dim,
        theta: rope.theta,
        eps,
        gated: a.gated,
        normed: a.qk_norm,
        scale: a.scale,
        stride: widened(a.query_rows() + 2 * a.keys()),
        planes: Planes::One,
        drafts: 0,
    }
}

/// The shape of a backend's kernels, for passes without drafts.
fn shape_in(a: &AttentionConfig, s: &Setting) -> AttentionShape {
    AttentionShape { planes: s.planes, ..shape(a, s.eps) }
}

/// Of those for passes with drafts.
fn drafting(a: &AttentionConfig, s: &Setting) -> Option<AttentionShape> {
    let drafts = s.counts.drafts;
    (drafts > 0).then(|| AttentionShape { drafts, ..shape_in(a, s) })
}

impl Operator for AttentionConfig {
    type Source = AttentionWeights;
    type Weights<M, V> = Weights<M, V>;
    type Bound = Bound;
    type Kernels = Kernels;

    fn check(&self) -> Result<(), CudaBackendError> {
        let normed = self.qk_norm && heads(self).is_some();
        let width = format_args!("of {}", self.head_dim);
        supported(!normed, "a normed head", width, "one of 64, 128 or 256")?;
        Ok(shape(self, 0.0).check()?)
    }

    fn widths(&self) -> Widths {
        // Queries with gates, keys, values.
        let shape = shape(self, 0.0);
        Widths { inputs: shape.inputs(), mixed: shape.heads * shape.dim, ..Widths::default() }
    }

    fn memory(&self, kv: KvType, _drafts: usize) -> Memory {
        // Of a shape, only heads and their size count here.
        let (key_page, value_page) = shape(self, 0.0).page_bytes(kv);
        Memory { key_page, value_page, ..Memory::default() }
    }

    fn tiled(&self, eps: f32) -> Option<AttentionShape> {
        Some(shape(self, eps))
    }

    fn plan<'a>(w: &'a AttentionWeights, scale: f32) -> Weights<MatrixPlan<'a>, VectorPlan<'a>> {
        let (len, heads) = (shape(&w.config, 0.0).dim, heads(&w.config));
        let norm = |norm: Option<&'a Vec<f32>>| norm.map_or(VectorPlan::Zeros(len), |w| VectorPlan::Values(w));
        let inputs = [&w.q, &w.k, &w.v].map(|t| TensorRows::in_heads(t, heads)).to_vec();
        Weights {
            projections: Projections::of_heads(inputs, (&w.out, heads), w.q.cols(), scale),
            q_norm: norm(w.q_norm.as_ref()),
            k_norm: norm(w.k_norm.as_ref()),
        }
    }

    fn map<M, V, N, W>(
        w: Weights<M, V>,
        matrix: &mut impl FnMut(M) -> N,
        vector: &mut impl FnMut(V) -> W,
    ) -> Weights<N, W> {
        let projections = w.projections.map(matrix);
        Weights { projections, q_norm: vector(w.q_norm), k_norm: vector(w.k_norm) }
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
        let shapes = std::iter::once(shape_in(self, s)).chain(drafting(self, s));
        let programs = shapes.map(|shape| attention::program(shape, s.kv, attention::tiling(shape, s.kv, s.arch)));
        Ok(programs.collect::<Result<_, _>>()?)
    }

    fn kernel_bytes(&self, s: &Setting) -> usize {
        attention::Scratch::bytes(shape_in(self, s), s.counts.decode, s.context)
    }

    fn load(&self, device: &Device, cache: &KernelCache, s: &Setting) -> Result<Kernels, CudaBackendError> {
        let shape = shape_in(self, s);
        let scratch = attention::Scratch::new(device, shape, s.counts.decode, s.context)?;
        let load = |shape| Attention::load(device, cache, shape, s.kv);
        Ok(Kernels { attention: load(shape)?, drafting: drafting(self, s).map(load).transpose()?, scratch })
    }

    fn bind(
        &self,
        w: Weights<Matrix, CudaSlice<f32>>,
        products: &mut Products<'_>,
        hidden: usize,
    ) -> Result<Bound, CudaBackendError> {
        let width = self.widths().mixed;
        let projections = BoundProjections::new(products, w.projections, hidden)?.mixing_halves(width);
        Ok(Bound { projections, q_norm: w.q_norm, k_norm: w.k_norm })
    }

    fn first(bound: &Bound) -> &Matrix {
        bound.projections.first()
    }

    fn half_place(bound: &Bound, rows: RowCount) -> Option<&HalfPlace> {
        bound.projections.half_place(rows)
    }

    fn launch(
        bound: &Bound,
        kernels: &mut Kernels,
        at: BlockPass<'_>,
        store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        bound.mix(kernels, at, store, work)?;
        bound.projections.write(at, work)
    }

    fn remember(
        bound: &Bound,
        kernels: &mut Kernels,
        at: BlockPass<'_>,
        store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        bound.projections.read(at, work)?;
        with_cache(bound, (at, false), store, work, |rows, x, norms, cache, out| {
            // SAFETY: as in `attend`.
            unsafe { kernels.attention.write(at.device, rows, x, norms, cache, out) }
        })
    }
}

impl Bound {
    /// All but the out-projection: from the residual stream into [`Workspace::mixed`].
    pub(super) fn mix(
        &self,
        kernels: &mut Kernels,
        at: BlockPass<'_>,
        store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        self.projections.read_as(at, work, reads_halves(kernels, at))?;
        attend(self, kernels, at, store, work)
    }
}

/// Whether input rows are f16: those of prompts.
fn reads_halves(kernels: &Kernels, at: BlockPass<'_>) -> bool {
    at.pass.prompts.is_some() && kernels.attention.half_inputs()
}

/// Norms, rotation, the cache's new entries, and attention over all of them.
fn attend(
    bound: &Bound,
    kernels: &mut Kernels,
    at: BlockPass<'_>,
    store: &mut Store,
    work: &mut Workspace,
) -> Result<(), CudaBackendError> {
    let halves = reads_halves(kernels, at);
    let Kernels { attention, drafting, scratch } = kernels;
    let decode = drafting.as_ref().filter(|_| at.pass.drafts).unwrap_or(attention);
    with_cache(bound, (at, halves), store, work, |rows, x, norms, cache, out| {
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

/// Calls `launch` with the pass's rows, what the in-projections left of them, as f16 or not, and the block's part of the
/// cache.
fn with_cache(
    bound: &Bound,
    (at, half_inputs): (BlockPass<'_>, bool),
    store: &mut Store,
    work: &mut Workspace,
    launch: impl FnOnce(
        attention::AttentionRows<'_>,
        &CudaView<'_, f32>,
        attention::Norms<'_>,
        attention::Cache<'_, '_>,
        attention::Out<'_, '_>,
    ) -> Result<(), CudaError>,
) -> Result<(), CudaBackendError> {
    let norms = attention::Norms { query: &bound.q_norm.as_view(), key: &bound.k_norm.as_view() };
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

//! An attention block: one product of three projections, attention over the paged cache, the out-projection into the
//! residual stream.
//!
//! Heads of a width that no kernel has are taken for wider ones: rows of zeros stand behind each head's in the
//! in-projections, so that what is added to its scores and what it puts out there are zeros.

use super::operator::{Memory, OperatorPlan, Setting, WantedProducts, supported};
use super::projections::Projections;
use crate::adapter::AdaptedMatrix;
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::matrix::{MatrixPlan, Packed, TensorRows, VectorPlan};
use crate::backend::cuda::layout::operators::adapter_groups::GroupPlan;
use crate::backend::cuda::layout::pack::Heads;
use crate::backend::cuda::layout::shape::Widths;
use crate::model::{AttentionConfig, AttentionWeights, Rope};
use chimere_kernels::cuda::Program;
use chimere_kernels::cuda::attention::{self, AttentionShape, KvType};
use chimere_kernels::cuda::quantized::Planes;

/// Attention's weights, planned or on the device.
pub(crate) struct Weights<M, V> {
    /// Inputs q (per head D of query, then D of gate) | k | v.
    pub(crate) projections: Projections<M>,
    /// Weight of the norm over each head of the queries, `[D]`.
    pub(crate) q_norm: V,
    /// Weight of the norm over each head of the keys, `[D]`.
    pub(crate) k_norm: V,
}

/// The zeros behind heads, where no kernel has their width.
pub(crate) fn heads(a: &AttentionConfig) -> Option<Heads> {
    let padded = attention::DIMS.into_iter().find(|dim| *dim >= a.head_dim)?;
    (padded != a.head_dim && a.head_dim.is_multiple_of(32)).then_some(Heads { own: a.head_dim, padded })
}

/// Heads as the kernels name them, with outputs of one plane.
pub(crate) fn shape(a: &AttentionConfig, eps: f32) -> AttentionShape {
    let rope = a.rope.unwrap_or(Rope { dim: 0, theta: 1.0, yarn: None });
    let widened = |values: usize| heads(a).map_or(values, |heads| heads.widened(values));
    AttentionShape {
        dim: widened(a.head_dim),
        heads: a.heads,
        kv_heads: a.kv_heads,
        rotary: rope.dim,
        theta: rope.theta,
        yarn: rope.yarn,
        eps,
        gated: a.gated,
        normed: a.qk_norm,
        // Rotated queries and keys each have the magnitude, and so have scores its square.
        scale: a.scale * (rope.magnitude() * rope.magnitude()) as f32,
        stride: widened(a.query_rows() + 2 * a.keys()),
        planes: Planes::One,
        drafts: 0,
    }
}

/// The shape of a backend's kernels, for passes without drafts.
pub(crate) fn shape_in(a: &AttentionConfig, s: &Setting) -> AttentionShape {
    AttentionShape { planes: s.planes, ..shape(a, s.eps) }
}

/// Of those for passes with drafts.
pub(crate) fn drafting(a: &AttentionConfig, s: &Setting) -> Option<AttentionShape> {
    let drafts = s.counts.drafts;
    (drafts > 0).then(|| AttentionShape { drafts, ..shape_in(a, s) })
}

impl OperatorPlan for AttentionConfig {
    type Source = AttentionWeights;
    type Weights<M, V> = Weights<M, V>;

    fn check(&self) -> CudaResult<()> {
        let normed = self.qk_norm && heads(self).is_some();
        let width = format_args!("of {}", self.head_dim);
        supported(!normed, "a normed head", width, "one of 64, 128 or 256")?;
        let whole = self.rope.is_none_or(|rope| rope.magnitude() == 1.0 || rope.dim == self.head_dim);
        supported(whole, "a head that YaRN rotates", "rotated in part", "one that is rotated whole")?;
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

    fn products<M: Packed, V>(&self, w: &Weights<M, V>, hidden: usize, wanted: &mut WantedProducts) -> CudaResult<()> {
        w.projections.products(hidden, wanted)
    }

    fn adapter_groups(&self, hidden: usize) -> [Option<GroupPlan>; 2] {
        let (heads, queries, keys) = (heads(self), self.query_rows(), self.keys());
        let parts = vec![(AdaptedMatrix::Query, queries), (AdaptedMatrix::Key, keys), (AdaptedMatrix::Value, keys)];
        let mixed = heads.map_or(self.queries(), |heads| heads.widened(self.queries()));
        let out = GroupPlan::whole(AdaptedMatrix::Out, mixed, hidden).of_heads(heads);
        [Some(GroupPlan::stacked(hidden, parts, heads, 0)), Some(out)]
    }

    fn programs(&self, s: &Setting) -> CudaResult<Vec<Program>> {
        let shapes = std::iter::once(shape_in(self, s)).chain(drafting(self, s));
        let programs = shapes.map(|shape| attention::program(shape, s.kv, attention::tiling(shape, s.kv, s.arch)));
        Ok(programs.collect::<Result<_, _>>()?)
    }

    fn kernel_bytes(&self, s: &Setting) -> usize {
        attention::DecodeScratch::bytes(shape_in(self, s), s.counts.decode, s.context)
    }
}

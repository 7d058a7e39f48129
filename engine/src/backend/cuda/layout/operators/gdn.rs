//! A gated-delta block: one product of four projections, the rule over its rows, the out-projection into the residual
//! stream.

use super::operator::{Memory, OperatorPlan, Setting, WantedProducts, supported};
use super::projections::Projections;
use crate::adapter::AdaptedMatrix;
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::matrix::{MatrixPlan, Packed, TensorRows, VectorPlan};
use crate::backend::cuda::layout::operators::adapter_groups::GroupPlan;
use crate::backend::cuda::layout::pack::Home;
use crate::backend::cuda::layout::shape::{Counts, Widths};
use crate::format::BlockType;
use crate::model::{GdnConfig, GdnWeights, HeadOrder};
use chimere_kernels::cuda::Program;
use chimere_kernels::cuda::attention::KvType;
use chimere_kernels::cuda::gdn_decode;
use chimere_kernels::cuda::gdn_prefill;

/// The gated delta rule's weights, planned or on the device.
pub(crate) struct Weights<M, V> {
    /// Inputs qkv | z | b | a | b2 | a2, where b2 and a2 are what rounding left of b and a.
    pub(crate) projections: Projections<M>,
    /// `[channels, taps]`, the last tap is the current token's.
    pub(crate) conv: V,
    /// Decay rate of each value head, `-exp(A_log)`, `[Hv]`.
    pub(crate) a_neg: V,
    /// Bias of each value head's step size, `[Hv]`.
    pub(crate) dt_bias: V,
    /// Weight of the gated norm behind the rule, `[V]`.
    pub(crate) norm: V,
}

/// What the kernels of decode passes know of drafts: those of passes without, then of passes with some.
pub(crate) fn drafts(s: &Setting) -> impl Iterator<Item = gdn_decode::DraftRoom> {
    let room = s.counts.drafts;
    let without = gdn_decode::DraftRoom { room, taken: false };
    std::iter::once(without).chain((room > 0).then_some(room.into()))
}

/// Heads as the kernels name them.
pub(crate) fn heads(g: &GdnConfig) -> gdn_decode::Heads {
    gdn_decode::Heads {
        key_dim: g.key_dim,
        value_dim: g.value_dim,
        keys: g.key_heads,
        values: g.value_heads,
        grouped: g.head_order == HeadOrder::Grouped,
    }
}

impl OperatorPlan for GdnConfig {
    type Source = GdnWeights;
    type Weights<M, V> = Weights<M, V>;

    fn check(&self) -> CudaResult<()> {
        // Sizes are the kernels' own to refuse; only the number of taps is no argument of theirs.
        let taps = self.conv_taps * self.channels() == heads(self).tail();
        supported(taps, "a convolution's window", format_args!("{} taps", self.conv_taps), "4 taps")
    }

    fn widths(&self) -> Widths {
        Widths { inputs: heads(self).inputs(), mixed: self.values(), ..Widths::default() }
    }

    fn scratch(&self, counts: Counts, _hidden: usize) -> usize {
        gdn_prefill::scratch(heads(self), counts.prefill, counts.slots)
    }

    fn memory(&self, _kv: KvType, drafts: usize) -> Memory {
        let heads = heads(self);
        Memory { state: heads.state(), ring: heads.tail(), updates: heads.updates(drafts), ..Memory::default() }
    }

    fn plan(w: &GdnWeights, scale: f32) -> Weights<MatrixPlan<'_>, VectorPlan<'_>> {
        // b and a stand with z where all three agree, because fewer matrices are fewer launches; else in twice Q8_0.
        let (with_z, q8) = (Home::of(&w.z), Home::of_type(BlockType::Q8_0));
        let home = if [&w.b, &w.a].iter().all(|t| Home::of(t) == with_z) { with_z } else { q8 };
        let ([b, b2], [a, a2]) = (TensorRows::with_rest(&w.b, home), TensorRows::with_rest(&w.a, home));
        let inputs = vec![TensorRows::whole(&w.qkv), TensorRows::whole(&w.z), b, a, b2, a2];
        Weights {
            projections: Projections::plan(inputs, &w.out, w.qkv.cols(), scale),
            conv: VectorPlan::Values(&w.conv),
            a_neg: VectorPlan::Values(&w.a_neg),
            dt_bias: VectorPlan::Values(&w.dt_bias),
            norm: VectorPlan::Values(&w.norm),
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
            a_neg: vector(w.a_neg),
            dt_bias: vector(w.dt_bias),
            norm: vector(w.norm),
        }
    }

    fn products<M: Packed, V>(&self, w: &Weights<M, V>, hidden: usize, wanted: &mut WantedProducts) -> CudaResult<()> {
        w.projections.products(hidden, wanted)
    }

    fn adapter_groups(&self, hidden: usize) -> [Option<GroupPlan>; 2] {
        let (values, heads) = (self.values(), self.value_heads);
        let parts = vec![
            (AdaptedMatrix::Qkv, self.channels()),
            (AdaptedMatrix::Z, values),
            (AdaptedMatrix::Beta, heads),
            (AdaptedMatrix::Alpha, heads),
        ];
        // What rounding left of the write strengths and decays stands behind them.
        let inputs = GroupPlan::stacked(hidden, parts, None, 2 * heads);
        [Some(inputs), Some(GroupPlan::whole(AdaptedMatrix::Out, values, hidden))]
    }

    fn programs(&self, s: &Setting) -> CudaResult<Vec<Program>> {
        let (heads, stride) = (heads(self), heads(self).inputs());
        let decode = drafts(s).map(|drafts| gdn_decode::program(heads, stride, s.planes, drafts));
        let prefill = gdn_prefill::program(heads, stride, s.planes);
        Ok(decode.chain([prefill]).collect::<Result<_, _>>()?)
    }
}

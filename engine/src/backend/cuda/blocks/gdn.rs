//! A gated-delta block: one product of four projections, the rule over its rows, the out-projection into the residual
//! stream.

use super::projections::{BoundProjections, Projections};
use super::{BlockPass, Memory, Operator, Setting, WantedProducts, supported};
use crate::backend::cuda::error::CudaBackendError;
use crate::backend::cuda::matrices::{Kernels as Products, RowCount};
use crate::backend::cuda::pack::Home;
use crate::backend::cuda::plan::{MatrixPlan, TensorRows, VectorPlan};
use crate::backend::cuda::shape::{Counts, Widths};
use crate::backend::cuda::store::Store;
use crate::backend::cuda::weights::{Matrix, Packed};
use crate::backend::cuda::workspace::Workspace;
use crate::format::BlockType;
use crate::model::{GdnConfig, GdnWeights, HeadOrder};
use chimere_kernels::cuda::attention::KvType;
use chimere_kernels::cuda::gdn_decode::{self, GdnDecode};
use chimere_kernels::cuda::gdn_prefill::{self, GdnPrefill};
use chimere_kernels::cuda::wide::HalfPlace;
use chimere_kernels::cuda::{Device, KernelCache, Program};
use cudarc::driver::CudaSlice;

/// The gated delta rule's weights, planned or on the device.
pub(in crate::backend::cuda) struct Weights<M, V> {
    /// Inputs qkv | z | b | a | b2 | a2, where b2 and a2 are what rounding left of b and a.
    pub(in crate::backend::cuda) projections: Projections<M>,
    /// `[channels, taps]`, the last tap is the current token's.
    conv: V,
    /// `-exp(A_log)`, `[Hv]`.
    a_neg: V,
    /// `[Hv]`.
    dt_bias: V,
    /// Weight of the gated norm behind the rule, `[V]`.
    norm: V,
}

/// Its weights on the device, with their products.
pub(in crate::backend::cuda) struct Bound {
    projections: BoundProjections,
    conv: CudaSlice<f32>,
    a_neg: CudaSlice<f32>,
    dt_bias: CudaSlice<f32>,
    norm: CudaSlice<f32>,
}

/// Kernels of all such blocks.
pub(in crate::backend::cuda) struct Kernels {
    decode: GdnDecode,
    /// For passes with drafted rows or behind such, if there are any.
    drafting: Option<GdnDecode>,
    prefill: GdnPrefill,
}

/// What the kernels of decode passes know of drafts: those of passes without, then of passes with some.
fn drafts(s: &Setting) -> impl Iterator<Item = gdn_decode::Drafts> {
    let room = s.counts.drafts;
    let without = gdn_decode::Drafts { room, taken: false };
    std::iter::once(without).chain((room > 0).then_some(room.into()))
}

/// Heads as the kernels name them.
fn heads(g: &GdnConfig) -> gdn_decode::Heads {
    gdn_decode::Heads {
        key_dim: g.key_dim,
        value_dim: g.value_dim,
        keys: g.key_heads,
        values: g.value_heads,
        grouped: g.head_order == HeadOrder::Grouped,
    }
}

impl Operator for GdnConfig {
    type Source = GdnWeights;
    type Weights<M, V> = Weights<M, V>;
    type Bound = Bound;
    type Kernels = Kernels;

    fn check(&self) -> Result<(), CudaBackendError> {
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

    fn products<M: Packed, V>(
        &self,
        w: &Weights<M, V>,
        hidden: usize,
        wanted: &mut WantedProducts,
    ) -> Result<(), CudaBackendError> {
        w.projections.products(hidden, wanted)
    }

    fn programs(&self, s: &Setting) -> Result<Vec<Program>, CudaBackendError> {
        let (heads, stride) = (heads(self), heads(self).inputs());
        let decode = drafts(s).map(|drafts| gdn_decode::program(heads, stride, s.planes, drafts));
        let prefill = gdn_prefill::program(heads, stride, s.planes);
        Ok(decode.chain([prefill]).collect::<Result<_, _>>()?)
    }

    fn load(&self, device: &Device, cache: &KernelCache, s: &Setting) -> Result<Kernels, CudaBackendError> {
        let (heads, stride) = (heads(self), heads(self).inputs());
        let prefill = GdnPrefill::load(device, cache, heads, stride, s.planes)?;
        let mut decode = drafts(s).map(|drafts| GdnDecode::load(device, cache, heads, stride, s.planes, drafts));
        let without = decode.next().expect("passes without drafts are always there")?;
        Ok(Kernels { decode: without, drafting: decode.next().transpose()?, prefill })
    }

    fn bind(
        &self,
        w: Weights<Matrix, CudaSlice<f32>>,
        products: &mut Products<'_>,
        hidden: usize,
    ) -> Result<Bound, CudaBackendError> {
        Ok(Bound {
            projections: BoundProjections::new(products, w.projections, hidden)?.mixing_halves(self.values()),
            conv: w.conv,
            a_neg: w.a_neg,
            dt_bias: w.dt_bias,
            norm: w.norm,
        })
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
        let halves = at.pass.prompts.is_some() && kernels.prefill.half_inputs();
        bound.projections.read_as(at, work, halves)?;
        mix(bound, kernels, at, store, work)?;
        bound.projections.write(at, work)
    }
}

/// Convolution, rule and gated norm of all rows.
fn mix(
    bound: &Bound,
    kernels: &Kernels,
    at: BlockPass<'_>,
    store: &mut Store,
    work: &mut Workspace,
) -> Result<(), CudaBackendError> {
    let weights = gdn_decode::LayerWeights {
        taps: &bound.conv.as_view(),
        decay: &bound.a_neg.as_view(),
        dt_bias: &bound.dt_bias.as_view(),
        norm: &bound.norm.as_view(),
        eps: at.eps,
    };
    let mut kept = store.recurrent(at.place.recurrent);
    let memory = gdn_decode::Memory { state: &mut kept.states, tail: &mut kept.rings };
    let x = work.inputs.as_view();
    let (mut codes, mut meta) = work.mixed.views_mut();
    match &at.pass.prompts {
        None => {
            let rows = gdn_decode::StepRows {
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

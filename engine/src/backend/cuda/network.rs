//! The layers: which kernels run over a step's rows, in which order, on which buffers. Nothing here waits for the device.
//!
//! A layer of a decode pass of few rows is four launches: in-projections; the mixer; out-projection into the residual stream;
//! experts, which rows choose there, summed into the residual stream. With more rows the router is a launch of its own, an expert's rows
//! are brought together, and what experts made is summed by a launch of its own. Norms have no launch: who writes the residual stream
//! also writes its int8 form for the next reader, which divides by the root mean square.

use super::config::CudaConfig;
use super::error::CudaBackendError;
use super::matrices::{Kernels, Kind, Product, Rows, Stacked, classes, normed, plain};
use super::programs::{Shapes, few_experts, part, swiglu};
use super::shape::{Counts, Widths};
use super::store::Store;
use super::weights::{DeviceWeights, Embedding, Ffn, Layer, Matrix, Mixer, Routed, Swiglu};
use super::workspace::Workspace;
use crate::model::ModelConfig;
use chimere_kernels::cuda::attention::{self, Attention};
use chimere_kernels::cuda::combine::{Combine, Terms};
use chimere_kernels::cuda::embed::{Embed, Table, TokenRows};
use chimere_kernels::cuda::experts::{Between, ExpertsKernels, Matrices, Routing};
use chimere_kernels::cuda::gather::Gather;
use chimere_kernels::cuda::gdn_decode::{self, GdnDecode};
use chimere_kernels::cuda::gdn_prefill::{self, GdnPrefill};
use chimere_kernels::cuda::pool::HiddenRows;
use chimere_kernels::cuda::product::{Activations, NextRows, Norm};
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::router::{self, Router};
use chimere_kernels::cuda::rows::{Folded, FoldedOut, padded};
use chimere_kernels::cuda::wide::{Columns, Epilogue, Output};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::{CudaSlice, CudaView, DevicePtr};
use std::rc::Rc;

/// Rows on their way through the layers.
pub(super) struct Pass<'a> {
    rows: Rows,
    tokens: CudaView<'a, i32>,
    slots: CudaView<'a, i32>,
    positions: CudaView<'a, i32>,
    prompt_lens: CudaView<'a, i32>,
    cuts: CudaView<'a, i32>,
    prompts: Option<Prompts<'a>>,
}

/// Where the prompts of a prefill begin and end.
#[derive(Clone, Copy)]
pub(super) struct Prompts<'a> {
    /// `[count, 4]`.
    pub(super) pieces: &'a CudaView<'a, i32>,
    pub(super) count: usize,
    /// `[tiles, 2]`.
    pub(super) tiles: &'a CudaView<'a, i32>,
    pub(super) tile_count: usize,
}

impl<'a> Pass<'a> {
    /// `words` holds tokens, slots, positions, prompt lengths and cuts of `count` rows, one array after another.
    pub(super) fn new(count: usize, words: &'a CudaSlice<i32>, prompts: Option<Prompts<'a>>) -> Self {
        let part = |i: usize| words.slice(i * count..(i + 1) * count);
        let rows = Rows { count, prefill: prompts.is_some() };
        let cuts = words.slice(4 * count..6 * count);
        Self { rows, tokens: part(0), slots: part(1), positions: part(2), prompt_lens: part(3), cuts, prompts }
    }
}

/// See the module.
pub(super) struct Network {
    widths: Widths,
    eps: f32,
    deterministic: bool,
    embedding: Embedding,
    embed: Embed,
    norm: CudaSlice<f32>,
    layers: Vec<NetLayer>,
    gdn: Option<(GdnDecode, GdnPrefill)>,
    attention: Option<(Attention, attention::Scratch)>,
    router: Option<(Router, router::Workspace)>,
    combine: Combine,
    gather: Gather,
    head: Matrix,
    head_product: Product,
}

struct NetLayer {
    input_norm: CudaSlice<f32>,
    inputs: Stacked,
    mixer: Mix,
    out: Matrix,
    out_product: Product,
    post_norm: CudaSlice<f32>,
    routed: Option<NetRouted>,
    shared: NetSwiglu,
}

enum Mix {
    Gdn { index: usize, conv: CudaSlice<f32>, a_neg: CudaSlice<f32>, dt_bias: CudaSlice<f32>, norm: CudaSlice<f32> },
    Attention { index: usize, q_norm: CudaSlice<f32>, k_norm: CudaSlice<f32> },
}

struct NetRouted {
    router: CudaSlice<f32>,
    shared_gate: CudaSlice<f32>,
    experts: NetSwiglu,
    /// Everything behind the router in one launch, for few rows.
    few: Option<Rc<ExpertsKernels>>,
}

struct NetSwiglu {
    weights: Swiglu,
    gate_up: Product,
    down: Product,
}

impl Network {
    /// Loads every kernel that the model's layers take.
    pub(super) fn new(
        device: &Device,
        cache: &KernelCache,
        c: &ModelConfig,
        config: &CudaConfig,
        planes: Planes,
        weights: DeviceWeights,
    ) -> Result<Self, CudaBackendError> {
        let (widths, counts) = (Widths::of(c), Counts::of(config));
        let classes = classes(config.deterministic, counts.decode, counts.prefill);
        let mut kernels = Kernels::new(device, cache, classes, config.deterministic, planes);
        let shapes = Shapes::of(c, weights.embed.ty, planes);
        let (mut gdn_layers, mut attention_layers, mut layers) = (0, 0, Vec::with_capacity(weights.layers.len()));
        for layer in weights.layers {
            let index = match layer.mixer {
                Mixer::Gdn(_) => &mut gdn_layers,
                Mixer::Attention(_) => &mut attention_layers,
            };
            layers.push(NetLayer::new(&mut kernels, widths, layer, *index)?);
            *index += 1;
        }
        let head_kind =
            Kind::dense(weights.head.layout, (weights.head.rows, weights.head.cols), Epilogue::Plain, Some(widths.hidden))?;
        let gdn = match shapes.gdn {
            Some((heads, stride)) => {
                let prefill = GdnPrefill::load(device, cache, heads, stride, planes)?;
                Some((GdnDecode::load(device, cache, heads, stride, planes)?, prefill))
            }
            None => None,
        };
        let attention = match shapes.attention {
            Some(shape) => {
                let scratch = attention::Scratch::new(device, shape, counts.decode, config.context as usize)?;
                Some((Attention::load(device, cache, shape, config.kv.into())?, scratch))
            }
            None => None,
        };
        let router = match shapes.router {
            Some(shape) => {
                let router = Router::load(device, cache, shape)?;
                let work = router.workspace(device, counts.rows())?;
                Some((router, work))
            }
            None => None,
        };
        Ok(Self {
            widths,
            eps: c.rms_eps,
            deterministic: config.deterministic,
            embed: Embed::load(device, cache, shapes.embed)?,
            embedding: weights.embed,
            norm: weights.norm,
            layers,
            gdn,
            attention,
            router,
            combine: Combine::load(device, cache, shapes.combine)?,
            gather: Gather::load(device, cache, widths.hidden, planes)?,
            head_product: kernels.of(head_kind)?,
            head: weights.head,
        })
    }

    /// Experts that a row uses.
    pub(super) fn used(&self) -> usize {
        self.widths.used
    }

    /// Layers with experts to choose from.
    pub(super) fn routed_layers(&self) -> usize {
        self.layers.iter().filter(|l| l.routed.is_some()).count()
    }

    /// Token rows through all layers: the residual stream and its int8 form for the head lie in the workspace afterwards.
    pub(super) fn forward(
        &mut self,
        device: &Device,
        pass: &Pass<'_>,
        store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        self.embed(device, pass, store, work)?;
        for i in 0..self.layers.len() {
            self.mix(device, i, pass, store, work)?;
            self.feed_forward(device, i, pass, work)?;
        }
        Ok(())
    }

    fn embed(&self, device: &Device, pass: &Pass<'_>, store: &mut Store, work: &mut Workspace) -> Result<(), CudaBackendError> {
        let bytes = self.embedding.bytes();
        let table = Table { address: bytes.device_ptr(device.stream()).0, bytes: bytes.len() };
        let rows = TokenRows {
            count: pass.rows.count,
            tokens: &pass.tokens,
            sampled: &store.sampled.as_view(),
            slots: &pass.slots,
            positions: &pass.positions,
            prompt_lens: &pass.prompt_lens,
        };
        let (codes, meta, squares) =
            (&mut work.normed.codes.as_view_mut(), &mut work.normed.meta.as_view_mut(), &mut work.squares.as_view_mut());
        let out = FoldedOut { codes, meta, squares };
        let weight = self.layers[0].input_norm.as_view();
        // SAFETY: the table lives as long as the network; slots were checked against the store when the step was planned.
        Ok(unsafe {
            let history = Some(&mut store.counts.as_view_mut());
            self.embed.launch(device, table, rows, &weight, history, &mut work.x.as_view_mut(), out)
        }?)
    }

    /// A layer's mixer, from the residual stream back into it.
    fn mix(
        &mut self,
        device: &Device,
        layer: usize,
        pass: &Pass<'_>,
        store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        let l = &self.layers[layer];
        let (codes, meta, squares) = (work.normed.codes.as_view(), work.normed.meta.as_view(), work.squares.as_view());
        l.inputs.launch(device, pass.rows, normed(&codes, &meta, &squares, self.eps), &mut work.inputs.as_view_mut())?;
        match &l.mixer {
            Mix::Gdn { index, conv, a_neg, dt_bias, norm } => {
                let weights = gdn_decode::LayerWeights {
                    taps: &conv.as_view(),
                    decay: &a_neg.as_view(),
                    dt_bias: &dt_bias.as_view(),
                    norm: &norm.as_view(),
                    eps: self.eps,
                };
                let kernels = self.gdn.as_ref().expect("a GDN layer has kernels");
                gdn(device, kernels, *index, weights, pass, store, work)?;
            }
            Mix::Attention { index, q_norm, k_norm } => {
                let norms = attention::Norms { query: &q_norm.as_view(), key: &k_norm.as_view() };
                let kernels = self.attention.as_mut().expect("an attention layer has kernels");
                attend(device, kernels, *index, norms, pass, store, work)?;
            }
        }
        let x = plain_view(&work.mixed.codes, &work.mixed.meta);
        let out = Output::Residual {
            x: &mut work.x.as_view_mut(),
            weight: &l.post_norm.as_view(),
            codes: &mut work.normed.codes.as_view_mut(),
            meta: &mut work.normed.meta.as_view_mut(),
            squares: &mut work.squares.as_view_mut(),
            stride: padded(self.widths.hidden),
        };
        // SAFETY: the columns are not listed.
        unsafe { l.out_product.launch(device, pass.rows, &l.out, plain(&x.0, &x.1), Columns::First(pass.rows.count), out) }
    }

    /// A layer's experts, from the residual stream back into it.
    fn feed_forward(
        &mut self,
        device: &Device,
        layer: usize,
        pass: &Pass<'_>,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        let l = &self.layers[layer];
        if let Some(routed) = &l.routed {
            let weights = router::LayerWeights {
                norm: &l.post_norm.as_view(),
                experts: &routed.router.as_view(),
                shared_gate: &routed.shared_gate.as_view(),
                eps: self.eps,
            };
            let few = routed.few.as_ref().filter(|few| pass.rows.count <= few.rows_max() && pass.prompts.is_none());
            if let Some(few) = few {
                return self.few_experts(device, few, weights, (layer, pass), work);
            }
            let (router, scratch) = self.router.as_mut().expect("a layer with experts has a router");
            let variant = if self.deterministic { router::Variant::Tiled } else { router::variant(pass.rows.count) };
            route(device, (router, scratch, variant), weights, (layer, pass), work)?;
            experts(device, routed, self.widths, self.eps, pass, work)?;
        }
        shared(device, &l.shared, self.widths, self.eps, pass, work)?;
        let next = self.layers.get(layer + 1).map_or(&self.norm, |next| &next.input_norm);
        let (gates, made, shared) = (work.gates.as_view(), work.scratch.as_view(), work.shared_out.as_view());
        let routed = self.layers[layer].routed.is_some();
        let terms =
            Terms { slots: &pass.slots, gates: routed.then_some(&gates), experts: routed.then_some(&made), shared: Some(&shared) };
        let (codes, meta, squares) =
            (&mut work.normed.codes.as_view_mut(), &mut work.normed.meta.as_view_mut(), &mut work.squares.as_view_mut());
        let out = FoldedOut { codes, meta, squares };
        Ok(self.combine.launch(device, pass.rows.count, terms, &next.as_view(), &mut work.x.as_view_mut(), out)?)
    }

    /// Routed and shared experts of few rows, which choose by `weights`, from the residual stream back into it.
    fn few_experts(
        &self,
        device: &Device,
        kernels: &ExpertsKernels,
        weights: router::LayerWeights<'_>,
        (layer, pass): (usize, &Pass<'_>),
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        let l = &self.layers[layer];
        let routed = &l.routed.as_ref().expect("the caller found experts").experts.weights;
        let shared = &l.shared.weights;
        let tally = work.tally.as_view();
        let cuts = Some(router::Cuts { words: &pass.cuts, tally: &tally });
        let pairs = work.list_in.len();
        let mut chosen = work.experts.slice_mut(layer * pairs..(layer + 1) * pairs);
        let routing = Routing { weights, slots: &pass.slots, cuts, chosen: &mut chosen };
        let between = Between {
            codes: &mut work.expert_hidden.codes.as_view_mut(),
            meta: &mut work.expert_hidden.meta.as_view_mut(),
            shared_codes: &mut work.shared_hidden.codes.as_view_mut(),
            shared_meta: &mut work.shared_hidden.meta.as_view_mut(),
        };
        let gate_up = (routed.gate_up.bytes.as_view(), shared.gate_up.bytes.as_view());
        let down = (routed.down.bytes.as_view(), shared.down.bytes.as_view());
        let (codes, meta, squares) = (work.normed.codes.as_view(), work.normed.meta.as_view(), work.squares.as_view());
        let (mut next_codes, mut next_meta) = (work.next.codes.as_view_mut(), work.next.meta.as_view_mut());
        let mut next_squares = work.next_squares.as_view_mut();
        let weight = self.layers.get(layer + 1).map_or(&self.norm, |next| &next.input_norm).as_view();
        let soon = self.layers.get(layer + 1).map_or(&self.head, |next| &next.inputs.segments.parts[0].matrix).bytes.as_view();
        let next = NextRows { weight: &weight, codes: &mut next_codes, meta: &mut next_meta, squares: &mut next_squares };
        kernels.launch(
            device,
            Matrices { routed: &gate_up.0, shared: &gate_up.1 },
            Matrices { routed: &down.0, shared: &down.1 },
            routing,
            Activations { codes: &codes, meta: &meta },
            Norm { squares: &squares, eps: self.eps },
            pass.rows.count,
            between,
            &mut work.x.as_view_mut(),
            next,
            &soon,
        )?;
        std::mem::swap(&mut work.normed, &mut work.next);
        std::mem::swap(&mut work.squares, &mut work.next_squares);
        Ok(())
    }

    /// Logits of all rows of a decode pass, into the first rows of logits.
    pub(super) fn decode_head(&self, device: &Device, rows: usize, work: &mut Workspace) -> Result<(), CudaBackendError> {
        let (codes, meta, squares) = (work.normed.codes.as_view(), work.normed.meta.as_view(), work.squares.as_view());
        let out = Output::Plain { values: &mut work.logits.as_view_mut(), stride: self.widths.vocab };
        let (x, rows) = (normed(&codes, &meta, &squares, self.eps), Rows { count: rows, prefill: false });
        // SAFETY: the columns are not listed.
        unsafe { self.head_product.launch(device, rows, &self.head, x, Columns::First(rows.count), out) }
    }

    /// What a prefill that has just been enqueued leaves, and the final norm.
    pub(super) fn hidden_rows<'a>(&'a self, work: &'a Workspace) -> HiddenRows<'a> {
        HiddenRows { x: work.x.as_view(), squares: work.squares.as_view(), weight: self.norm.as_view(), eps: self.eps }
    }

    /// Brings the int8 form of the listed rows together, for [`Network::head`].
    pub(super) fn gather(
        &self,
        device: &Device,
        rows: usize,
        list: &CudaSlice<i32>,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        let from =
            Folded { codes: &work.normed.codes.as_view(), meta: &work.normed.meta.as_view(), squares: &work.squares.as_view() };
        let (codes, meta, squares) =
            (&mut work.last.codes.as_view_mut(), &mut work.last.meta.as_view_mut(), &mut work.last_squares.as_view_mut());
        // SAFETY: the list names rows of the prefill that has just been enqueued.
        Ok(unsafe { self.gather.launch(device, rows, &list.as_view(), from, FoldedOut { codes, meta, squares }) }?)
    }

    /// Logits of the gathered rows, into rows of logits from `first` on.
    pub(super) fn head(&self, device: &Device, rows: usize, first: usize, work: &mut Workspace) -> Result<(), CudaBackendError> {
        let (codes, meta, squares) = (work.last.codes.as_view(), work.last.meta.as_view(), work.last_squares.as_view());
        let values = &mut work.logits.slice_mut(first * self.widths.vocab..);
        let out = Output::Plain { values, stride: self.widths.vocab };
        // The head has no prompts of its own: these rows are as few as those of a decode pass.
        let (x, rows) = (normed(&codes, &meta, &squares, self.eps), Rows { count: rows, prefill: false });
        // SAFETY: the columns are not listed.
        unsafe { self.head_product.launch(device, rows, &self.head, x, Columns::First(rows.count), out) }
    }
}

impl NetLayer {
    fn new(kernels: &mut Kernels<'_>, w: Widths, layer: Layer, index: usize) -> Result<Self, CudaBackendError> {
        let (inputs, out, mixer) = match layer.mixer {
            Mixer::Gdn(g) => {
                let mix = Mix::Gdn { index, conv: g.conv, a_neg: g.a_neg, dt_bias: g.dt_bias, norm: g.norm };
                (g.inputs, g.out, mix)
            }
            Mixer::Attention(a) => (a.inputs, a.out, Mix::Attention { index, q_norm: a.q_norm, k_norm: a.k_norm }),
        };
        let Ffn { routed, shared } = layer.ffn;
        let routed = match routed {
            Some(Routed { router, shared_gate, experts }) => {
                let of = |s: &Swiglu| (part(&s.gate_up), part(&s.down));
                let few = match few_experts(w, of(&experts), of(&shared)) {
                    Some(few) if !kernels.deterministic => kernels.experts(few?)?,
                    _ => None,
                };
                Some(NetRouted { router, shared_gate, experts: NetSwiglu::new(kernels, w, experts, true)?, few })
            }
            None => None,
        };
        Ok(Self {
            input_norm: layer.input_norm,
            inputs: Stacked::new(kernels, inputs, w.hidden)?,
            mixer,
            out_product: kernels.of(Kind::dense(out.layout, (out.rows, out.cols), Epilogue::Residual, None)?)?,
            out,
            post_norm: layer.post_norm,
            routed,
            shared: NetSwiglu::new(kernels, w, shared, false)?,
        })
    }
}

impl NetSwiglu {
    fn new(kernels: &mut Kernels<'_>, w: Widths, weights: Swiglu, routed: bool) -> Result<Self, CudaBackendError> {
        let of = |m: &Matrix| (m.layout, (m.rows, m.cols));
        let [gate_up, down] = swiglu(of(&weights.gate_up), of(&weights.down), w, routed)?;
        Ok(Self { gate_up: kernels.of(gate_up)?, down: kernels.of(down)?, weights })
    }
}

fn plain_view<'a>(codes: &'a CudaSlice<i8>, meta: &'a CudaSlice<f32>) -> (CudaView<'a, i8>, CudaView<'a, f32>) {
    (codes.as_view(), meta.as_view())
}

fn gdn(
    device: &Device,
    (decode, prefill): &(GdnDecode, GdnPrefill),
    layer: usize,
    weights: gdn_decode::LayerWeights<'_>,
    pass: &Pass<'_>,
    store: &mut Store,
    work: &mut Workspace,
) -> Result<(), CudaBackendError> {
    let mut memory = store.gdn(layer);
    let memory = gdn_decode::Memory { state: &mut memory.state, tail: &mut memory.ring };
    let x = work.inputs.as_view();
    let (codes, meta) = (&mut work.mixed.codes.as_view_mut(), &mut work.mixed.meta.as_view_mut());
    match &pass.prompts {
        None => {
            let rows = gdn_decode::StepRows { count: pass.rows.count, slots: &pass.slots, positions: &pass.positions };
            // SAFETY: slots were checked against the store, no two rows of a pass share one, and what the kernel reads early was
            // written by the step before.
            Ok(unsafe { decode.launch(device, rows, &x, weights, memory, codes, meta) }?)
        }
        Some(p) => {
            let pieces = gdn_prefill::Pieces { list: p.pieces, count: p.count, rows: pass.rows.count };
            let out = gdn_prefill::MixedRows { codes, meta };
            // SAFETY: pieces follow one another, begin at whole chunks and have slots of their own.
            Ok(unsafe { prefill.launch(device, pieces, &x, weights, memory, &mut work.scratch.as_view_mut(), out) }?)
        }
    }
}

fn attend(
    device: &Device,
    (attention, scratch): &mut (Attention, attention::Scratch),
    layer: usize,
    norms: attention::Norms<'_>,
    pass: &Pass<'_>,
    store: &mut Store,
    work: &mut Workspace,
) -> Result<(), CudaBackendError> {
    let pages_max = store.shape.table;
    let mut kv = store.kv(layer);
    let rows = attention::Rows {
        count: pass.rows.count,
        slots: &pass.slots,
        positions: &pass.positions,
        page_table: &kv.table,
        pages_max,
    };
    let cache = attention::Cache { keys: &mut kv.keys, values: &mut kv.values };
    let x = work.inputs.as_view();
    let out = attention::Out { codes: &mut work.mixed.codes.as_view_mut(), meta: &mut work.mixed.meta.as_view_mut() };
    // SAFETY: slots, positions and pages were checked when the step was planned; rows of a decode pass have slots of their own, tiles
    // were made of the prefill's pieces; tables and earlier positions were written before this step's first kernel.
    Ok(unsafe {
        match &pass.prompts {
            None => attention.decode(device, rows, &x, norms, cache, scratch, out),
            Some(p) => attention.prefill(device, rows, (p.tiles, p.tile_count), &x, norms, cache, out),
        }
    }?)
}

fn route(
    device: &Device,
    (router, scratch, variant): (&Router, &mut router::Workspace, router::Variant),
    weights: router::LayerWeights<'_>,
    (layer, pass): (usize, &Pass<'_>),
    work: &mut Workspace,
) -> Result<(), CudaBackendError> {
    let pairs = work.list_in.len();
    let (x, squares) = (work.x.as_view(), work.squares.as_view());
    let tally = work.tally.as_view();
    let cuts = Some(router::Cuts { words: &pass.cuts, tally: &tally });
    let rows = router::Rows { count: pass.rows.count, slots: &pass.slots, x: &x, squares: &squares, cuts };
    let choice = router::Choice {
        experts: &mut work.experts.slice_mut(layer * pairs..(layer + 1) * pairs),
        gates: &mut work.gates.as_view_mut(),
    };
    let groups = router::Groups {
        slots: &mut work.lists.as_view_mut(),
        in_rows: &mut work.list_in.as_view_mut(),
        out_rows: &mut work.list_out.as_view_mut(),
    };
    Ok(router.launch(device, scratch, variant, rows, weights, choice, Some(groups))?)
}

/// Routed experts, each with its rows.
fn experts(
    device: &Device,
    routed: &NetRouted,
    w: Widths,
    eps: f32,
    pass: &Pass<'_>,
    work: &mut Workspace,
) -> Result<(), CudaBackendError> {
    let pairs = pass.rows.count * w.used;
    let (slots, in_rows, out_rows) =
        (work.lists.slice(0..4 * w.experts), work.list_in.slice(0..pairs), work.list_out.slice(0..pairs));
    let (codes, meta, squares) = (work.normed.codes.as_view(), work.normed.meta.as_view(), work.squares.as_view());
    let out = Output::Gated {
        codes: &mut work.expert_hidden.codes.as_view_mut(),
        meta: &mut work.expert_hidden.meta.as_view_mut(),
        stride: padded(w.width),
    };
    let swiglu = &routed.experts;
    let columns = Columns::Listed { slots: &slots, in_rows: &in_rows, out_rows: &out_rows };
    // SAFETY: the router lists rows below the step's and pairs of them, each once, by experts that there are.
    unsafe {
        let x = normed(&codes, &meta, &squares, eps);
        swiglu.gate_up.launch(device, pass.rows, &swiglu.weights.gate_up, x, columns, out)
    }?;
    let (codes, meta) = plain_view(&work.expert_hidden.codes, &work.expert_hidden.meta);
    let out = Output::Plain { values: &mut work.scratch.as_view_mut(), stride: w.hidden };
    let columns = Columns::Listed { slots: &slots, in_rows: &out_rows, out_rows: &out_rows };
    // SAFETY: as above.
    unsafe { swiglu.down.launch(device, pass.rows, &swiglu.weights.down, plain(&codes, &meta), columns, out) }
}

/// The shared expert, or the feed-forward part of a dense model.
fn shared(
    device: &Device,
    swiglu: &NetSwiglu,
    w: Widths,
    eps: f32,
    pass: &Pass<'_>,
    work: &mut Workspace,
) -> Result<(), CudaBackendError> {
    let (codes, meta, squares) = (work.normed.codes.as_view(), work.normed.meta.as_view(), work.squares.as_view());
    let out = Output::Gated {
        codes: &mut work.shared_hidden.codes.as_view_mut(),
        meta: &mut work.shared_hidden.meta.as_view_mut(),
        stride: padded(w.shared),
    };
    let columns = Columns::First(pass.rows.count);
    let x = normed(&codes, &meta, &squares, eps);
    // SAFETY: the columns are not listed, here and below.
    unsafe { swiglu.gate_up.launch(device, pass.rows, &swiglu.weights.gate_up, x, columns, out) }?;
    let (codes, meta) = plain_view(&work.shared_hidden.codes, &work.shared_hidden.meta);
    let out = Output::Plain { values: &mut work.shared_out.as_view_mut(), stride: w.hidden };
    // SAFETY: as above.
    unsafe { swiglu.down.launch(device, pass.rows, &swiglu.weights.down, plain(&codes, &meta), columns, out) }
}

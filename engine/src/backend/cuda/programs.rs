//! Which kernels a model's layers take: known from its shape and encodings alone, so that they can be compiled without a device.

use super::config::CudaConfig;
use super::error::CudaBackendError;
use super::matrices::{Kind, classes};
use super::plan::{MatrixPlan, WeightsPlan};
use super::shape::{Counts, Widths, gdn_heads};
use super::weights::{Matrix, Mixer};
use crate::format::BlockType;
use crate::model::{Model, ModelConfig};
use chimere_kernels::cuda::embed::TableEncoding;
use chimere_kernels::cuda::experts::Experts;
use chimere_kernels::cuda::product::layout::Layout;
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::wide::{Chip, Epilogue};
use chimere_kernels::cuda::{Arch, CudaError, Program};
use chimere_kernels::cuda::{attention, combine, embed, experts, gather, gdn_decode, gdn_prefill, pool, router, sampler};
use std::collections::HashSet;

/// What the kernels beside the products are made for.
pub(super) struct Shapes {
    pub(super) embed: embed::Shape,
    pub(super) gdn: Option<(gdn_decode::Heads, usize)>,
    pub(super) attention: Option<attention::Shape>,
    pub(super) router: Option<router::Shape>,
    pub(super) combine: combine::Shape,
}

impl Shapes {
    pub(super) fn of(c: &ModelConfig, embedding: BlockType, planes: Planes) -> Self {
        let w = Widths::of(c);
        let has = |kind| c.layers.contains(&kind);
        let encoding = match embedding {
            BlockType::F32 => TableEncoding::F32,
            BlockType::Bf16 => TableEncoding::Bf16,
            BlockType::Q8_0 => TableEncoding::Q8_0,
            BlockType::Q4_0 => TableEncoding::Q4_0,
            BlockType::Q4K => TableEncoding::Q4K,
            BlockType::Q5K => TableEncoding::Q5K,
            BlockType::Q6K => TableEncoding::Q6K,
            // Loading turned everything else into this.
            _ => TableEncoding::F16,
        };
        Self {
            embed: embed::Shape { cols: w.hidden, vocab: w.vocab, encoding, planes },
            gdn: has(crate::model::LayerKind::Gdn).then(|| (gdn_heads(c), gdn_heads(c).inputs())),
            attention: has(crate::model::LayerKind::Attention).then(|| attention::Shape { planes, ..attention_shape(c) }),
            router: (w.used > 0).then_some(router::Shape { cols: w.hidden, experts: w.experts, used: w.used }),
            combine: combine::Shape { cols: w.hidden, used: w.used, shared: true, planes },
        }
    }
}

/// Heads of the attention layers as the kernels name them, with outputs of one plane.
pub(super) fn attention_shape(c: &ModelConfig) -> attention::Shape {
    let a = &c.attention;
    attention::Shape {
        dim: a.head_dim,
        heads: a.heads,
        kv_heads: a.kv_heads,
        rotary: a.rotary_dim,
        theta: a.rope_theta,
        eps: c.rms_eps,
        stride: (2 * a.heads + 2 * a.kv_heads) * a.head_dim,
        planes: Planes::One,
    }
}

/// Kinds of a SwiGLU's two products, from layout and size of its two matrices.
pub(super) fn swiglu(
    gate_up: (Layout, (usize, usize)),
    down: (Layout, (usize, usize)),
    w: Widths,
    routed: bool,
) -> Result<[Kind; 2], CudaBackendError> {
    let kind = |(layout, size), epilogue, norm| match routed {
        true => Kind::routed(layout, size, epilogue, norm, (w.used, w.experts)),
        false => Kind::dense(layout, size, epilogue, norm),
    };
    Ok([kind(gate_up, Epilogue::Gated, Some(w.hidden))?, kind(down, Epilogue::Plain, None)?])
}

/// Every program that a backend of this model loads on a chip, each once. Needs no device: without `chip`, tiles are chosen as for a
/// common one of its architecture, and another one compiles at its first start what it wants otherwise.
///
/// # Errors
/// If the model has sizes that no kernel takes.
pub fn programs(model: &Model, config: &CudaConfig, arch: Arch, chip: Option<Chip>) -> Result<Vec<Program>, CudaBackendError> {
    let chip = chip.unwrap_or_else(|| Chip::typical(arch));
    let (c, counts, plan) = (&model.config, Counts::of(config), WeightsPlan::of(model));
    let planes = config.activations.planes(model);
    let (w, shapes) = (Widths::of(c), Shapes::of(c, plan.embed.ty, planes));
    let mut all = vec![embed::program(shapes.embed)?, combine::program(shapes.combine)?, gather::program(w.hidden, planes)?];
    all.extend([sampler::program(w.vocab)?, pool::program(w.hidden)?]);
    if let Some((heads, stride)) = shapes.gdn {
        all.push(gdn_decode::program(heads, stride, planes)?);
        all.push(gdn_prefill::program(heads, stride, planes)?);
    }
    if let Some(shape) = shapes.attention {
        all.push(attention::program(shape, config.kv.into(), attention::tiling(shape, config.kv.into()))?);
    }
    if let Some(shape) = shapes.router {
        all.push(router::program(shape)?);
    }
    let classes = classes(config.deterministic, counts.decode, counts.prefill);
    for kind in kinds(&plan, w)? {
        all.extend(kind.with_planes(planes).programs(&classes, chip, config.deterministic)?);
    }
    if !config.deterministic {
        for few in few_kinds(&plan, w) {
            let few = few?.with_planes(planes);
            all.extend(experts::tiling(few, chip).map(|tiling| experts::program(few, tiling)));
        }
    }
    Ok(all)
}

/// The kinds of all products, each once.
fn kinds(plan: &WeightsPlan<'_>, w: Widths) -> Result<Vec<Kind>, CudaBackendError> {
    let of = |m: &MatrixPlan<'_>| (m.layout, (m.rows, m.cols));
    let dense = |m: &MatrixPlan<'_>, epilogue, norm| Kind::dense(m.layout, (m.rows, m.cols), epilogue, norm);
    let mut all = HashSet::from([dense(&plan.head, Epilogue::Plain, Some(w.hidden))?]);
    for layer in &plan.layers {
        let (inputs, out) = match &layer.mixer {
            Mixer::Gdn(g) => (&g.inputs, &g.out),
            Mixer::Attention(a) => (&a.inputs, &a.out),
        };
        for segment in &inputs.parts {
            all.insert(dense(&segment.matrix, Epilogue::Plain, Some(w.hidden))?);
        }
        all.insert(dense(out, Epilogue::Residual, None)?);
        all.extend(swiglu(of(&layer.ffn.shared.gate_up), of(&layer.ffn.shared.down), w, false)?);
        if let Some(routed) = &layer.ffn.routed {
            all.extend(swiglu(of(&routed.experts.gate_up), of(&routed.experts.down), w, true)?);
        }
    }
    Ok(all.into_iter().collect())
}

/// Bytes of device memory that the kernels of attention and of the router keep for themselves.
pub(super) fn scratch_bytes(c: &ModelConfig, config: &CudaConfig) -> u64 {
    let (counts, shapes) = (Counts::of(config), Shapes::of(c, BlockType::F16, Planes::One));
    let attention = shapes.attention.map_or(0, |s| attention::Scratch::bytes(s, counts.decode, config.context as usize));
    let router = shapes.router.map_or(0, |s| s.workspace_bytes(counts.rows()));
    (attention + router) as u64
}

/// A matrix as far as kernels are chosen by it: layout, factor, rows and inputs.
pub(super) type Part = (Layout, f32, usize, usize);

pub(super) fn part(m: &Matrix) -> Part {
    (m.layout, m.factor, m.rows, m.cols)
}

/// The experts of a layer as the kernels for few rows take them, which multiply by no factor: gate and up, then down, of a routed expert
/// and of the shared one.
pub(super) fn few_experts(w: Widths, routed: (Part, Part), shared: (Part, Part)) -> Option<Result<Experts, CudaError>> {
    let plain = [routed.0, routed.1, shared.0, shared.1].iter().all(|p| p.1 == 1.0);
    let kind = |(gate_up, down): (Part, Part), width| experts::Kind { width, gate_up: gate_up.0, down: down.0 };
    plain.then(|| Experts::new(w.hidden, w.experts, w.used, kind(routed, w.width), kind(shared, w.shared)))
}

/// Those of all layers, each once.
fn few_kinds(plan: &WeightsPlan<'_>, w: Widths) -> Vec<Result<Experts, CudaBackendError>> {
    let part = |m: &MatrixPlan<'_>| (m.layout, m.factor, m.rows, m.cols);
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for layer in &plan.layers {
        let Some(routed) = &layer.ffn.routed else { continue };
        let (routed, shared) = (&routed.experts, &layer.ffn.shared);
        let of = (part(&routed.gate_up), part(&routed.down));
        match few_experts(w, of, (part(&shared.gate_up), part(&shared.down))) {
            Some(Ok(few)) if seen.insert(few) => all.push(Ok(few)),
            Some(Err(error)) => all.push(Err(error.into())),
            _ => {}
        }
    }
    all
}

//! `qwen3next`: the mathematics of `qwen35moe`, packed otherwise (Qwen3-Next-80B-A3B). Value heads are in grouped order everywhere, and
//! fused projections have their rows grouped by key head.

use super::load::Spec;
use super::reader::{Layer, Projections};
use super::{Architecture, GdnConfig, HeadOrder};
use crate::format::{LoadError, Tensor};
use std::ops::Range;

pub(super) const SPEC: Spec = Spec {
    architecture: Architecture::Qwen3Next,
    gguf: "qwen3next",
    hugging_face: &["qwen3_next"],
    moe: true,
    gguf_head_order: HeadOrder::Grouped,
    gguf_projections,
    hugging_face_projections,
};

/// New files have q, k and v apart from z; old ones all four in `ssm_in`. Both keep b and a together in `ssm_ba`.
fn gguf_projections(layer: &Layer<'_>) -> Result<Projections, LoadError> {
    let hidden = layer.config.hidden;
    let (channels, values, heads) = layer.gdn_rows();
    let (qkv, z) = match layer.find("ssm_in.weight", &[channels + values, hidden])? {
        Some(fused) => split_qkvz(&fused, &layer.config.gdn),
        None => (layer.need("attn_qkv.weight", &[channels, hidden])?, layer.need("attn_gate.weight", &[values, hidden])?),
    };
    let (b, a) = split_ba(&layer.need("ssm_ba.weight", &[2 * heads, hidden])?, &layer.config.gdn);
    Ok(Projections { qkv, z, b, a })
}

fn hugging_face_projections(layer: &Layer<'_>) -> Result<Projections, LoadError> {
    let hidden = layer.config.hidden;
    let (channels, values, heads) = layer.gdn_rows();
    let (qkv, z) = split_qkvz(&layer.need("linear_attn.in_proj_qkvz.weight", &[channels + values, hidden])?, &layer.config.gdn);
    let (b, a) = split_ba(&layer.need("linear_attn.in_proj_ba.weight", &[2 * heads, hidden])?, &layer.config.gdn);
    Ok(Projections { qkv, z, b, a })
}

/// Rows of each key head: q K, k K, v r*V, z r*V.
fn split_qkvz(fused: &Tensor, gdn: &GdnConfig) -> (Tensor, Tensor) {
    let values = gdn.value_heads / gdn.key_heads * gdn.value_dim;
    let group = 2 * gdn.key_dim + 2 * values;
    let part = |at: usize, len: usize| (0..gdn.key_heads).map(move |head| head * group + at..head * group + at + len);
    let (q, k, v) = (part(0, gdn.key_dim), part(gdn.key_dim, gdn.key_dim), part(2 * gdn.key_dim, values));
    let qkv: Vec<Range<usize>> = q.chain(k).chain(v).collect();
    let z: Vec<_> = part(2 * gdn.key_dim + values, values).collect();
    (fused.gather_rows(&qkv), fused.gather_rows(&z))
}

/// Rows of each key head: b r, a r.
fn split_ba(fused: &Tensor, gdn: &GdnConfig) -> (Tensor, Tensor) {
    let r = gdn.value_heads / gdn.key_heads;
    let part = |at: usize| (0..gdn.key_heads).map(|head| (2 * head + at) * r..(2 * head + at + 1) * r).collect::<Vec<_>>();
    (fused.gather_rows(&part(0)), fused.gather_rows(&part(1)))
}

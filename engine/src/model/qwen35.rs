//! `qwen35`: GDN and gated attention with dense feed-forward parts (Qwen3.5-0.8B to 27B). The projections of a GDN layer are separate
//! tensors in both formats; GGUF files have value heads in tiled order.

use super::load::Spec;
use super::reader::{Layer, Projections};
use super::{Architecture, HeadOrder};
use crate::format::LoadError;

pub(super) const SPEC: Spec = Spec {
    architecture: Architecture::Qwen35,
    gguf: "qwen35",
    hugging_face: &["qwen3_5", "qwen3_5_text"],
    moe: false,
    gguf_head_order: HeadOrder::Tiled,
    gguf_projections,
    hugging_face_projections,
};

pub(super) fn gguf_projections(layer: &Layer<'_>) -> Result<Projections, LoadError> {
    separate(layer, ["attn_qkv.weight", "attn_gate.weight", "ssm_beta.weight", "ssm_alpha.weight"])
}

pub(super) fn hugging_face_projections(layer: &Layer<'_>) -> Result<Projections, LoadError> {
    let names = ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"].map(|n| format!("linear_attn.{n}.weight"));
    separate(layer, names.each_ref().map(String::as_str))
}

fn separate(layer: &Layer<'_>, [qkv, z, b, a]: [&str; 4]) -> Result<Projections, LoadError> {
    let hidden = layer.config.hidden;
    let (channels, values, heads) = layer.gdn_rows();
    Ok(Projections {
        qkv: layer.need(qkv, &[channels, hidden])?,
        z: layer.need(z, &[values, hidden])?,
        b: layer.need(b, &[heads, hidden])?,
        a: layer.need(a, &[heads, hidden])?,
    })
}

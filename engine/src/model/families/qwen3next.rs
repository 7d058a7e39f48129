//! `qwen3next`: the mathematics of `qwen35moe`, packed otherwise (Qwen3-Next-80B-A3B). Value heads are in grouped order
//! everywhere, and fused projections have their rows grouped by key head.

use super::{Family, GgufForm, qwen35};
use crate::format::{LoadError, Tensor};
use crate::model::blocks::Conversion;
use crate::model::blocks::GdnPacking;
use crate::model::blocks::Layer;
use crate::model::blocks::{GdnConfig, HeadOrder, MoeConfig, OpConfig, Projections};
use std::ops::Range;

pub(super) const FAMILY: Family = Family {
    gguf: "qwen3next",
    hugging_face: &["qwen3_next"],
    form: GgufForm::USUAL,
    gguf_layers: |keys| {
        qwen35::gguf_layers(keys, HeadOrder::Grouped, |keys| MoeConfig::from_gguf(keys).map(OpConfig::Moe))
    },
    hugging_face_layers: |dir| qwen35::hugging_face_layers(dir, |c| MoeConfig::from_hugging_face(c).map(OpConfig::Moe)),
    gdn: Some(GdnPacking { is_fused: true, gguf: gguf_projections, hugging_face: hugging_face_projections }),
    hugging_face_tensors: None,
    conversion: Some(&CONVERSION),
};

/// Fused projections are cut into q, k and v on the one side and z on the other; heads stay in grouped order.
const CONVERSION: Conversion = Conversion {
    norms: &qwen35::NORMS,
    head_order: HeadOrder::Grouped,
    projections: |layer, gdn| {
        let (hidden, channels, values) = (layer.hidden, gdn.channels(), gdn.values());
        let fused = [channels + values, hidden];
        let (qkv, z) = qkvz_rows(gdn);
        for (ours, shape, rows) in
            [("attn_qkv.weight", [channels, hidden], qkv), ("attn_gate.weight", [values, hidden], z)]
        {
            let source = layer.need("linear_attn.in_proj_qkvz.weight", &fused)?;
            layer.put(ours, &shape, source.rows(&fused, rows));
        }
        layer.put_from("ssm_ba.weight", "linear_attn.in_proj_ba.weight", &[2 * gdn.value_heads, hidden])
    },
};

/// New files have q, k and v apart from z; old ones all four in `ssm_in`. Both keep b and a together in `ssm_ba`.
fn gguf_projections(layer: &Layer<'_>, gdn: &GdnConfig) -> Result<Projections, LoadError> {
    let (hidden, channels, values) = (layer.hidden, gdn.channels(), gdn.values());
    let (qkv, z) = match layer.find("ssm_in.weight", &[channels + values, hidden])? {
        Some(fused) => split_qkvz(&fused, gdn),
        None => {
            (layer.need("attn_qkv.weight", &[channels, hidden])?, layer.need("attn_gate.weight", &[values, hidden])?)
        }
    };
    let (b, a) = split_ba(&layer.need("ssm_ba.weight", &[2 * gdn.value_heads, hidden])?, gdn);
    Ok(Projections { qkv, z, b, a })
}

fn hugging_face_projections(layer: &Layer<'_>, gdn: &GdnConfig) -> Result<Projections, LoadError> {
    let hidden = layer.hidden;
    let qkvz = layer.need("linear_attn.in_proj_qkvz.weight", &[gdn.channels() + gdn.values(), hidden])?;
    let (qkv, z) = split_qkvz(&qkvz, gdn);
    let (b, a) = split_ba(&layer.need("linear_attn.in_proj_ba.weight", &[2 * gdn.value_heads, hidden])?, gdn);
    Ok(Projections { qkv, z, b, a })
}

fn split_qkvz(fused: &Tensor, gdn: &GdnConfig) -> (Tensor, Tensor) {
    let (qkv, z) = qkvz_rows(gdn);
    (fused.gather_rows(&qkv), fused.gather_rows(&z))
}

/// Where q, k and v stand, and where z does. Rows of each key head: q K, k K, v r*V, z r*V.
pub(in crate::model) fn qkvz_rows(gdn: &GdnConfig) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    let values = gdn.value_heads / gdn.key_heads * gdn.value_dim;
    let group = 2 * gdn.key_dim + 2 * values;
    let part = |at: usize, len: usize| (0..gdn.key_heads).map(move |head| head * group + at..head * group + at + len);
    let (q, k, v) = (part(0, gdn.key_dim), part(gdn.key_dim, gdn.key_dim), part(2 * gdn.key_dim, values));
    (q.chain(k).chain(v).collect(), part(2 * gdn.key_dim + values, values).collect())
}

/// Rows of each key head: b r, a r.
fn split_ba(fused: &Tensor, gdn: &GdnConfig) -> (Tensor, Tensor) {
    let (b, a) = ba_rows(gdn);
    (fused.gather_rows(&b), fused.gather_rows(&a))
}

/// Where b and a stand.
pub(in crate::model) fn ba_rows(gdn: &GdnConfig) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    let r = gdn.value_heads / gdn.key_heads;
    let part = |at: usize| (0..gdn.key_heads).map(|head| (2 * head + at) * r..(2 * head + at + 1) * r).collect();
    (part(0), part(1))
}

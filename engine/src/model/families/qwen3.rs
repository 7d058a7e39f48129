//! `qwen3`: attention with normed and rotated heads, then a SwiGLU (Qwen3 0.6B to 32B). With YaRN where a file asks for
//! it.

use super::{Family, Layers, mixer_and_feed_forward};
use crate::format::hf::HfConfig;
use crate::format::{HfDir, LoadError};
use crate::model::blocks::{AttentionConfig, MlpConfig, OpConfig, Positions};
use crate::model::gguf_keys::Keys;
use crate::model::hf_keys::layer_count;
use crate::model::hf_tensors::{HfTensors, LayerTensor, attention_tensors, no_factors, renamed};

const NORMS: [&str; 2] = ["attn_norm.weight", "ffn_norm.weight"];

pub(super) const FAMILY: Family = Family::renamed(
    "qwen3",
    &["qwen3"],
    (
        |keys| gguf_layers(keys, MlpConfig::from_gguf(keys)?.into()),
        |dir| hugging_face_layers(dir, |c| MlpConfig::from_hugging_face(c).map(OpConfig::from)),
    ),
    &TENSORS,
);

/// What a layer has before its feed-forward part.
pub(super) const MIXER: &[LayerTensor] = &[
    renamed(NORMS[0], "input_layernorm.weight"),
    renamed(NORMS[1], "post_attention_layernorm.weight"),
    renamed("attn_q_norm.weight", "self_attn.q_norm.weight"),
    renamed("attn_k_norm.weight", "self_attn.k_norm.weight"),
];

const TENSORS: HfTensors = HfTensors {
    prefixes: &PREFIXES,
    embedding: "embed_tokens.weight",
    norm: "norm.weight",
    layer: &[
        MIXER,
        attention_tensors!("self_attn"),
        &[
            renamed("ffn_gate.weight", "mlp.gate_proj.weight"),
            renamed("ffn_up.weight", "mlp.up_proj.weight"),
            renamed("ffn_down.weight", "mlp.down_proj.weight"),
        ],
    ],
    factors: no_factors,
};

/// Exports of the model without its head have no prefix.
pub(super) const PREFIXES: [&str; 2] = ["model.", ""];

/// Layers that all have this feed-forward part.
pub(super) fn gguf_layers(keys: &Keys<'_>, feed_forward: OpConfig) -> Result<Layers, LoadError> {
    let attention = AttentionConfig::normed_from_gguf(keys, &vec![true; keys.main], Positions::Scaled)?;
    Ok(layers(keys.main, attention, &feed_forward))
}

/// Reads the part behind the attention from config.json.
type FeedForward = fn(&HfConfig) -> Result<OpConfig, LoadError>;

/// Layers that config.json describes.
pub(super) fn hugging_face_layers(dir: &HfDir, feed_forward: FeedForward) -> Result<Layers, LoadError> {
    let (c, count) = (dir.config(), layer_count(dir)?);
    c.must_be("use_qk_norm", true)?;
    c.must_be("qkv_bias", false)?;
    let kinds = c.strings("layer_types")?.unwrap_or_default();
    if let Some(other) = kinds.into_iter().find(|kind| *kind != "full_attention") {
        return Err(c.error("layer_types", "`full_attention` in every layer", format_args!("`{other}`")));
    }
    let attention = AttentionConfig::normed_from_hugging_face(c, Positions::Scaled)?;
    Ok(layers(count as usize, attention, &feed_forward(c)?))
}

fn layers(count: usize, attention: AttentionConfig, feed_forward: &OpConfig) -> Layers {
    let layer = |_| mixer_and_feed_forward(NORMS, [attention.into(), feed_forward.clone()]);
    Layers { main: (0..count).map(layer).collect(), draft: Vec::new() }
}

//! `lfm2`: a short convolution or attention with normed and rotated heads, then a SwiGLU (LFM2 and LFM2.5, 350M to
//! 2.6B).

use super::{Family, GgufForm, Layers, mixer_and_feed_forward};
use crate::format::hf::HfConfig;
use crate::format::{HfDir, LoadError};
use crate::model::blocks::{AttentionConfig, MlpConfig, OpConfig, Positions, ShortConvConfig};
use crate::model::gguf_keys::Keys;
use crate::model::hf_keys::{layer_count, size};
use crate::model::hf_tensors::{HfTensors, LayerTensor, no_factors, renamed};

const NORMS: [&str; 2] = ["attn_norm.weight", "ffn_norm.weight"];
/// Converters call the norm before the head like one behind the embedding.
pub(super) const FORM: GgufForm = GgufForm { output_norm: "token_embd_norm.weight", ..GgufForm::USUAL };

pub(super) const FAMILY: Family =
    Family { form: FORM, ..Family::renamed("lfm2", &["lfm2"], (gguf_layers, hugging_face_layers), &TENSORS) };

/// The mixers of a layer.
pub(super) const MIXERS: &[LayerTensor] = &[
    renamed(NORMS[0], "operator_norm.weight"),
    renamed(NORMS[1], "ffn_norm.weight"),
    renamed("shortconv.in_proj.weight", "conv.in_proj.weight"),
    renamed("shortconv.conv.weight", "conv.conv.weight"),
    renamed("shortconv.out_proj.weight", "conv.out_proj.weight"),
    renamed("attn_q.weight", "self_attn.q_proj.weight"),
    renamed("attn_k.weight", "self_attn.k_proj.weight"),
    renamed("attn_v.weight", "self_attn.v_proj.weight"),
    renamed("attn_q_norm.weight", "self_attn.q_layernorm.weight"),
    renamed("attn_k_norm.weight", "self_attn.k_layernorm.weight"),
    renamed("attn_output.weight", "self_attn.out_proj.weight"),
];
pub(super) const DENSE: &[LayerTensor] = &[
    renamed("ffn_gate.weight", "feed_forward.w1.weight"),
    renamed("ffn_up.weight", "feed_forward.w3.weight"),
    renamed("ffn_down.weight", "feed_forward.w2.weight"),
];

const TENSORS: HfTensors = HfTensors {
    prefixes: &["model."],
    embedding: "embed_tokens.weight",
    norm: "embedding_norm.weight",
    layer: &[MIXERS, DENSE],
    factors: no_factors,
};

/// The mixers that layers have; a model may have one kind only.
pub(super) struct MixerPlan {
    attends: Vec<bool>,
    conv: Option<OpConfig>,
    attention: Option<OpConfig>,
}

fn gguf_layers(keys: &Keys<'_>) -> Result<Layers, LoadError> {
    let dense = OpConfig::from(MlpConfig::from_gguf(keys)?);
    Ok(gguf_mixers(keys)?.layers(|_| dense.clone()))
}

/// Attention has heads for keys, a convolution none.
pub(super) fn gguf_mixers(keys: &Keys<'_>) -> Result<MixerPlan, LoadError> {
    let kv_heads = keys.per_layer("attention.head_count_kv")?;
    let kv_heads = kv_heads.ok_or_else(|| keys.error("attention.head_count_kv", "a number a layer", "no such key"))?;
    let attends: Vec<bool> = kv_heads.iter().map(|heads| *heads > 0).collect();
    let attention = || AttentionConfig::normed_from_gguf(keys, &attends, Positions::Rotated);
    let conv = || {
        let (channels, taps) = (keys.size("embedding_length")?, keys.size("shortconv.l_cache")?);
        Ok::<_, LoadError>(ShortConvConfig { channels, taps })
    };
    Ok(MixerPlan {
        conv: attends.contains(&false).then(|| conv().map(OpConfig::from)).transpose()?,
        attention: attends.contains(&true).then(|| attention().map(OpConfig::from)).transpose()?,
        attends,
    })
}

fn hugging_face_layers(dir: &HfDir) -> Result<Layers, LoadError> {
    let dense = OpConfig::from(MlpConfig::swiglu(dense_width(dir.config())?));
    Ok(hugging_face_mixers(dir)?.layers(|_| dense.clone()))
}

/// The width of dense parts, which config.json says in a roundabout way.
fn dense_width(c: &HfConfig) -> Result<usize, LoadError> {
    let width = size(c, if c.has("block_ff_dim") { "block_ff_dim" } else { "intermediate_size" })?;
    let _beside: Option<u64> = c.u64("intermediate_size")?;
    let (multiple, factor) = (c.u64("block_multiple_of")?.unwrap_or(256), c.f64("block_ffn_dim_multiplier")?);
    if !c.bool("block_auto_adjust_ff_dim")?.unwrap_or(true) {
        return Ok(width);
    }
    let scaled = (factor.unwrap_or(1.0) * (2 * width / 3) as f64) as u64;
    let rounded = scaled.checked_next_multiple_of(multiple).filter(|width| *width > 0);
    let rounded = rounded.and_then(|width| usize::try_from(width).ok());
    rounded.ok_or_else(|| c.error("block_multiple_of", "a number that widths can be rounded up to", multiple))
}

/// The mixers that config.json describes.
pub(super) fn hugging_face_mixers(dir: &HfDir) -> Result<MixerPlan, LoadError> {
    let c = dir.config();
    c.must_be("conv_bias", false)?;
    c.must_be("block_use_swiglu", true)?;
    c.must_be("use_pos_enc", true)?;
    let channels = size(c, "hidden_size")?;
    ["block_dim", "conv_dim", "conv_dim_out"].into_iter().try_for_each(|key| c.must_be(key, channels))?;
    let attends = hugging_face_attends(dir)?;
    let attention = AttentionConfig::normed_from_hugging_face(c, Positions::Rotated)?;
    c.must_be("num_heads", attention.heads)?;
    equals(c, "block_norm_eps", "norm_eps")?;
    equals(c, "theta", "rope_theta")?;
    let taps = size(c, "conv_L_cache")?;
    Ok(MixerPlan { attends, conv: Some(ShortConvConfig { channels, taps }.into()), attention: Some(attention.into()) })
}

/// That a number, if config.json has it, is that of another key.
fn equals(c: &HfConfig, key: &str, of: &str) -> Result<(), LoadError> {
    match (c.f64(key)?, c.f64(of)?) {
        (Some(got), Some(want)) if got != want => Err(c.error(key, format_args!("{want} like {of}"), got)),
        _ => Ok(()),
    }
}

/// Newer exports list the kinds of layers, older ones the layers that attend.
fn hugging_face_attends(dir: &HfDir) -> Result<Vec<bool>, LoadError> {
    let (c, layers) = (dir.config(), layer_count(dir)?);
    let listed = c.numbers("full_attn_idxs")?;
    let Some(kinds) = c.strings("layer_types")? else {
        let listed = listed.ok_or_else(|| c.error("layer_types", "a list, one entry a layer", "no such key"))?;
        return Ok((0..layers).map(|layer| listed.contains(&(layer as f64))).collect());
    };
    let one = |kind: &&str| match *kind {
        "full_attention" => Ok(true),
        "conv" => Ok(false),
        other => Err(c.error("layer_types", "`conv` or `full_attention`", format_args!("`{other}`"))),
    };
    let attends = kinds.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    if attends.len() as u64 != layers {
        return Err(c.error("layer_types", format_args!("{layers} entries, one a layer"), attends.len()));
    }
    Ok(attends)
}

impl MixerPlan {
    /// Layers of these mixers, each before the feed-forward part of its layer.
    pub(super) fn layers(self, feed_forward: impl Fn(usize) -> OpConfig) -> Layers {
        let mixer = |attends: bool| if attends { &self.attention } else { &self.conv };
        let layer = |(i, attends): (usize, &bool)| {
            let mixer = mixer(*attends).clone().expect("a mixer was read for every kind of layer that there is");
            mixer_and_feed_forward(NORMS, [mixer, feed_forward(i)])
        };
        Layers { main: self.attends.iter().enumerate().map(layer).collect(), draft: Vec::new() }
    }
}

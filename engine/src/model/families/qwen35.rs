//! `qwen35`: gated delta rule and gated attention, with dense feed-forward parts (Qwen3.5-0.8B to 27B). The projections
//! of a gated-delta block are separate tensors in both formats; GGUF files have value heads in tiled order.

use super::{Family, GgufForm, Layers, mixer_and_feed_forward};
use crate::format::hf::HfConfig;
use crate::format::{HfDir, LoadError, Problem};
use crate::model::blocks::Conversion;
use crate::model::blocks::Layer;
use crate::model::blocks::{AttentionConfig, GdnConfig, HeadOrder, MlpConfig, OpConfig, Projections};
use crate::model::blocks::{GdnPacking, LayerPlan};
use crate::model::gguf_keys::Keys;
use crate::model::hf_keys::layer_count;

/// llama.cpp's default where a file does not say which layers attend.
const ATTENTION_INTERVAL_DEFAULT: u64 = 4;
/// What config.json calls the kinds of layers.
const FULL_ATTENTION: &str = "full_attention";
const LINEAR_ATTENTION: &str = "linear_attention";
/// Norms before mixer and feed-forward part.
const GGUF_NORMS: [&str; 2] = ["attn_norm.weight", "post_attention_norm.weight"];
const HUGGING_FACE_NORMS: [&str; 2] = ["input_layernorm.weight", "post_attention_layernorm.weight"];
/// Those of a directory, each with GGUF's.
pub(super) const NORMS: [(&str, &str); 2] =
    [(HUGGING_FACE_NORMS[0], GGUF_NORMS[0]), (HUGGING_FACE_NORMS[1], GGUF_NORMS[1])];

pub(super) const FAMILY: Family = Family {
    gguf: "qwen35",
    hugging_face: &["qwen3_5", "qwen3_5_text"],
    form: GgufForm::USUAL,
    gguf_layers: |keys| gguf_layers(keys, HeadOrder::Tiled, |keys| MlpConfig::from_gguf(keys).map(OpConfig::Mlp)),
    hugging_face_layers: |dir| hugging_face_layers(dir, |c| MlpConfig::from_hugging_face(c).map(OpConfig::Mlp)),
    gdn: Some(SEPARATE),
    hugging_face_tensors: None,
    conversion: Some(&CONVERSION),
};

/// The in-projections are four tensors in the file.
pub(super) const SEPARATE: GdnPacking = GdnPacking {
    is_fused: false,
    gguf: |layer, gdn| {
        separate(layer, gdn, ["attn_qkv.weight", "attn_gate.weight", "ssm_beta.weight", "ssm_alpha.weight"])
    },
    hugging_face: |layer, gdn| {
        let names = ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"].map(|n| format!("linear_attn.{n}.weight"));
        separate(layer, gdn, names.each_ref().map(String::as_str))
    },
};

/// Converters bring value heads into tiled order.
pub(super) const CONVERSION: Conversion = Conversion {
    norms: &NORMS,
    head_order: HeadOrder::Tiled,
    projections: |layer, gdn| {
        let (hidden, heads) = (layer.hidden, gdn.value_heads);
        let rows = |width| gdn.heads_in(HeadOrder::Tiled, 0, width);
        for (ours, theirs, shape, rows) in [
            ("attn_qkv.weight", "in_proj_qkv", [gdn.channels(), hidden], gdn.channels_in(HeadOrder::Tiled)),
            ("attn_gate.weight", "in_proj_z", [gdn.values(), hidden], rows(gdn.value_dim)),
            ("ssm_beta.weight", "in_proj_b", [heads, hidden], rows(1)),
            ("ssm_alpha.weight", "in_proj_a", [heads, hidden], rows(1)),
        ] {
            let source = layer.need(&format!("linear_attn.{theirs}.weight"), &shape)?;
            layer.put(ours, &shape, source.rows(&shape, rows));
        }
        Ok(())
    },
};

/// What all hybrids of Qwen have in common: a gated-delta or an attention block, then a feed-forward one.
pub(super) fn gguf_layers(
    keys: &Keys<'_>,
    order: HeadOrder,
    feed_forward: impl Fn(&Keys<'_>) -> Result<OpConfig, LoadError>,
) -> Result<Layers, LoadError> {
    let attends = gguf_attends(keys)?;
    let gdn = OpConfig::Gdn(GdnConfig::from_gguf(keys, order)?);
    let attention = OpConfig::Attention(AttentionConfig::from_gguf(keys, &attends)?);
    Ok(layers(&attends, GGUF_NORMS, [gdn, attention], feed_forward(keys)?))
}

/// The layers that config.json describes; `feed_forward` reads the part behind the mixer.
pub(super) fn hugging_face_layers(
    dir: &HfDir,
    feed_forward: impl Fn(&HfConfig) -> Result<OpConfig, LoadError>,
) -> Result<Layers, LoadError> {
    let c = dir.config();
    let attends = hugging_face_attends(dir)?;
    let gdn = OpConfig::Gdn(GdnConfig::from_hugging_face(c)?);
    let attention = OpConfig::Attention(AttentionConfig::from_hugging_face(c)?);
    Ok(layers(&attends, HUGGING_FACE_NORMS, [gdn, attention], feed_forward(c)?))
}

/// The draft head attends.
fn layers(
    attends: &[bool],
    norms: [&'static str; 2],
    [gdn, attention]: [OpConfig; 2],
    feed_forward: OpConfig,
) -> Layers {
    let layer = |attends: &bool| -> LayerPlan {
        let mixer = if *attends { &attention } else { &gdn };
        mixer_and_feed_forward(norms, [mixer.clone(), feed_forward.clone()])
    };
    Layers { main: attends.iter().map(layer).collect(), draft: layer(&true) }
}

/// Whether each main layer attends: `attention.recurrent_layers` if it is there, else every n-th does.
fn gguf_attends(keys: &Keys<'_>) -> Result<Vec<bool>, LoadError> {
    let interval = keys.meta.u64(&keys.key("full_attention_interval"))?.unwrap_or(ATTENTION_INTERVAL_DEFAULT);
    let key = keys.key("attention.recurrent_layers");
    if let Some(flags) = keys.meta.integers(&key)? {
        if flags.len() != keys.blocks && flags.len() != keys.main {
            let want = format!("{} entries, one a block", keys.blocks);
            return Err(keys.meta.error(Problem::key(key, want, flags.len())));
        }
        return Ok(flags[..keys.main].iter().map(|recurrent| *recurrent == 0).collect());
    }
    if interval == 0 {
        return Err(keys.error("full_attention_interval", "at least 1", 0));
    }
    Ok((1..=keys.main as u64).map(|i| i.is_multiple_of(interval)).collect())
}

/// Which main layers attend, by `layer_types` in config.json or by the interval.
fn hugging_face_attends(dir: &HfDir) -> Result<Vec<bool>, LoadError> {
    let (c, layers) = (dir.config(), layer_count(dir)?);
    let Some(types) = c.strings("layer_types")? else {
        let interval = c.u64("full_attention_interval")?.unwrap_or(ATTENTION_INTERVAL_DEFAULT);
        if interval == 0 {
            return Err(c.error("full_attention_interval", "at least 1", 0));
        }
        return Ok((1..=layers).map(|i| i.is_multiple_of(interval)).collect());
    };
    let one = |name: &&str| match *name {
        FULL_ATTENTION => Ok(true),
        LINEAR_ATTENTION => Ok(false),
        other => {
            let want = format!("`{LINEAR_ATTENTION}` or `{FULL_ATTENTION}`");
            Err(c.error("layer_types", want, format_args!("{other:?}")))
        }
    };
    let attends = types.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    if attends.len() as u64 != layers {
        return Err(c.error("layer_types", format_args!("{layers} entries, one a layer"), attends.len()));
    }
    Ok(attends)
}

fn separate(layer: &Layer<'_>, gdn: &GdnConfig, [qkv, z, b, a]: [&str; 4]) -> Result<Projections, LoadError> {
    let (hidden, heads) = (layer.hidden, gdn.value_heads);
    Ok(Projections {
        qkv: layer.need(qkv, &[gdn.channels(), hidden])?,
        z: layer.need(z, &[gdn.values(), hidden])?,
        b: layer.need(b, &[heads, hidden])?,
        a: layer.need(a, &[heads, hidden])?,
    })
}

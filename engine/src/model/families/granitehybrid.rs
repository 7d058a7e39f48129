//! `granitehybrid`: a Mamba-2 mixer or attention without positions, then experts with an ungated shared one, or a dense
//! feed-forward part; factors on embedding, logits, scores and on what each block adds (Granite 4 H). A model whose
//! layers all attend may rotate heads, and its files are `granite` or `granitemoe` (Granite 4 Micro).

use super::{Family, GgufForm, Layers, mixer_and_feed_forward};
use crate::format::hf::HfConfig;
use crate::format::{HfDir, LoadError};
use crate::model::blocks::LayerPlan;
use crate::model::blocks::{
    AttentionConfig, Mamba2Config, Mamba2Names, MlpConfig, MoeConfig, OpConfig, Positions, Router, SharedConfig,
    expert_counts, gguf_expert_counts,
};
use crate::model::gguf_keys::Keys;
use crate::model::hf_keys::{check_conv_bias, factor, layer_count, size};
use crate::model::hf_tensors::{Change, HfTensors, attention_tensors, mamba_tensors, no_factors, renamed};

const NORMS: [&str; 2] = ["attn_norm.weight", "ffn_norm.weight"];

pub(super) const FAMILY: Family = Family {
    form: GgufForm { paired: true, ..GgufForm::USUAL },
    ..Family::renamed("granitehybrid", &["granitemoehybrid"], (gguf_layers, hugging_face_layers), &TENSORS)
};

/// Converters call models without Mamba-2 so. Their directories do not differ.
pub(super) const DENSE: Family = Family { gguf: "granite", hugging_face: &[], gguf_layers: gguf_attention, ..FAMILY };

pub(super) const MOE: Family = Family { gguf: "granitemoe", ..DENSE };

/// Keys about mixers, which converters write for models without any too.
const MIXER_KEYS: &[&str] =
    &["ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.inner_size", "ssm.time_step_rank"];

/// Sizes of the mixer as config.json of Granite and Falcon has them.
pub(super) const NAMES: Mamba2Names = Mamba2Names {
    heads: "mamba_n_heads",
    head_dim: "mamba_d_head",
    state_dim: "mamba_d_state",
    groups: "mamba_n_groups",
    conv_taps: "mamba_d_conv",
};

const TENSORS: HfTensors = HfTensors {
    prefixes: &["model."],
    embedding: "embed_tokens.weight",
    norm: "norm.weight",
    layer: &[
        &[renamed(NORMS[0], "input_layernorm.weight"), renamed(NORMS[1], "post_attention_layernorm.weight")],
        mamba_tensors!("mamba"),
        attention_tensors!("self_attn"),
        FEED_FORWARD,
    ],
    factors: no_factors,
};

/// Gate and up are one tensor in a directory. What a mixture shares is all that a dense model has.
const FEED_FORWARD: &[(&str, &str, Change)] = &[
    renamed("ffn_gate_inp.weight", "block_sparse_moe.router.layer.weight"),
    ("ffn_gate_exps.weight", "block_sparse_moe.input_linear.weight", Change::FirstHalf),
    ("ffn_up_exps.weight", "block_sparse_moe.input_linear.weight", Change::SecondHalf),
    renamed("ffn_down_exps.weight", "block_sparse_moe.output_linear.weight"),
    ("ffn_gate_shexp.weight", "shared_mlp.input_linear.weight", Change::FirstHalf),
    ("ffn_up_shexp.weight", "shared_mlp.input_linear.weight", Change::SecondHalf),
    renamed("ffn_down_shexp.weight", "shared_mlp.output_linear.weight"),
    ("ffn_gate.weight", "shared_mlp.input_linear.weight", Change::FirstHalf),
    ("ffn_up.weight", "shared_mlp.input_linear.weight", Change::SecondHalf),
    renamed("ffn_down.weight", "shared_mlp.output_linear.weight"),
];

fn gguf_layers(keys: &Keys<'_>) -> Result<Layers, LoadError> {
    let kv_heads = keys.per_layer("attention.head_count_kv")?;
    let kv_heads = kv_heads.ok_or_else(|| keys.error("attention.head_count_kv", "a number a layer", "no such key"))?;
    let attends: Vec<bool> = kv_heads.iter().map(|heads| *heads > 0).collect();
    if !attends.contains(&false) {
        return gguf_attention(keys);
    }
    check_positions(keys)?;
    if !attends.contains(&true) {
        keys.leave_out(&["attention.scale"]);
    }
    let attention = || AttentionConfig::plain_from_gguf(keys, &attends, Positions::Unused);
    let mixers = Mixers {
        mamba: Some(Mamba2Config::from_gguf(keys, true)?),
        attention: attends.contains(&true).then(attention).transpose()?,
    };
    gguf_blocks(keys, &attends, &mixers)
}

/// Layers that all attend.
fn gguf_attention(keys: &Keys<'_>) -> Result<Layers, LoadError> {
    keys.leave_out(MIXER_KEYS);
    let attends = vec![true; keys.main];
    // Rotation is on unless the file says otherwise.
    let rotated = keys.meta.bool(&keys.key("rope.scaling.finetuned"))?.unwrap_or(true);
    let positions = if rotated { Positions::Rotated } else { Positions::Unused };
    let attention = AttentionConfig::plain_from_gguf(keys, &attends, positions)?;
    if let Some(rope) = attention.rope.filter(|rope| rope.dim != attention.head_dim) {
        let want = format_args!("{}, the whole head", attention.head_dim).to_string();
        return Err(keys.error("rope.dimension_count", want, rope.dim));
    }
    gguf_blocks(keys, &attends, &Mixers { mamba: None, attention: Some(attention) })
}

fn gguf_blocks(keys: &Keys<'_>, attends: &[bool], mixers: &Mixers) -> Result<Layers, LoadError> {
    let scale = keys.factor("residual_scale")?.unwrap_or(1.0);
    Ok(layers(attends, mixers, gguf_feed_forward(keys)?, scale))
}

/// Of heads beside mixers: rotation is on unless the file says otherwise, and its own in this family's files.
fn check_positions(keys: &Keys<'_>) -> Result<(), LoadError> {
    match keys.meta.bool(&keys.key("rope.scaling.finetuned"))? {
        Some(false) => Ok(()),
        other => {
            let got = other.map_or("no such key", |_| "true");
            Err(keys.error("rope.scaling.finetuned", "false: rotated positions are not supported", got))
        }
    }
}

fn gguf_feed_forward(keys: &Keys<'_>) -> Result<OpConfig, LoadError> {
    if keys.meta.u64(&keys.key("expert_count"))?.unwrap_or(0) == 0 {
        // Converters write them of dense models too, whose one part is what experts would share.
        keys.leave_out(&["expert_shared_feed_forward_length", "expert_used_count"]);
        return MlpConfig::from_gguf(keys).map(OpConfig::Mlp);
    }
    // 1 stands for softmax.
    keys.must_be("expert_gating_func", 1)?;
    let width = ["expert_feed_forward_length", "feed_forward_length"].into_iter().find(|key| keys.has(key));
    let shared = match keys.meta.u64(&keys.key("expert_shared_feed_forward_length"))? {
        None | Some(0) => None,
        Some(_) => Some(keys.size("expert_shared_feed_forward_length")?),
    };
    Ok(mixture(gguf_expert_counts(keys)?, keys.size(width.unwrap_or("feed_forward_length"))?, shared))
}

fn hugging_face_layers(dir: &HfDir) -> Result<Layers, LoadError> {
    let c = dir.config();
    c.must_be("mamba_proj_bias", false)?;
    check_conv_bias(dir, "mamba_conv_bias")?;
    let attends = hugging_face_attends(dir)?;
    let mixes = attends.contains(&false);
    let mut attention = AttentionConfig::plain_from_hugging_face(c, hugging_face_positions(c, mixes)?)?;
    attention.scale = factor(c, "attention_multiplier")?;
    let mamba = mixes.then(|| Mamba2Config::from_hugging_face(c, &NAMES, true)).transpose()?;
    let mixers = Mixers { mamba, attention: Some(attention) };
    Ok(layers(&attends, &mixers, hugging_face_feed_forward(c)?, factor(c, "residual_multiplier")?))
}

/// Heads beside mixers know of no positions.
fn hugging_face_positions(c: &HfConfig, mixes: bool) -> Result<Positions, LoadError> {
    let key = "position_embedding_type";
    match c.str(key)? {
        Some("rope") if !mixes => Ok(Positions::Rotated),
        Some(other) if !mixes && other != "nope" => Err(c.error(key, "`rope` or `nope`", format_args!("`{other}`"))),
        _ => {
            c.must_be(key, "nope")?;
            Ok(Positions::Unused)
        }
    }
}

fn hugging_face_attends(dir: &HfDir) -> Result<Vec<bool>, LoadError> {
    let (c, layers) = (dir.config(), layer_count(dir)?);
    let key = if c.has("layer_types") { "layer_types" } else { "layers_block_type" };
    let types = c.strings(key)?.ok_or_else(|| c.error(key, "a list, one entry a layer", "no such key"))?;
    let one = |name: &&str| match *name {
        "attention" | "full_attention" => Ok(true),
        "mamba" | "linear_attention" => Ok(false),
        other => Err(c.error(key, "`mamba` or `attention`", format_args!("`{other}`"))),
    };
    let attends = types.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    if attends.len() as u64 != layers {
        return Err(c.error(key, format_args!("{layers} entries, one a layer"), attends.len()));
    }
    Ok(attends)
}

fn hugging_face_feed_forward(c: &HfConfig) -> Result<OpConfig, LoadError> {
    let shared = match c.u64("shared_intermediate_size")? {
        None | Some(0) => None,
        Some(_) => Some(size(c, "shared_intermediate_size")?),
    };
    match (c.u64("num_local_experts")?.unwrap_or(0), shared) {
        (0, Some(width)) => Ok(OpConfig::Mlp(MlpConfig::swiglu(width))),
        (0, None) => Err(c.error("shared_intermediate_size", "at least 1 where there are no experts", "none")),
        _ => Ok(mixture(expert_counts(c, "num_local_experts")?, size(c, "intermediate_size")?, shared)),
    }
}

fn mixture((experts, used): (usize, usize), width: usize, shared: Option<usize>) -> OpConfig {
    let shared = shared.map(|width| SharedConfig { expert: MlpConfig::swiglu(width), gated: false });
    let (router, expert) = (Router::Softmax, MlpConfig::swiglu(width));
    OpConfig::Moe(MoeConfig { experts, used, router, expert, latent: None, shared })
}

/// Those that layers have; a model may have one of them only.
struct Mixers {
    mamba: Option<Mamba2Config>,
    attention: Option<AttentionConfig>,
}

fn layers(attends: &[bool], mixers: &Mixers, feed_forward: OpConfig, scale: f32) -> Layers {
    let layer = |attends: &bool| -> LayerPlan {
        let mixer = match attends {
            true => mixers.attention.map(OpConfig::Attention),
            false => mixers.mamba.map(OpConfig::Mamba2),
        };
        let mixer = mixer.expect("a mixer was read for every kind of layer that there is");
        let mut layer = mixer_and_feed_forward(NORMS, [mixer, feed_forward.clone()]);
        layer.iter_mut().for_each(|block| block.scale = scale);
        layer
    };
    Layers { main: attends.iter().map(layer).collect(), draft: Vec::new() }
}

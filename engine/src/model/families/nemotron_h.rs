//! `nemotron_h` and `nemotron_h_moe`: one block a layer, a Mamba-2 mixer, attention without positions, or a
//! feed-forward part of squared ReLUs without gates, dense or of experts that a sigmoid chooses and that may read rows of
//! a width of their own (Nemotron-H, Nemotron 3 Nano and Super).

use super::{Family, Layers, one_block};
use crate::format::hf::HfConfig;
use crate::format::{HfDir, LoadError};
use crate::model::blocks::LayerPlan;
use crate::model::blocks::{
    Activation, AttentionConfig, Mamba2Config, Mamba2Names, MlpConfig, MoeConfig, OpConfig, Positions, Router,
    SharedConfig, expert_counts, gguf_expert_counts,
};
use crate::model::gguf_keys::Keys;
use crate::model::hf_keys::{check_conv_bias, factor, layer_count, size};
use crate::model::hf_tensors::{Change, HfTensors, attention_tensors, mamba_tensors, no_factors, renamed};

const NORM: &str = "attn_norm.weight";

/// Directories say nothing of experts in their architecture, so this is that of both.
pub(super) const MOE: Family =
    Family::renamed("nemotron_h_moe", &["nemotron_h"], (gguf_layers, hugging_face_layers), &TENSORS);

pub(super) const DENSE: Family = Family { gguf: "nemotron_h", hugging_face: &[], ..MOE };

/// Keys about experts, of which a model of few layers may have none.
const EXPERT_KEYS: &[&str] = &[
    "expert_count",
    "expert_feed_forward_length",
    "expert_gating_func",
    "expert_shared_feed_forward_length",
    "expert_used_count",
    "expert_weights_scale",
    "moe_latent_size",
];

const TENSORS: HfTensors = HfTensors {
    prefixes: &["backbone.", "model."],
    embedding: "embeddings.weight",
    norm: "norm_f.weight",
    layer: &[
        &[renamed(NORM, "norm.weight")],
        mamba_tensors!("mixer"),
        attention_tensors!("mixer"),
        &[
            renamed("ffn_up.weight", "mixer.up_proj.weight"),
            renamed("ffn_down.weight", "mixer.down_proj.weight"),
            renamed("ffn_gate_inp.weight", "mixer.gate.weight"),
            renamed("exp_probs_b.bias", "mixer.gate.e_score_correction_bias"),
            ("ffn_up_exps.weight", "mixer.experts.{}.up_proj.weight", Change::Stack),
            renamed("ffn_up_exps.weight", "mixer.experts.up_proj"),
            ("ffn_down_exps.weight", "mixer.experts.{}.down_proj.weight", Change::Stack),
            renamed("ffn_down_exps.weight", "mixer.experts.down_proj"),
            renamed("ffn_latent_down.weight", "mixer.fc1_latent_proj.weight"),
            renamed("ffn_latent_up.weight", "mixer.fc2_latent_proj.weight"),
            renamed("ffn_up_shexp.weight", "mixer.shared_experts.up_proj.weight"),
            renamed("ffn_down_shexp.weight", "mixer.shared_experts.down_proj.weight"),
        ],
    ],
    factors: no_factors,
};

const NAMES: Mamba2Names = Mamba2Names {
    heads: "mamba_num_heads",
    head_dim: "mamba_head_dim",
    state_dim: "ssm_state_size",
    groups: "n_groups",
    conv_taps: "conv_kernel",
};

/// What a layer is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LayerKind {
    Mamba,
    Attention,
    /// A dense part of this width.
    Dense(usize),
    Experts,
}

/// What layers of a kind have in common; a model need not have all kinds.
#[derive(Default)]
struct Operators {
    mamba: Option<Mamba2Config>,
    attention: Option<AttentionConfig>,
    experts: Option<MoeConfig>,
}

fn gguf_layers(keys: &Keys<'_>) -> Result<Layers, LoadError> {
    let kinds = gguf_kinds(keys)?;
    let find = |kind: LayerKind| kinds.iter().position(|k| *k == kind);
    let attends: Vec<bool> = kinds.iter().map(|kind| *kind == LayerKind::Attention).collect();
    let attention = || AttentionConfig::plain_from_gguf(keys, &attends, Positions::Unused);
    if find(LayerKind::Experts).is_none() {
        keys.leave_out(EXPERT_KEYS);
    }
    let operators = Operators {
        mamba: find(LayerKind::Mamba).map(|_| Mamba2Config::from_gguf(keys, true)).transpose()?,
        attention: find(LayerKind::Attention).map(|_| attention()).transpose()?,
        experts: find(LayerKind::Experts).map(|_| gguf_experts(keys)).transpose()?,
    };
    Ok(layers(&kinds, &operators))
}

/// Attention has heads for keys, a feed-forward part a width, a mixer neither.
fn gguf_kinds(keys: &Keys<'_>) -> Result<Vec<LayerKind>, LoadError> {
    let numbers = |name: &str| keys.per_layer(name)?.ok_or_else(|| keys.error(name, "a number a layer", "no such key"));
    let (kv_heads, widths) = (numbers("attention.head_count_kv")?, numbers("feed_forward_length")?);
    let kind = |(i, (kv_heads, width)): (usize, (&usize, &usize))| match (kv_heads, width) {
        (0, 0) => LayerKind::Mamba,
        (_, 0) => LayerKind::Attention,
        _ if keys.has_tensor(&format!("blk.{i}.ffn_gate_inp.weight")) => LayerKind::Experts,
        (_, width) => LayerKind::Dense(*width),
    };
    Ok(kv_heads.iter().zip(&widths).enumerate().map(kind).collect())
}

fn gguf_experts(keys: &Keys<'_>) -> Result<MoeConfig, LoadError> {
    ["expert_group_count", "expert_group_used_count"].into_iter().try_for_each(|key| keys.must_be(key, 1))?;
    // 2 stands for a sigmoid.
    keys.must_be("expert_gating_func", 2)?;
    // A file that does not say so means weights as they are; llama.cpp reads it so.
    let normed = keys.meta.bool(&keys.key("expert_weights_norm"))?;
    if normed != Some(true) {
        return Err(keys.error("expert_weights_norm", "true", normed.map_or("none", |_| "false")));
    }
    let shared = match keys.meta.u64(&keys.key("expert_shared_feed_forward_length"))? {
        None | Some(0) => None,
        Some(_) => Some(keys.size("expert_shared_feed_forward_length")?),
    };
    let scale = keys.factor("expert_weights_scale")?.unwrap_or(1.0);
    // 0 stands for none.
    let latent = match keys.meta.u64(&keys.key("moe_latent_size"))? {
        None | Some(0) => None,
        Some(_) => Some(keys.size("moe_latent_size")?),
    };
    let width = keys.size("expert_feed_forward_length")?;
    Ok(MoeConfig { latent, ..mixture(gguf_expert_counts(keys)?, width, shared, scale) })
}

fn hugging_face_layers(dir: &HfDir) -> Result<Layers, LoadError> {
    let c = dir.config();
    ["use_bias", "mlp_bias", "attention_bias", "mamba_proj_bias"].into_iter().try_for_each(|k| c.must_be(k, false))?;
    c.must_be("mlp_hidden_act", "relu2")?;
    c.must_be("mamba_hidden_act", "silu")?;
    check_conv_bias(dir, "use_conv_bias")?;
    let kinds = hugging_face_kinds(dir)?;
    let has = |kind: LayerKind| kinds.contains(&kind);
    let operators = Operators {
        mamba: has(LayerKind::Mamba).then(|| Mamba2Config::from_hugging_face(c, &NAMES, true)).transpose()?,
        attention: has(LayerKind::Attention)
            .then(|| AttentionConfig::plain_from_hugging_face(c, Positions::Unused))
            .transpose()?,
        experts: has(LayerKind::Experts).then(|| hugging_face_experts(c)).transpose()?,
    };
    Ok(layers(&kinds, &operators))
}

/// A letter a layer, or a word.
fn hugging_face_kinds(dir: &HfDir) -> Result<Vec<LayerKind>, LoadError> {
    let c = dir.config();
    let (key, names) = match c.str("hybrid_override_pattern")? {
        Some(pattern) => ("hybrid_override_pattern", pattern.split("").filter(|letter| !letter.is_empty()).collect()),
        None => {
            let key = "layers_block_type";
            (key, c.strings(key)?.ok_or_else(|| c.error(key, "a list, one entry a layer", "no such key"))?)
        }
    };
    let kind = |name: &&str| match *name {
        "M" | "mamba" | "linear_attention" => Ok(LayerKind::Mamba),
        "*" | "attention" | "full_attention" => Ok(LayerKind::Attention),
        "-" | "mlp" => size(c, "intermediate_size").map(LayerKind::Dense),
        "E" | "moe" => Ok(LayerKind::Experts),
        other => Err(c.error(key, "layers of `M`, `*`, `-` and `E`", format_args!("`{other}`"))),
    };
    let kinds = names.iter().map(kind).collect::<Result<Vec<_>, _>>()?;
    let layers = if c.has("num_hidden_layers") { layer_count(dir)? } else { kinds.len() as u64 };
    if kinds.len() as u64 != layers {
        return Err(c.error(key, format_args!("{layers} entries, one a layer"), kinds.len()));
    }
    Ok(kinds)
}

fn hugging_face_experts(c: &HfConfig) -> Result<MoeConfig, LoadError> {
    c.must_be("n_group", 1)?;
    c.must_be("topk_group", 1)?;
    let shared = match c.u64("n_shared_experts")?.unwrap_or(0) {
        0 => None,
        _ => Some(size(c, "moe_shared_expert_intermediate_size")?),
    };
    let latent = c.u64("moe_latent_size")?.map(|_| size(c, "moe_latent_size")).transpose()?;
    let (counts, width) = (expert_counts(c, "n_routed_experts")?, size(c, "moe_intermediate_size")?);
    Ok(MoeConfig { latent, ..mixture(counts, width, shared, factor(c, "routed_scaling_factor")?) })
}

fn mixture((experts, used): (usize, usize), width: usize, shared: Option<usize>, scale: f32) -> MoeConfig {
    let shared = shared.map(|width| SharedConfig { expert: relu2(width), gated: false });
    MoeConfig { experts, used, router: Router::SigmoidBias { scale }, expert: relu2(width), latent: None, shared }
}

fn relu2(width: usize) -> MlpConfig {
    MlpConfig { width, activation: Activation::Relu2 }
}

fn layers(kinds: &[LayerKind], operators: &Operators) -> Layers {
    let read = "an operator was read for every kind of layer that there is";
    let layer = |kind: &LayerKind| -> LayerPlan {
        one_block(
            NORM,
            match kind {
                LayerKind::Mamba => OpConfig::Mamba2(operators.mamba.expect(read)),
                LayerKind::Attention => OpConfig::Attention(operators.attention.expect(read)),
                LayerKind::Dense(width) => OpConfig::Mlp(relu2(*width)),
                LayerKind::Experts => OpConfig::Moe(operators.experts.expect(read)),
            },
        )
    };
    Layers { main: kinds.iter().map(layer).collect(), draft: Vec::new() }
}

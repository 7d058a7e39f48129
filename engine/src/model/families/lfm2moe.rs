//! `lfm2moe`: `lfm2` with experts that sigmoids with biases choose behind the first layers (LFM2-8B-A1B, LFM2.5).

use super::{Family, Layers, lfm2};
use crate::format::hf::HfConfig;
use crate::format::{HfDir, LoadError};
use crate::model::blocks::{MlpConfig, MoeConfig, Router, expert_counts, gguf_expert_counts};
use crate::model::gguf_keys::Keys;
use crate::model::hf_keys::{factor, size};
use crate::model::hf_tensors::{Change, HfTensors, no_factors, renamed};

pub(super) const FAMILY: Family = Family {
    form: lfm2::FORM,
    ..Family::renamed("lfm2moe", &["lfm2_moe"], (gguf_layers, hugging_face_layers), &TENSORS)
};

const TENSORS: HfTensors = HfTensors {
    prefixes: &["model."],
    embedding: "embed_tokens.weight",
    norm: "embedding_norm.weight",
    layer: &[
        lfm2::MIXERS,
        lfm2::DENSE,
        &[
            renamed("ffn_gate_inp.weight", "feed_forward.gate.weight"),
            renamed("exp_probs_b.bias", "feed_forward.expert_bias"),
            ("ffn_gate_exps.weight", "feed_forward.experts.{}.w1.weight", Change::Stack),
            ("ffn_gate_exps.weight", "feed_forward.experts.gate_up_proj", Change::FirstHalf),
            ("ffn_up_exps.weight", "feed_forward.experts.{}.w3.weight", Change::Stack),
            ("ffn_up_exps.weight", "feed_forward.experts.gate_up_proj", Change::SecondHalf),
            ("ffn_down_exps.weight", "feed_forward.experts.{}.w2.weight", Change::Stack),
            renamed("ffn_down_exps.weight", "feed_forward.experts.down_proj"),
        ],
    ],
    factors: no_factors,
};

fn gguf_layers(keys: &Keys<'_>) -> Result<Layers, LoadError> {
    // 2 stands for a sigmoid.
    keys.must_be("expert_gating_func", 2)?;
    let scale = keys.factor("expert_weights_scale")?.unwrap_or(1.0);
    let width = keys.size("expert_feed_forward_length")?;
    let experts = mixture(gguf_expert_counts(keys)?, width, scale);
    let first = keys.meta.u64(&keys.key("leading_dense_block_count"))?.unwrap_or(0);
    let dense = (first > 0).then(|| MlpConfig::from_gguf(keys)).transpose()?;
    Ok(behind_dense(lfm2::gguf_mixers(keys)?, first, dense, &experts))
}

fn hugging_face_layers(dir: &HfDir) -> Result<Layers, LoadError> {
    let c: &HfConfig = dir.config();
    c.must_be("use_expert_bias", true)?;
    c.must_be("norm_topk_prob", true)?;
    let count = if c.has("num_experts") { "num_experts" } else { "num_local_experts" };
    let width = size(c, "moe_intermediate_size")?;
    let experts = mixture(expert_counts(c, count)?, width, factor(c, "routed_scaling_factor")?);
    let first = c.need_u64("num_dense_layers")?;
    let dense = (first > 0).then(|| size(c, "intermediate_size").map(MlpConfig::swiglu)).transpose()?;
    Ok(behind_dense(lfm2::hugging_face_mixers(dir)?, first, dense, &experts))
}

/// Layers of which the first ones have a dense part.
fn behind_dense(mixers: lfm2::MixerPlan, first: u64, dense: Option<MlpConfig>, experts: &MoeConfig) -> Layers {
    mixers.layers(|layer| match dense {
        Some(dense) if (layer as u64) < first => dense.into(),
        _ => (*experts).into(),
    })
}

fn mixture((experts, used): (usize, usize), width: usize, scale: f32) -> MoeConfig {
    let (router, expert) = (Router::SigmoidBias { scale }, MlpConfig::swiglu(width));
    MoeConfig { experts, used, router, expert, latent: None, shared: None }
}

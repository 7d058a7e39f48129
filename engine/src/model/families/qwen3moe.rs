//! `qwen3moe`: `qwen3` with a mixture of experts without a shared one in every layer (Qwen3-30B-A3B, 235B-A22B,
//! Qwen3-Coder).

use super::{Family, qwen3};
use crate::format::LoadError;
use crate::format::hf::HfConfig;
use crate::model::blocks::{MlpConfig, MoeConfig, OpConfig, Router, expert_counts, gguf_expert_counts};
use crate::model::gguf_keys::Keys;
use crate::model::hf_keys::size;
use crate::model::hf_tensors::{Change, HfTensors, attention_tensors, no_factors, renamed};

pub(super) const FAMILY: Family = Family::renamed(
    "qwen3moe",
    &["qwen3_moe"],
    (|keys| qwen3::gguf_layers(keys, gguf_experts(keys)?), |dir| qwen3::hugging_face_layers(dir, hugging_face_experts)),
    &TENSORS,
);

const TENSORS: HfTensors = HfTensors {
    prefixes: &qwen3::PREFIXES,
    embedding: "embed_tokens.weight",
    norm: "norm.weight",
    layer: &[
        qwen3::MIXER,
        attention_tensors!("self_attn"),
        &[
            renamed("ffn_gate_inp.weight", "mlp.gate.weight"),
            ("ffn_gate_exps.weight", "mlp.experts.{}.gate_proj.weight", Change::Stack),
            ("ffn_gate_exps.weight", "mlp.experts.gate_up_proj", Change::FirstHalf),
            ("ffn_up_exps.weight", "mlp.experts.{}.up_proj.weight", Change::Stack),
            ("ffn_up_exps.weight", "mlp.experts.gate_up_proj", Change::SecondHalf),
            ("ffn_down_exps.weight", "mlp.experts.{}.down_proj.weight", Change::Stack),
            renamed("ffn_down_exps.weight", "mlp.experts.down_proj"),
        ],
    ],
    factors: no_factors,
};

fn gguf_experts(keys: &Keys<'_>) -> Result<OpConfig, LoadError> {
    // 1 stands for a softmax.
    keys.must_be("expert_gating_func", 1)?;
    let width = keys.width("expert_feed_forward_length", "blk.0.ffn_down_exps.weight")?;
    Ok(mixture(gguf_expert_counts(keys)?, width))
}

fn hugging_face_experts(c: &HfConfig) -> Result<OpConfig, LoadError> {
    // Where the key is missing, transformers takes the softmax over all experts as it is.
    match c.bool("norm_topk_prob")? {
        Some(true) => {}
        other => {
            let got = other.map_or("no such key", |_| "false");
            return Err(c.error("norm_topk_prob", "true: the weights of the chosen experts have a sum of 1", got));
        }
    }
    let count = if c.has("num_experts") { "num_experts" } else { "num_local_experts" };
    Ok(mixture(expert_counts(c, count)?, size(c, "moe_intermediate_size")?))
}

fn mixture((experts, used): (usize, usize), width: usize) -> OpConfig {
    let (router, expert) = (Router::Softmax, MlpConfig::swiglu(width));
    MoeConfig { experts, used, router, expert, latent: None, shared: None }.into()
}

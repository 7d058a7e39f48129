//! The text part of config.json as written, with the defaults of the configuration classes where a key may be left out.

use super::json::Json;
use crate::format::{LoadError, Problem};
use serde_json::Value;
use std::path::{Path, PathBuf};

const FULL_ATTENTION: &str = "full_attention";
const LINEAR_ATTENTION: &str = "linear_attention";
const INTERVAL_DEFAULT: u64 = 4;
const ROTARY_PART_DEFAULT: f64 = 0.25;

/// config.json, the nested `text_config` or the whole.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are the keys of config.json")]
pub struct HfConfig {
    /// The file, for messages.
    pub file: PathBuf,
    pub model_type: String,
    pub hidden_size: u64,
    pub num_hidden_layers: u64,
    /// Whether each layer is a full-attention one, from `layer_types` or the interval. As many as layers where it is
    /// from the types.
    pub attends: Attends,
    pub vocab_size: u64,
    pub max_position_embeddings: u64,
    pub rms_norm_eps: f64,
    pub tie_word_embeddings: bool,
    pub head_dim: u64,
    pub num_attention_heads: u64,
    pub num_key_value_heads: u64,
    pub rope_theta: f64,
    pub partial_rotary_factor: f64,
    pub linear_conv_kernel_dim: u64,
    pub linear_key_head_dim: u64,
    pub linear_value_head_dim: u64,
    pub linear_num_key_heads: u64,
    pub linear_num_value_heads: u64,
    /// Width of a dense feed-forward part.
    pub intermediate_size: Option<u64>,
    /// Shape of a mixture of experts.
    pub experts: Option<HfExperts>,
}

/// Which layers are full attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attends {
    /// One entry a layer.
    Listed(Vec<bool>),
    /// Every n-th layer is of full attention.
    Every(u64),
}

/// The keys about experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the keys of config.json")]
pub struct HfExperts {
    pub num_experts: u64,
    pub num_experts_per_tok: u64,
    pub moe_intermediate_size: u64,
    pub shared_expert_intermediate_size: u64,
}

impl HfConfig {
    /// Reads the file. What the forward pass does not implement is refused here.
    pub fn read(file: &Path) -> Result<Self, LoadError> {
        let whole = Json::read(file)?;
        let tied = whole.bool("tie_word_embeddings")?;
        let quantization =
            ["quantization_config", "text_config.quantization_config"].into_iter().find(|k| whole.get(k).is_some());
        check_quantization(&whole, quantization)?;
        let text = match whole.get("text_config") {
            Some(part) => Json { file: whole.file.clone(), value: part.clone() },
            None => whole,
        };
        check_supported(&text)?;
        read_text(text, tied)
    }

    /// The error of a value that contradicts another.
    pub fn error(&self, key: &str, want: impl std::fmt::Display, got: impl std::fmt::Display) -> LoadError {
        Problem::key(key, want, got).in_file(&self.file)
    }
}

fn read_text(json: Json, tied: Option<bool>) -> Result<HfConfig, LoadError> {
    let number = |key: &str| need(&json, key, json.u64(key)?);
    let rope = |key: &str| Ok::<_, LoadError>(json.f64(&format!("rope_parameters.{key}"))?.or(json.f64(key)?));
    Ok(HfConfig {
        model_type: need(&json, "model_type", json.str("model_type")?)?.to_owned(),
        hidden_size: number("hidden_size")?,
        num_hidden_layers: number("num_hidden_layers")?,
        attends: attends(&json)?,
        vocab_size: number("vocab_size")?,
        max_position_embeddings: number("max_position_embeddings")?,
        rms_norm_eps: need(&json, "rms_norm_eps", json.f64("rms_norm_eps")?)?,
        tie_word_embeddings: json.bool("tie_word_embeddings")?.or(tied).unwrap_or(false),
        head_dim: number("head_dim")?,
        num_attention_heads: number("num_attention_heads")?,
        num_key_value_heads: number("num_key_value_heads")?,
        rope_theta: need(&json, "rope_parameters.rope_theta", rope("rope_theta")?)?,
        partial_rotary_factor: rope("partial_rotary_factor")?.unwrap_or(ROTARY_PART_DEFAULT),
        linear_conv_kernel_dim: number("linear_conv_kernel_dim")?,
        linear_key_head_dim: number("linear_key_head_dim")?,
        linear_value_head_dim: number("linear_value_head_dim")?,
        linear_num_key_heads: number("linear_num_key_heads")?,
        linear_num_value_heads: number("linear_num_value_heads")?,
        intermediate_size: json.u64("intermediate_size")?,
        experts: match json.u64("num_experts")? {
            None | Some(0) => None,
            Some(num_experts) => Some(HfExperts {
                num_experts,
                num_experts_per_tok: number("num_experts_per_tok")?,
                moe_intermediate_size: number("moe_intermediate_size")?,
                shared_expert_intermediate_size: number("shared_expert_intermediate_size")?,
            }),
        },
        file: json.file,
    })
}

fn need<T>(json: &Json, key: &str, value: Option<T>) -> Result<T, LoadError> {
    value.ok_or_else(|| json.error(key, "a value", "no such key"))
}

fn attends(json: &Json) -> Result<Attends, LoadError> {
    let Some(types) = json.array("layer_types")? else {
        let interval = json.u64("full_attention_interval")?.unwrap_or(INTERVAL_DEFAULT);
        if interval == 0 {
            return Err(json.error("full_attention_interval", "at least 1", 0));
        }
        return Ok(Attends::Every(interval));
    };
    let one = |v: &Value| match v.as_str() {
        Some(FULL_ATTENTION) => Ok(true),
        Some(LINEAR_ATTENTION) => Ok(false),
        _ => Err(json.error("layer_types", format_args!("`{LINEAR_ATTENTION}` or `{FULL_ATTENTION}`"), v)),
    };
    types.iter().map(one).collect::<Result<_, _>>().map(Attends::Listed)
}

fn check_quantization(json: &Json, key: Option<&str>) -> Result<(), LoadError> {
    let Some(key) = key else { return Ok(()) };
    let method = format!("{key}.quant_method");
    match json.str(&method)? {
        Some("fp8") => Ok(()),
        other => Err(json.error(&method, "`fp8`", format_args!("`{}`", other.unwrap_or("nothing")))),
    }
}

/// Variations of the architecture that exist as keys, but in no released model.
fn check_supported(json: &Json) -> Result<(), LoadError> {
    for (key, want) in [("norm_topk_prob", true), ("attn_output_gate", true), ("attention_bias", false)] {
        if let Some(got) = json.bool(key)?
            && got != want
        {
            return Err(json.error(key, want, got));
        }
    }
    if let Some(step) = json.u64("decoder_sparse_step")?
        && step != 1
    {
        return Err(json.error("decoder_sparse_step", "1: experts in every layer", step));
    }
    if let Some(layers) = json.array("mlp_only_layers")?
        && !layers.is_empty()
    {
        return Err(json.error("mlp_only_layers", "no layer", format_args!("{} layers", layers.len())));
    }
    if let Some(act) = json.str("hidden_act")?
        && act != "silu"
    {
        return Err(json.error("hidden_act", "`silu`", format_args!("`{act}`")));
    }
    for key in ["rope_parameters.rope_type", "rope_scaling.rope_type", "rope_scaling.type"] {
        if let Some(kind) = json.str(key)?
            && kind != "default"
        {
            return Err(json.error(key, "`default`: scaled rotation is not supported", format_args!("`{kind}`")));
        }
    }
    Ok(())
}

//! Sizes of an encoder, from its config.json.

use crate::backend::cpu::simd::LANES;
use crate::format::hf::HfConfig;
use crate::format::{HfDir, LoadError};
use crate::model::{harmless, unread};

/// The function between the two matrices of a feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gelu {
    /// `x / 2 (1 + erf(x / sqrt 2))`.
    Exact,
    /// As [`Gelu::Exact`], with `tanh(sqrt(2 / pi) (x + 0.044715 x^3))` in the place of `erf`.
    Tanh,
}

/// Sizes of an encoder. What tensors there are, and of which shapes, follows from them.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderConfig {
    /// Width of a row, and of a vector.
    pub hidden: usize,
    /// How many layers there are.
    pub layers: usize,
    /// Heads of a layer's attention.
    pub heads: usize,
    /// Width between the matrices of a feed-forward part.
    pub inner: usize,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Positions that have a vector.
    pub positions: usize,
    /// Kinds of segments; all tokens are of the first.
    pub types: usize,
    /// Epsilon of every norm.
    pub eps: f32,
    /// The function of the feed-forward parts.
    pub gelu: Gelu,
}

impl EncoderConfig {
    /// Reads the keys, and refuses those that change what is computed and are not known.
    pub(super) fn read(dir: &HfDir) -> Result<Self, LoadError> {
        let keys = dir.config();
        if keys.model_type != "bert" {
            return Err(keys.error("model_type", "`bert`", format_args!("`{}`", keys.model_type)));
        }
        dir.check_quantization()?;
        let config = Self {
            hidden: size(keys, "hidden_size")?,
            layers: size(keys, "num_hidden_layers")?,
            heads: size(keys, "num_attention_heads")?,
            inner: size(keys, "intermediate_size")?,
            vocab: size(keys, "vocab_size")?,
            positions: size(keys, "max_position_embeddings")?,
            types: size(keys, "type_vocab_size")?,
            eps: eps(keys)?,
            gelu: gelu(keys)?,
        };
        if !config.hidden.is_multiple_of(config.heads * LANES) {
            let want = format!("heads whose width in {} is a multiple of {LANES}", config.hidden);
            return Err(keys.error("num_attention_heads", want, config.heads));
        }
        if !config.inner.is_multiple_of(LANES) {
            return Err(keys.error("intermediate_size", format_args!("a multiple of {LANES}"), config.inner));
        }
        unread::check_keys(&keys.unread(), "", harmless::ENCODER).map_err(|problem| problem.in_file(&keys.file))?;
        Ok(config)
    }

    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }
}

fn size(keys: &HfConfig, key: &str) -> Result<usize, LoadError> {
    /// Far above any encoder, and low enough that products of two sizes are numbers.
    const SIZE_MAX: u64 = 1 << 24;
    let got = keys.need_u64(key)?;
    match got {
        1..=SIZE_MAX => Ok(got as usize),
        _ => Err(keys.error(key, format_args!("1 to {SIZE_MAX}"), got)),
    }
}

fn eps(keys: &HfConfig) -> Result<f32, LoadError> {
    let got = keys.f64("layer_norm_eps")?.unwrap_or(1e-12);
    if got > 0.0 && got < 1.0 { Ok(got as f32) } else { Err(keys.error("layer_norm_eps", "above 0, below 1", got)) }
}

fn gelu(keys: &HfConfig) -> Result<Gelu, LoadError> {
    match keys.str("hidden_act")?.unwrap_or("gelu") {
        "gelu" | "gelu_python" => Ok(Gelu::Exact),
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Ok(Gelu::Tanh),
        other => Err(keys.error("hidden_act", "`gelu`, `gelu_new` or `gelu_pytorch_tanh`", format_args!("`{other}`"))),
    }
}

//! A model in memory: its shape ([`ModelConfig`]) and its weights, the same for every file format and architecture.
//!
//! Loaders bring what they read into the conventions of this module: norm weights are the factors to multiply by (`1 + w` already
//! folded in), `a` is `-exp(A_log)`, fused matrices are split, conv weights are `[channel, tap]`. What differs and stays is the
//! order of value heads ([`HeadOrder`]).

mod from_gguf;
mod from_hf;
mod load;
mod qwen35;
mod qwen35moe;
mod qwen3next;
mod reader;
mod summary;

pub use load::{load, load_gguf, load_hugging_face};
pub use summary::{Role, RoleSummary, Summary};

use crate::format::{Files, Tensor, TextAssets};

/// Everything read from a model file or directory.
#[derive(Debug)]
pub struct Model {
    /// Shape.
    pub config: ModelConfig,
    /// Encoded weights; large ones are views of the mapped file.
    pub weights: Weights,
    /// Tokenizer, template, end ids, sampling defaults.
    pub text: TextAssets,
    /// What all of it was read from. Whoever has taken the weights up asks whether they were the same all the time.
    pub files: Files,
}

/// The architectures that are read, by what their forward pass and packing need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// GGUF `qwen35moe`, Hugging Face `qwen3_5_moe`.
    Qwen35Moe,
    /// GGUF `qwen35`, Hugging Face `qwen3_5`.
    Qwen35,
    /// GGUF `qwen3next`, Hugging Face `qwen3_next`.
    Qwen3Next,
}

/// The model's shape. Checked against the tensors when loaded, so a value cannot contradict a weight.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Which architecture the file names.
    pub architecture: Architecture,
    /// The file's own name for the model, or the file's stem.
    pub name: String,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Positions the model was made for.
    pub context: u32,
    /// Epsilon of every RMS norm.
    pub rms_eps: f32,
    /// One entry a main layer (the MTP layer is not among them).
    pub layers: Vec<LayerKind>,
    /// Shape of the gated-delta layers.
    pub gdn: GdnConfig,
    /// Shape of the attention layers.
    pub attention: AttentionConfig,
    /// Shape of the feed-forward part.
    pub ffn: FfnConfig,
}

/// What mixes tokens in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Gated delta rule.
    Gdn,
    /// Gated full attention.
    Attention,
}

/// Shape of a gated-delta layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GdnConfig {
    /// Hk.
    pub key_heads: usize,
    /// Hv, a multiple of Hk.
    pub value_heads: usize,
    /// K.
    pub key_dim: usize,
    /// V.
    pub value_dim: usize,
    /// Taps of the causal convolution.
    pub conv_taps: usize,
    /// Which key head a value head reads.
    pub head_order: HeadOrder,
}

impl GdnConfig {
    /// The key head of value head `h`.
    pub fn key_head(&self, h: usize) -> usize {
        match self.head_order {
            HeadOrder::Grouped => h / (self.value_heads / self.key_heads),
            HeadOrder::Tiled => h % self.key_heads,
        }
    }

    /// Channels of the convolution: q, k and v.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    /// Floats of one layer's recurrent state of one sequence, `[Hv, K, V]`.
    pub fn state_len(&self) -> usize {
        self.value_heads * self.key_dim * self.value_dim
    }
}

/// Order of the value heads in weights and state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadOrder {
    /// Value heads of one key head are neighbours (Hugging Face files, GGUF `qwen3next`).
    Grouped,
    /// Value head `h` belongs to key head `h % Hk` (GGUF `qwen35`, `qwen35moe`).
    Tiled,
}

/// Shape of an attention layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionConfig {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// D.
    pub head_dim: usize,
    /// The first dimensions of each head that are rotated, in halves.
    pub rotary_dim: usize,
    /// Base of the rotation.
    pub rope_theta: f64,
}

/// Shape of the feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FfnConfig {
    /// SwiGLU.
    Dense {
        /// Intermediate width.
        width: usize,
    },
    /// Routed experts and a shared one.
    Moe {
        /// E.
        experts: usize,
        /// Experts a token uses.
        used: usize,
        /// Intermediate width of an expert.
        width: usize,
        /// Intermediate width of the shared expert.
        shared_width: usize,
    },
}

/// All weights. Matrices are `[out, in]`.
#[derive(Debug)]
pub struct Weights {
    /// `[vocab, hidden]`.
    pub embed: Tensor,
    /// Final norm, `[hidden]`.
    pub norm: Vec<f32>,
    /// `[vocab, hidden]`; `None` if tied to the embedding.
    pub head: Option<Tensor>,
    /// As many as [`ModelConfig::layers`].
    pub layers: Vec<LayerWeights>,
    /// The draft head, where the file has one.
    pub mtp: Option<MtpWeights>,
}

/// One decoder layer.
#[derive(Debug)]
pub struct LayerWeights {
    /// Before the mixer.
    pub input_norm: Vec<f32>,
    /// The mixer.
    pub mixer: MixerWeights,
    /// Before the feed-forward part.
    pub post_norm: Vec<f32>,
    /// The feed-forward part.
    pub ffn: FfnWeights,
}

/// Weights of a layer's mixer.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a handful of these exist, all for the life of the process")]
pub enum MixerWeights {
    /// Gated delta rule.
    Gdn(GdnWeights),
    /// Gated attention.
    Attention(AttentionWeights),
}

/// Weights of a gated-delta layer.
#[derive(Debug)]
pub struct GdnWeights {
    /// `[channels, hidden]`, rows q | k | v.
    pub qkv: Tensor,
    /// `[Hv*V, hidden]`, the output gate.
    pub z: Tensor,
    /// `[Hv, hidden]`, gives beta.
    pub b: Tensor,
    /// `[Hv, hidden]`, gives the decay.
    pub a: Tensor,
    /// `[channels, taps]`, the last tap is the current token.
    pub conv: Vec<f32>,
    /// `-exp(A_log)`, `[Hv]`.
    pub a_neg: Vec<f32>,
    /// `[Hv]`.
    pub dt_bias: Vec<f32>,
    /// Gated norm, `[V]`, shared by the heads.
    pub norm: Vec<f32>,
    /// `[hidden, Hv*V]`.
    pub out: Tensor,
}

/// Weights of an attention layer.
#[derive(Debug)]
pub struct AttentionWeights {
    /// `[heads * 2 * D, hidden]`: per head D rows of query, then D rows of gate.
    pub q: Tensor,
    /// `[kv_heads * D, hidden]`.
    pub k: Tensor,
    /// `[kv_heads * D, hidden]`.
    pub v: Tensor,
    /// `[D]`.
    pub q_norm: Vec<f32>,
    /// `[D]`.
    pub k_norm: Vec<f32>,
    /// `[hidden, heads * D]`.
    pub out: Tensor,
}

/// Weights of a feed-forward part.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a handful of these exist, all for the life of the process")]
pub enum FfnWeights {
    /// SwiGLU.
    Dense(SwigluWeights),
    /// Routed experts and a shared one.
    Moe(MoeWeights),
}

/// Three matrices of a SwiGLU, or three stacks of them.
#[derive(Debug)]
pub struct SwigluWeights {
    /// `[width, hidden]`, or `[experts, width, hidden]`.
    pub gate: Tensor,
    /// As `gate`.
    pub up: Tensor,
    /// `[hidden, width]`, or `[experts, hidden, width]`.
    pub down: Tensor,
}

/// Weights of a mixture of experts.
#[derive(Debug)]
pub struct MoeWeights {
    /// `[experts, hidden]`.
    pub router: Tensor,
    /// Stacks of all routed experts.
    pub experts: SwigluWeights,
    /// The shared expert.
    pub shared: SwigluWeights,
    /// `[hidden]`; the sigmoid of its product scales the shared expert's output.
    pub shared_gate: Vec<f32>,
}

/// The draft head: one attention layer of its own, the main model's embedding and head.
#[derive(Debug)]
pub struct MtpWeights {
    /// Norm of the embedding half, `[hidden]`.
    pub embed_norm: Vec<f32>,
    /// Norm of the hidden half, `[hidden]`.
    pub hidden_norm: Vec<f32>,
    /// `[hidden, 2 * hidden]`, embedding half first.
    pub fc: Tensor,
    /// Attention and feed-forward part.
    pub layer: LayerWeights,
    /// Final norm of the draft, `[hidden]`.
    pub norm: Vec<f32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_heads_find_their_key_head_in_both_orders() {
        let mut gdn =
            GdnConfig { key_heads: 2, value_heads: 6, key_dim: 4, value_dim: 4, conv_taps: 4, head_order: HeadOrder::Grouped };
        assert_eq!((0..6).map(|h| gdn.key_head(h)).collect::<Vec<_>>(), [0, 0, 0, 1, 1, 1]);
        gdn.head_order = HeadOrder::Tiled;
        assert_eq!((0..6).map(|h| gdn.key_head(h)).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 1]);
        assert_eq!(gdn.channels(), 40);
    }
}

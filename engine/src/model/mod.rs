//! A model in memory: its shape ([`ModelConfig`]) and its weights, the same for every file format and family.
//!
//! A layer is a list of residual [`Block`]s; what operators there are, `blocks` says, and which of them the layers of a
//! family are made of, `families`. Loaders bring what they read into the conventions of this module: norm weights are
//! the factors to multiply by (`1 + w` already folded in), `a` is `-exp(A_log)`, fused matrices are split, conv weights
//! are `[channel, tap]`. What differs and stays is the order of value heads ([`HeadOrder`]).

mod adapter;
mod blocks;
mod converted;
mod draft_ids;
mod families;
mod from_gguf;
mod from_hf;
mod gguf_keys;
pub(crate) mod harmless;
mod hf_keys;
mod hf_tensors;
mod load;
mod reader;
mod summary;
pub(crate) mod unread;

pub use adapter::{AdapterTargets, RandomAdapterError, read_adapter, write_random_adapter};
pub use blocks::{
    Activation, AttentionConfig, AttentionWeights, Block, BlockConfig, GdnConfig, GdnWeights, HeadOrder, LatentWeights,
    Mamba2Config, Mamba2Weights, MlpConfig, MlpWeights, MoeConfig, MoeWeights, Op, OpConfig, OperatorConfig,
    ParallelConfig, ParallelWeights, Rope, Router, SharedConfig, SharedWeights, ShortConvConfig, ShortConvWeights,
    StateShape,
};
#[cfg(test)]
pub(crate) use blocks::{ScaleConfig, ScaleWeights};
pub use converted::as_gguf;
pub use draft_ids::{DraftIds, Shortlist};
pub use load::{Opened, find_file, load, load_gguf, load_hugging_face, open};
pub use summary::{Role, RoleSummary, Summary};

use crate::format::{Files, Tensor, TextAssets};
use blocks::LayerPlan;

/// Everything read from a model file or directory.
#[derive(Debug)]
pub struct Model {
    /// What the model is made of.
    pub config: ModelConfig,
    /// Encoded weights; large ones are views of the mapped file.
    pub weights: Weights,
    /// Tokenizer, template, end ids, sampling defaults.
    pub text: TextAssets,
    /// What all of it was read from. Whoever has taken the weights up asks whether they were the same all the time.
    pub files: Files,
}

/// The model's shape. Checked against the tensors when loaded, so a value cannot contradict a weight.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The family by the name that GGUF files call it, such as `qwen35moe`.
    pub architecture: &'static str,
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
    /// What rows of the embedding are multiplied with; 1 for most.
    pub embedding_scale: f32,
    /// What logits are multiplied with; 1 for most.
    pub logit_scale: f32,
    /// One entry a main layer (the draft head's is not among them).
    pub layers: Vec<Vec<BlockConfig>>,
    /// The blocks of the draft head's layer; none where there is no such head.
    pub draft: Vec<BlockConfig>,
}

impl ModelConfig {
    /// All blocks in the order in which a token goes through them.
    pub fn blocks(&self) -> impl Iterator<Item = &BlockConfig> {
        self.layers.iter().flatten()
    }

    /// The configurations of one operator, block by block.
    pub fn each<'a, C: OperatorConfig + 'a>(&'a self) -> impl Iterator<Item = &'a C> {
        self.blocks().filter_map(|block| C::of(&block.op))
    }

    /// Every operator's configuration once, however many blocks have it: first those in which a sequence leaves
    /// something behind, each in the order of its first block. Of what a backend keeps for blocks of one shape
    /// (kernels, buffers of a step) it needs one for each.
    pub fn shapes(&self) -> Vec<&OpConfig> {
        self.shapes_of(self.blocks())
    }

    /// As [`Self::shapes`], followed by those of the draft head's layer that no main layer has.
    pub fn shapes_with_draft(&self) -> Vec<&OpConfig> {
        let mut shapes = self.shapes();
        shapes.extend(self.shapes_of(self.draft.iter()).into_iter().filter(|shape| !self.shapes().contains(shape)));
        shapes
    }

    fn shapes_of<'a>(&self, blocks: impl Iterator<Item = &'a BlockConfig>) -> Vec<&'a OpConfig> {
        let mut shapes: Vec<&OpConfig> = Vec::new();
        for block in blocks {
            if !shapes.contains(&&block.op) {
                shapes.push(&block.op);
            }
        }
        shapes.sort_by_key(|op| op.state() == StateShape::default());
        shapes
    }

    /// Floats of recurrent state and convolution tails that a sequence has in all blocks together.
    pub fn recurrent_floats(&self) -> usize {
        self.blocks().map(|block| block.op.state()).map(|state| state.recurrent + state.tail).sum()
    }

    /// Values of all keys, or of all values, that a sequence has for each position in all blocks together.
    pub fn kv_values(&self) -> usize {
        self.blocks().map(|block| block.op.state()).map(|state| state.kv_heads * state.kv_dim).sum()
    }

    /// This configuration with the layers of these plans, and with the layer of the draft head.
    fn with_layers(self, plans: &[LayerPlan], draft: Option<&LayerPlan>) -> Self {
        let layer =
            |plan: &LayerPlan| plan.iter().map(|b| Block { norm: (), op: b.op.clone(), scale: b.scale }).collect();
        let mut config =
            Self { layers: plans.iter().map(layer).collect(), draft: draft.map(layer).unwrap_or_default(), ..self };
        let ropes = config.each::<AttentionConfig>().filter_map(|attention| attention.rope);
        config.context = ropes.fold(config.context, |context, rope| rope.extended(context));
        config
    }
}

/// All weights. Matrices are `[out, in]`.
#[derive(Debug)]
pub struct Weights {
    /// Embedding of the tokens, `[vocab, hidden]`.
    pub embed: Tensor,
    /// Weight of the norm before the head, `[hidden]`.
    pub norm: Vec<f32>,
    /// `[vocab, hidden]`; `None` if tied to the embedding.
    pub head: Option<Tensor>,
    /// As many as [`ModelConfig::layers`].
    pub layers: Vec<Vec<Block>>,
    /// The draft head, where the file has one.
    pub draft_head: Option<DraftHeadWeights>,
}

/// The draft head: one attention layer of its own, the main model's embedding and head.
#[derive(Debug)]
pub struct DraftHeadWeights {
    /// Norm of the embedding half, `[hidden]`.
    pub embed_norm: Vec<f32>,
    /// Norm of the hidden half, `[hidden]`.
    pub hidden_norm: Vec<f32>,
    /// `[hidden, 2 * hidden]`, embedding half first.
    pub fc: Tensor,
    /// The blocks of the head's layer.
    pub layer: Vec<Block>,
    /// Final norm of the draft, `[hidden]`.
    pub norm: Vec<f32>,
    /// What guesses are made among, where that is not the whole vocabulary: see [`Model::limit_draft_ids`].
    pub shortlist: Option<Shortlist>,
}

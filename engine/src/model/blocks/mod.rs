//! The operators that layers are made of. A layer is a list of residual blocks, each `x += scale * operator(norm(x))`.
//!
//! An operator is one file here: what its configuration says, its weights, how both are read from a file, and what a
//! sequence leaves behind in it. The list below is the only place of the model that tells operators apart; backends
//! have one such list each (`backend/cpu/blocks`, `backend/cuda/blocks`).

mod attention;
mod conversion;
mod gdn;
mod layer;
mod mamba2;
mod mlp;
mod moe;
mod parallel;
#[cfg(test)]
mod scale;
mod shortconv;

pub use attention::{AttentionConfig, AttentionWeights, Rope};
pub use gdn::{GdnConfig, GdnWeights, HeadOrder};
pub use mamba2::{Mamba2Config, Mamba2Weights};
pub use mlp::{Activation, MlpConfig, MlpWeights};
pub use moe::{LatentWeights, MoeConfig, MoeWeights, Router, SharedConfig, SharedWeights};
pub use parallel::{ParallelConfig, ParallelWeights};
#[cfg(test)]
pub(crate) use scale::{ScaleConfig, ScaleWeights};
pub use shortconv::{ShortConvConfig, ShortConvWeights};

pub(super) use attention::Positions;
pub(super) use conversion::{Conversion, Converted, ConvertedLayer};
pub(super) use gdn::{GdnPacking, Projections};
pub(super) use layer::Layer;
pub(super) use mamba2::Mamba2Names;
pub(super) use moe::{expert_counts, gguf_expert_counts};

use super::reader::Format;
use super::summary::Summary;
use crate::format::LoadError;
use crate::format::gguf::MetaValue;

/// One residual step of a layer: `x += scale * op(norm(x))`. With the defaults its weights; with [`OpConfig`] and `()`
/// its shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Block<O = Op, N = Vec<f32>> {
    /// Weight of the RMS norm before the operator, `[hidden]`.
    pub norm: N,
    /// The operator, with its weights or with its shape.
    pub op: O,
    /// What the operator's output is multiplied with before it is added.
    pub scale: f32,
}

/// A block without its weights.
pub type BlockConfig = Block<OpConfig, ()>;

/// A layer before its weights are read: each norm by the name of its tensor.
pub(super) type LayerPlan = Vec<Block<OpConfig, &'static str>>;

/// What a sequence leaves behind in a block. All zeros for an operator that looks at one token alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateShape {
    /// Floats of recurrent state.
    pub recurrent: usize,
    /// Floats of a causal convolution's last inputs, `[taps - 1, channels]`.
    pub tail: usize,
    /// Heads that have a key and a value at each position.
    pub kv_heads: usize,
    /// Width of such a key, and of such a value.
    pub kv_dim: usize,
    /// Floats from which the recurrent state after one more position follows.
    pub factors: usize,
    /// Floats of the convolution's input at one position, `[channels]`.
    pub inputs: usize,
}

impl StateShape {
    /// Whether a sequence has recurrent state or a convolution's tail here.
    pub fn is_recurrent(&self) -> bool {
        self.recurrent + self.tail > 0
    }

    /// Whether rows that turn out not to count can be left out of it again: there is no state that they change, or it
    /// follows from factors and inputs of the convolution that they leave.
    pub fn takes_drafts(&self) -> bool {
        (self.recurrent == 0 || self.factors > 0) && (self.tail == 0 || self.inputs > 0)
    }

    /// Whether a sequence has keys and values here.
    pub fn is_cached(&self) -> bool {
        self.kv_heads > 0
    }
}

/// What the model has to know of an operator; its configuration says it. A new operator is this trait, in a file beside
/// its fellows, and a line in the list below.
pub(super) trait Operator {
    /// Its weights as a file has them.
    type Weights;
    /// What reports call it.
    const NAME: &'static str;

    /// What a sequence leaves behind.
    fn state(&self) -> StateShape {
        StateShape::default()
    }

    /// Its sizes in words.
    fn describe(&self) -> String;

    /// Its weights from a layer of a GGUF file.
    fn read_gguf(&self, layer: &Layer<'_>) -> Result<Self::Weights, LoadError>;

    /// Its weights from a layer of a Hugging Face directory.
    fn read_hugging_face(&self, layer: &Layer<'_>) -> Result<Self::Weights, LoadError>;

    /// What a GGUF file's keys say of it, without the family's prefix.
    fn gguf_keys(&self) -> Vec<(&'static str, MetaValue)> {
        unreachable!("a family whose files are written has operators that are")
    }

    /// Puts what a Hugging Face directory has of it into a GGUF file.
    fn convert(&self, _layer: &mut ConvertedLayer<'_>) -> Result<(), LoadError> {
        unreachable!("a family whose files are written has operators that are")
    }

    /// Counts its weights by what they are for.
    fn count(weights: &Self::Weights, summary: &mut Summary);
}

/// Configurations that [`ModelConfig::each`](super::ModelConfig::each) looks for.
pub trait OperatorConfig: Sized {
    /// The configuration, if the operator is this one.
    fn of(op: &OpConfig) -> Option<&Self>;
}

macro_rules! operators {
    ($($(#[$attribute:meta])? $kind:ident($config:ident, $weights:ident) = $doc:literal),* $(,)?) => {
        /// The shape of an operator, whichever it is.
        #[derive(Clone, Debug, PartialEq)]
        pub enum OpConfig {
            $($(#[$attribute])? #[doc = $doc] $kind($config),)*
        }

        /// An operator's weights, each with its configuration. Matrices are `[out, in]`.
        #[derive(Debug)]
        #[allow(clippy::large_enum_variant, reason = "a handful of these exist, all for the life of the process")]
        pub enum Op {
            $($(#[$attribute])? #[doc = $doc] $kind($weights),)*
        }

        impl OpConfig {
            /// What reports call the operator.
            pub fn name(&self) -> &'static str {
                match self {
                    $($(#[$attribute])? Self::$kind(_) => $config::NAME,)*
                }
            }

            /// The operator's sizes in words.
            pub fn describe(&self) -> String {
                match self {
                    $($(#[$attribute])? Self::$kind(config) => config.describe(),)*
                }
            }

            /// What a sequence leaves behind in such a block.
            pub fn state(&self) -> StateShape {
                match self {
                    $($(#[$attribute])? Self::$kind(config) => config.state(),)*
                }
            }

            /// What a GGUF file's keys say of the operator.
            pub(super) fn gguf_keys(&self) -> Vec<(&'static str, MetaValue)> {
                match self {
                    $($(#[$attribute])? Self::$kind(config) => config.gguf_keys(),)*
                }
            }

            /// Puts what a Hugging Face directory has of the operator into a GGUF file.
            pub(super) fn convert(&self, layer: &mut ConvertedLayer<'_>) -> Result<(), LoadError> {
                match self {
                    $($(#[$attribute])? Self::$kind(config) => config.convert(layer),)*
                }
            }

            /// The operator's weights, from whatever kind of file the layer is of.
            pub(super) fn read(&self, layer: &Layer<'_>) -> Result<Op, LoadError> {
                match (self, layer.format) {
                    $(
                        $(#[$attribute])?
                        (Self::$kind(config), Format::Gguf) => config.read_gguf(layer).map(Op::$kind),
                        $(#[$attribute])?
                        (Self::$kind(config), Format::HuggingFace) => config.read_hugging_face(layer).map(Op::$kind),
                    )*
                }
            }
        }

        impl Op {
            /// Counts the weights by what they are for.
            pub(super) fn count(&self, summary: &mut Summary) {
                match self {
                    $($(#[$attribute])? Self::$kind(weights) => $config::count(weights, summary),)*
                }
            }
        }

        $(
            $(#[$attribute])?
            impl From<$config> for OpConfig {
                fn from(config: $config) -> Self {
                    Self::$kind(config)
                }
            }

            $(#[$attribute])?
            impl OperatorConfig for $config {
                fn of(op: &OpConfig) -> Option<&Self> {
                    // The only operator of a list would need no wildcard.
                    #[allow(unreachable_patterns)]
                    match op {
                        OpConfig::$kind(config) => Some(config),
                        _ => None,
                    }
                }
            }
        )*
    };
}

operators! {
    Gdn(GdnConfig, GdnWeights) = "Gated delta rule.",
    Mamba2(Mamba2Config, Mamba2Weights) = "Mamba-2.",
    Attention(AttentionConfig, AttentionWeights) = "Attention over all positions before.",
    ShortConv(ShortConvConfig, ShortConvWeights) = "A convolution of few taps between two gates.",
    Parallel(ParallelConfig, ParallelWeights) = "Attention and Mamba-2 side by side.",
    Mlp(MlpConfig, MlpWeights) = "A dense feed-forward part.",
    Moe(MoeConfig, MoeWeights) = "A mixture of experts.",
    #[cfg(test)]
    Scale(ScaleConfig, ScaleWeights) = "A factor a channel: what a test adds.",
}

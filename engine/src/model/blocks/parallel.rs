//! Attention and Mamba-2 side by side: both read the same normed input, and the stream takes both outputs.

use super::Layer;
use super::{AttentionConfig, AttentionWeights, Mamba2Config, Mamba2Weights, Operator, StateShape};
use crate::format::LoadError;
use crate::model::summary::Summary;

/// Shape of such a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParallelConfig {
    /// Shape of the attention.
    pub attention: AttentionConfig,
    /// What stands beside it.
    pub mamba: Mamba2Config,
}

/// Weights of the attention and of the Mamba-2 mixer beside it.
#[derive(Debug)]
pub struct ParallelWeights {
    /// The shape of the weights.
    pub config: ParallelConfig,
    /// Those of the attention.
    pub attention: AttentionWeights,
    /// Those of what stands beside it.
    pub mamba: Mamba2Weights,
}

impl Operator for ParallelConfig {
    type Weights = ParallelWeights;
    const NAME: &'static str = "attention beside mamba-2";

    fn state(&self) -> StateShape {
        let (attention, mamba) = (self.attention.state(), self.mamba.state());
        StateShape { recurrent: mamba.recurrent, tail: mamba.tail, ..attention }
    }

    fn describe(&self) -> String {
        format!("{}; {}", self.attention.describe(), self.mamba.describe())
    }

    fn read_gguf(&self, layer: &Layer<'_>) -> Result<ParallelWeights, LoadError> {
        let (attention, mamba) = (self.attention.read_gguf(layer)?, self.mamba.read_gguf(layer)?);
        Ok(ParallelWeights { config: *self, attention, mamba })
    }

    fn read_hugging_face(&self, layer: &Layer<'_>) -> Result<ParallelWeights, LoadError> {
        let (attention, mamba) = (self.attention.read_hugging_face(layer)?, self.mamba.read_hugging_face(layer)?);
        Ok(ParallelWeights { config: *self, attention, mamba })
    }

    fn count(weights: &ParallelWeights, summary: &mut Summary) {
        AttentionConfig::count(&weights.attention, summary);
        Mamba2Config::count(&weights.mamba, summary);
    }
}

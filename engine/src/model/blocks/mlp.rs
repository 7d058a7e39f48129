//! A dense feed-forward part, which is also what an expert of a mixture is.

use super::ConvertedLayer;
use super::Layer;
use super::Operator;
use crate::format::gguf::MetaValue;
use crate::format::hf::HfConfig;
use crate::format::{LoadError, Tensor};
use crate::model::gguf_keys::Keys;
use crate::model::hf_keys::size;
use crate::model::summary::{Role, Summary};

/// Shape of a feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlpConfig {
    /// Width between its matrices.
    pub width: usize,
    /// What stands between its matrices.
    pub activation: Activation,
}

/// What stands between the matrices of a feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `silu(gate x) * (up x)`.
    SiluGated,
    /// `relu(up x)^2`, without a gate.
    Relu2,
}

/// The matrices of a feed-forward part, or stacks of them.
#[derive(Debug)]
pub struct MlpWeights {
    /// The shape of the weights.
    pub config: MlpConfig,
    /// `[width, hidden]`, or `[experts, width, hidden]`; `None` where the activation has no gate.
    pub gate: Option<Tensor>,
    /// What the gate is multiplied with, of the same shape.
    pub up: Tensor,
    /// `[hidden, width]`, or `[experts, hidden, width]`.
    pub down: Tensor,
}

impl Activation {
    /// Whether a gate matrix stands beside the up matrix.
    pub fn is_gated(self) -> bool {
        self == Self::SiluGated
    }
}

impl MlpConfig {
    /// The configuration of a SwiGLU of this width.
    pub fn swiglu(width: usize) -> Self {
        Self { width, activation: Activation::SiluGated }
    }

    /// A SwiGLU from a GGUF file's `feed_forward_length`.
    pub(in crate::model) fn from_gguf(keys: &Keys<'_>) -> Result<Self, LoadError> {
        keys.size("feed_forward_length").map(Self::swiglu)
    }

    /// A SwiGLU from config.json's `intermediate_size`.
    pub(in crate::model) fn from_hugging_face(c: &HfConfig) -> Result<Self, LoadError> {
        size(c, "intermediate_size").map(Self::swiglu)
    }

    /// The matrices that `name` gives the names of, from `gate`, `up` and `down`.
    pub(super) fn read(&self, layer: &Layer<'_>, name: impl Fn(&str) -> String) -> Result<MlpWeights, LoadError> {
        let (width, hidden) = (self.width, layer.hidden);
        let gate = || layer.need(&name("gate"), &[width, hidden]);
        Ok(MlpWeights {
            config: *self,
            gate: self.activation.is_gated().then(gate).transpose()?,
            up: layer.need(&name("up"), &[width, hidden])?,
            down: layer.need(&name("down"), &[hidden, width])?,
        })
    }

    /// Puts the matrices into a GGUF file that `names` gives GGUF's and the directory's name of.
    pub(super) fn convert_as(
        &self,
        layer: &mut ConvertedLayer<'_>,
        names: impl Fn(&str) -> [String; 2],
    ) -> Result<(), LoadError> {
        let (hidden, gated) = (layer.hidden, self.activation.is_gated());
        let parts = [("gate", [self.width, hidden]), ("up", [self.width, hidden]), ("down", [hidden, self.width])];
        for (part, shape) in parts.into_iter().filter(|(part, _)| *part != "gate" || gated) {
            let [ours, theirs] = names(part);
            layer.put_from(&ours, &theirs, &shape)?;
        }
        Ok(())
    }
}

impl MlpWeights {
    /// The matrices that there are.
    pub fn matrices(&self) -> impl Iterator<Item = &Tensor> {
        self.gate.iter().chain([&self.up, &self.down])
    }
}

impl Operator for MlpConfig {
    type Weights = MlpWeights;
    const NAME: &'static str = "feed-forward";

    fn describe(&self) -> String {
        format!("dense, {} wide", self.width)
    }

    fn read_gguf(&self, layer: &Layer<'_>) -> Result<MlpWeights, LoadError> {
        self.read(layer, |part| format!("ffn_{part}.weight"))
    }

    fn read_hugging_face(&self, layer: &Layer<'_>) -> Result<MlpWeights, LoadError> {
        self.read(layer, |part| format!("mlp.{part}_proj.weight"))
    }

    fn gguf_keys(&self) -> Vec<(&'static str, MetaValue)> {
        vec![("feed_forward_length", MetaValue::U32(self.width as u32))]
    }

    fn convert(&self, layer: &mut ConvertedLayer<'_>) -> Result<(), LoadError> {
        self.convert_as(layer, |part| [format!("ffn_{part}.weight"), format!("mlp.{part}_proj.weight")])
    }

    fn count(weights: &MlpWeights, summary: &mut Summary) {
        weights.matrices().for_each(|t| summary.tensor(Role::FeedForward, t));
    }
}

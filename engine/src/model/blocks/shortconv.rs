//! LFM2's short convolution as a mixer: a gate before and a gate behind a causal convolution of few taps.

use super::Layer;
use super::{Operator, StateShape};
use crate::format::{LoadError, Tensor};
use crate::model::summary::{Role, Summary};

/// Shape of a short convolution; it has as many channels as the residual stream has values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortConvConfig {
    /// Channels of the convolution, the width of the residual stream.
    pub channels: usize,
    /// Taps of the causal convolution.
    pub taps: usize,
}

/// Weights of a short convolution.
#[derive(Debug)]
pub struct ShortConvWeights {
    /// The shape of the weights.
    pub config: ShortConvConfig,
    /// `[channels, hidden]`, the gate of what goes into the convolution, B.
    pub in_gate: Tensor,
    /// `[channels, hidden]`, the gate of what comes out of it, C.
    pub out_gate: Tensor,
    /// `[channels, hidden]`, the values, x.
    pub values: Tensor,
    /// `[channels, taps]`, the last tap is the current token.
    pub conv: Vec<f32>,
    /// Out-projection of the gated channels, `[hidden, channels]`.
    pub out: Tensor,
}

impl Operator for ShortConvConfig {
    type Weights = ShortConvWeights;
    const NAME: &'static str = "short convolution";

    fn state(&self) -> StateShape {
        StateShape { tail: (self.taps - 1) * self.channels, inputs: self.channels, ..StateShape::default() }
    }

    fn describe(&self) -> String {
        format!("{} channels, convolution {} wide", self.channels, self.taps)
    }

    /// The rows of the in-projection are B, C and x.
    fn read_gguf(&self, layer: &Layer<'_>) -> Result<ShortConvWeights, LoadError> {
        let (channels, hidden) = (self.channels, layer.hidden);
        let all = layer.need("shortconv.in_proj.weight", &[3 * channels, hidden])?;
        let part = |n: usize| all.rows_of_each(n * channels..(n + 1) * channels);
        Ok(ShortConvWeights {
            config: *self,
            in_gate: part(0),
            out_gate: part(1),
            values: part(2),
            conv: layer.values("shortconv.conv.weight", &[channels, self.taps])?,
            out: layer.need("shortconv.out_proj.weight", &[hidden, channels])?,
        })
    }

    fn read_hugging_face(&self, layer: &Layer<'_>) -> Result<ShortConvWeights, LoadError> {
        // Directories of its families are read under the names of GGUF files.
        self.read_gguf(layer)
    }

    fn count(w: &ShortConvWeights, summary: &mut Summary) {
        [&w.in_gate, &w.out_gate, &w.values, &w.out].into_iter().for_each(|t| summary.tensor(Role::ShortConv, t));
        summary.values(Role::ShortConv, &w.conv);
    }
}

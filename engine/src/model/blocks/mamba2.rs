//! Mamba-2: a state of one matrix a head that decays by a step size of the token's own, behind a causal convolution.

use super::Layer;
use super::{Operator, StateShape};
use crate::format::hf::HfConfig;
use crate::format::{LoadError, Tensor};
use crate::model::gguf_keys::Keys;
use crate::model::hf_keys::{multiple, size};
use crate::model::summary::{Role, Summary};

/// Shape of a Mamba-2 block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mamba2Config {
    /// Number of heads, H.
    pub heads: usize,
    /// Width of a head, P.
    pub head_dim: usize,
    /// Width of the state of one of a head's values, N.
    pub state_dim: usize,
    /// Groups of heads that share B and C; H is a multiple.
    pub groups: usize,
    /// Taps of the causal convolution.
    pub conv_taps: usize,
    /// Whether a group's gated output goes through an RMS norm.
    pub normed: bool,
}

/// Weights of a Mamba-2 block.
#[derive(Debug)]
pub struct Mamba2Weights {
    /// The shape of the weights.
    pub config: Mamba2Config,
    /// `[H*P, hidden]`, the output gate.
    pub z: Tensor,
    /// `[channels, hidden]`, rows x | B | C.
    pub xbc: Tensor,
    /// `[H, hidden]`, gives the step sizes.
    pub dt: Tensor,
    /// `[channels, taps]`, the last tap is the current token.
    pub conv: Vec<f32>,
    /// `[channels]`, where the convolution has one.
    pub conv_bias: Option<Vec<f32>>,
    /// Decay rate of each head, `-exp(A_log)`, `[H]`.
    pub a_neg: Vec<f32>,
    /// What of the input goes past the state, `[H]`.
    pub d: Vec<f32>,
    /// Bias of each head's step size, `[H]`.
    pub dt_bias: Vec<f32>,
    /// `[H*P]`, where the output is normed.
    pub norm: Option<Vec<f32>>,
    /// Out-projection of the heads' values, `[hidden, H*P]`.
    pub out: Tensor,
}

impl Mamba2Config {
    /// Values of all heads: what the out-projection reads.
    pub fn values(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Channels of the convolution: x, B and C.
    pub fn channels(&self) -> usize {
        self.values() + 2 * self.groups * self.state_dim
    }

    /// Values that share a norm.
    pub fn group_values(&self) -> usize {
        self.values() / self.groups
    }

    /// The group of head `h`.
    pub fn group(&self, h: usize) -> usize {
        h / (self.heads / self.groups)
    }

    /// Floats of one block's recurrent state of one sequence.
    pub fn state_len(&self) -> usize {
        self.values() * self.state_dim
    }

    /// Floats of the convolution inputs that a sequence keeps, `[taps - 1, channels]`.
    pub fn tail_len(&self) -> usize {
        (self.conv_taps - 1) * self.channels()
    }

    /// From a GGUF file's `ssm` keys, which do not tell whether the output is normed.
    pub(in crate::model) fn from_gguf(keys: &Keys<'_>, normed: bool) -> Result<Self, LoadError> {
        let (heads, groups) = (keys.size("ssm.time_step_rank")?, keys.size("ssm.group_count")?);
        let inner = keys.size("ssm.inner_size")?;
        keys.check_multiple("ssm.time_step_rank", heads, "ssm.group_count", groups)?;
        keys.check_multiple("ssm.inner_size", inner, "ssm.time_step_rank", heads)?;
        keys.check_all_or_none("ssm_conv1d.weight", "ssm_conv1d.bias")?;
        Ok(Self {
            heads,
            head_dim: inner / heads,
            state_dim: keys.size("ssm.state_size")?,
            groups,
            conv_taps: keys.size("ssm.conv_kernel")?,
            normed,
        })
    }
}

/// What config.json calls the sizes of a Mamba-2 mixer, which differs among families.
pub(in crate::model) struct Mamba2Names {
    pub(in crate::model) heads: &'static str,
    pub(in crate::model) head_dim: &'static str,
    pub(in crate::model) state_dim: &'static str,
    pub(in crate::model) groups: &'static str,
    pub(in crate::model) conv_taps: &'static str,
}

impl Mamba2Config {
    /// Reads the shape from config.json, whose keys differ by family.
    pub(in crate::model) fn from_hugging_face(
        c: &HfConfig,
        names: &Mamba2Names,
        normed: bool,
    ) -> Result<Self, LoadError> {
        check_steps(c)?;
        let mamba = Self {
            heads: size(c, names.heads)?,
            head_dim: size(c, names.head_dim)?,
            state_dim: size(c, names.state_dim)?,
            groups: size(c, names.groups)?,
            conv_taps: size(c, names.conv_taps)?,
            normed,
        };
        multiple(c, names.heads, mamba.heads, mamba.groups)?;
        Ok(mamba)
    }
}

/// Step sizes are not bounded. An infinite bound is no number in JSON.
fn check_steps(c: &HfConfig) -> Result<(), LoadError> {
    const KEY: &str = "time_step_limit";
    let Some([low, high]) = c.pair(KEY)? else { return Ok(()) };
    match (low.unwrap_or(0.0), high) {
        (0.0, None) => Ok(()),
        (low, high) => Err(c.error(
            KEY,
            "0 and infinity: bounded step sizes are not supported",
            format_args!("{low} and {high:?}"),
        )),
    }
}

impl Operator for Mamba2Config {
    type Weights = Mamba2Weights;
    const NAME: &'static str = "mamba-2";

    fn state(&self) -> StateShape {
        StateShape { recurrent: self.state_len(), tail: self.tail_len(), ..StateShape::default() }
    }

    fn describe(&self) -> String {
        let Self { heads, head_dim, state_dim, groups, conv_taps, .. } = self;
        format!("{heads} heads of {head_dim} in {groups} groups, state {state_dim}, {conv_taps} taps")
    }

    /// In the file z, x, B, C and the step sizes are one tensor, in this order.
    fn read_gguf(&self, layer: &Layer<'_>) -> Result<Mamba2Weights, LoadError> {
        let (heads, values, channels) = (self.heads, self.values(), self.channels());
        let all = layer.need("ssm_in.weight", &[values + channels + heads, layer.hidden])?;
        let bias = layer.find("ssm_conv1d.bias", &[channels])?;
        let norm = || layer.values_or_row("ssm_norm.weight", &[self.groups, self.group_values()]);
        Ok(Mamba2Weights {
            config: *self,
            z: all.rows_of_each(0..values),
            xbc: all.rows_of_each(values..values + channels),
            dt: all.rows_of_each(values + channels..values + channels + heads),
            conv: layer.values("ssm_conv1d.weight", &[channels, self.conv_taps])?,
            conv_bias: bias.map(|bias| layer.reader.decoded(&bias)).transpose()?,
            a_neg: layer.values("ssm_a", &[heads])?,
            d: layer.values("ssm_d", &[heads])?,
            dt_bias: layer.values("ssm_dt.bias", &[heads])?,
            norm: self.normed.then(norm).transpose()?,
            out: layer.need("ssm_out.weight", &[layer.hidden, values])?,
        })
    }

    fn read_hugging_face(&self, layer: &Layer<'_>) -> Result<Mamba2Weights, LoadError> {
        // Families with such blocks have their directories' tensors under the names of GGUF files.
        self.read_gguf(layer)
    }

    fn count(w: &Mamba2Weights, summary: &mut Summary) {
        [&w.z, &w.xbc, &w.dt, &w.out].into_iter().for_each(|t| summary.tensor(Role::Mamba2, t));
        let values = [&w.conv, &w.a_neg, &w.d, &w.dt_bias].into_iter().chain(&w.conv_bias).chain(&w.norm);
        values.for_each(|x| summary.values(Role::Mamba2, x));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_a_group_are_neighbours_and_share_b_and_c() {
        let mamba = Mamba2Config { heads: 6, head_dim: 32, state_dim: 16, groups: 2, conv_taps: 4, normed: true };
        assert_eq!((0..6).map(|h| mamba.group(h)).collect::<Vec<_>>(), [0, 0, 0, 1, 1, 1]);
        assert_eq!((mamba.values(), mamba.channels(), mamba.group_values()), (192, 256, 96));
        assert_eq!((mamba.state_len(), mamba.tail_len()), (192 * 16, 3 * 256));
    }
}

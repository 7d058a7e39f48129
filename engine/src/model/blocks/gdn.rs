//! The gated delta rule: a linear attention whose state is one matrix a value head, behind a causal convolution.

use super::ConvertedLayer;
use super::Layer;
use super::{Operator, StateShape};
use crate::format::gguf::MetaValue;
use crate::format::hf::HfConfig;
use crate::format::{LoadError, Tensor};
use crate::model::gguf_keys::Keys;
use crate::model::hf_keys::{multiple, size};
use crate::model::summary::{Role, Summary};
use std::ops::Range;

/// Shape of a gated-delta block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GdnConfig {
    /// Number of key heads, Hk.
    pub key_heads: usize,
    /// Hv, a multiple of Hk.
    pub value_heads: usize,
    /// Width of a key, K.
    pub key_dim: usize,
    /// Width of a value, V.
    pub value_dim: usize,
    /// Taps of the causal convolution.
    pub conv_taps: usize,
    /// Which key head a value head reads.
    pub head_order: HeadOrder,
}

/// Order of the value heads in weights and state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadOrder {
    /// Value heads of one key head are neighbours (Hugging Face files, GGUF `qwen3next`).
    Grouped,
    /// Value head `h` belongs to key head `h % Hk` (GGUF `qwen35`, `qwen35moe`).
    Tiled,
}

/// Weights of a gated-delta block.
#[derive(Debug)]
pub struct GdnWeights {
    /// The shape of the weights.
    pub config: GdnConfig,
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
    /// Decay rate of each value head, `-exp(A_log)`, `[Hv]`.
    pub a_neg: Vec<f32>,
    /// Bias of each value head's step size, `[Hv]`.
    pub dt_bias: Vec<f32>,
    /// Gated norm, `[V]`, shared by the heads.
    pub norm: Vec<f32>,
    /// Out-projection of the heads' values, `[hidden, Hv*V]`.
    pub out: Tensor,
}

/// Input projections as families unpack them; see [`GdnWeights`] for the shapes.
pub(in crate::model) struct Projections {
    pub(in crate::model) qkv: Tensor,
    pub(in crate::model) z: Tensor,
    pub(in crate::model) b: Tensor,
    pub(in crate::model) a: Tensor,
}

/// Unpacks the input projections of a gated-delta block.
pub(in crate::model) type Unpack = fn(&Layer<'_>, &GdnConfig) -> Result<Projections, LoadError>;

/// How the input projections of gated-delta blocks are packed.
pub(in crate::model) struct GdnPacking {
    /// Hugging Face directories have them as two matrices, with rows in an order of the family's.
    pub(in crate::model) is_fused: bool,
    pub(in crate::model) gguf: Unpack,
    pub(in crate::model) hugging_face: Unpack,
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
        2 * self.key_heads * self.key_dim + self.values()
    }

    /// Values of all heads: what the out-projection reads.
    pub fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Floats of one block's recurrent state of one sequence, `[Hv, K, V]`.
    pub fn state_len(&self) -> usize {
        self.value_heads * self.key_dim * self.value_dim
    }

    /// Floats from which a value head's state after one more position follows: key, delta and decay.
    pub fn factors_len(&self) -> usize {
        self.key_dim + self.value_dim + 1
    }

    /// Floats of the convolution inputs that a sequence keeps, `[taps - 1, channels]`.
    pub fn tail_len(&self) -> usize {
        (self.conv_taps - 1) * self.channels()
    }

    /// Where in grouped order the value heads of `order` stand, each as `width` rows behind the first `start`.
    pub(in crate::model) fn heads_in(&self, order: HeadOrder, start: usize, width: usize) -> Vec<Range<usize>> {
        let each = self.value_heads / self.key_heads;
        let grouped = |h: usize| match order {
            HeadOrder::Grouped => h,
            HeadOrder::Tiled => h % self.key_heads * each + h / self.key_heads,
        };
        (0..self.value_heads).map(|h| start + grouped(h) * width).map(|at| at..at + width).collect()
    }

    /// Channels of the convolution in the order of a file: queries and keys first, then the values of all heads.
    pub(in crate::model) fn channels_in(&self, order: HeadOrder) -> Vec<Range<usize>> {
        let keys = 2 * self.key_heads * self.key_dim;
        std::iter::once(0..keys).chain(self.heads_in(order, keys, self.value_dim)).collect()
    }

    /// From a GGUF file's `ssm` keys.
    pub(in crate::model) fn from_gguf(keys: &Keys<'_>, head_order: HeadOrder) -> Result<Self, LoadError> {
        let key_heads = keys.size("ssm.group_count")?;
        let value_heads = keys.size("ssm.time_step_rank")?;
        let inner = keys.size("ssm.inner_size")?;
        keys.check_multiple("ssm.time_step_rank", value_heads, "ssm.group_count", key_heads)?;
        keys.check_multiple("ssm.inner_size", inner, "ssm.time_step_rank", value_heads)?;
        Ok(Self {
            key_heads,
            value_heads,
            key_dim: keys.size("ssm.state_size")?,
            value_dim: inner / value_heads,
            conv_taps: keys.size("ssm.conv_kernel")?,
            head_order,
        })
    }

    /// From config.json's `linear` keys. Value heads are always grouped there.
    pub(in crate::model) fn from_hugging_face(c: &HfConfig) -> Result<Self, LoadError> {
        let gdn = Self {
            key_heads: size(c, "linear_num_key_heads")?,
            value_heads: size(c, "linear_num_value_heads")?,
            key_dim: size(c, "linear_key_head_dim")?,
            value_dim: size(c, "linear_value_head_dim")?,
            conv_taps: size(c, "linear_conv_kernel_dim")?,
            head_order: HeadOrder::Grouped,
        };
        multiple(c, "linear_num_value_heads", gdn.value_heads, gdn.key_heads)?;
        Ok(gdn)
    }
}

impl Operator for GdnConfig {
    type Weights = GdnWeights;
    const NAME: &'static str = "gated delta";

    fn state(&self) -> StateShape {
        StateShape {
            recurrent: self.state_len(),
            tail: self.tail_len(),
            factors: self.value_heads * self.factors_len(),
            inputs: self.channels(),
            ..StateShape::default()
        }
    }

    fn describe(&self) -> String {
        let Self { key_heads, key_dim, value_heads, value_dim, conv_taps, .. } = self;
        format!("{key_heads} key heads of {key_dim}, {value_heads} value heads of {value_dim}, {conv_taps} taps")
    }

    fn read_gguf(&self, layer: &Layer<'_>) -> Result<GdnWeights, LoadError> {
        let heads = self.value_heads;
        let Projections { qkv, z, b, a } = (packing(layer).gguf)(layer, self)?;
        Ok(GdnWeights {
            config: *self,
            qkv,
            z,
            b,
            a,
            conv: layer.values("ssm_conv1d.weight", &[self.channels(), self.conv_taps])?,
            a_neg: layer.values("ssm_a", &[heads])?,
            dt_bias: layer.values("ssm_dt.bias", &[heads])?,
            norm: layer.values("ssm_norm.weight", &[self.value_dim])?,
            out: layer.need("ssm_out.weight", &[layer.hidden, self.values()])?,
        })
    }

    fn read_hugging_face(&self, layer: &Layer<'_>) -> Result<GdnWeights, LoadError> {
        let heads = self.value_heads;
        let Projections { qkv, z, b, a } = (packing(layer).hugging_face)(layer, self)?;
        let mut a_neg = layer.values("linear_attn.A_log", &[heads])?;
        a_neg.iter_mut().for_each(|a| *a = -a.exp());
        Ok(GdnWeights {
            config: *self,
            qkv,
            z,
            b,
            a,
            conv: layer.values("linear_attn.conv1d.weight", &[self.channels(), self.conv_taps])?,
            a_neg,
            dt_bias: layer.values("linear_attn.dt_bias", &[heads])?,
            norm: layer.values("linear_attn.norm.weight", &[self.value_dim])?,
            out: layer.need("linear_attn.out_proj.weight", &[layer.hidden, self.values()])?,
        })
    }

    fn gguf_keys(&self) -> Vec<(&'static str, MetaValue)> {
        let keys = [
            ("ssm.conv_kernel", self.conv_taps),
            ("ssm.state_size", self.key_dim),
            ("ssm.group_count", self.key_heads),
            ("ssm.time_step_rank", self.value_heads),
            ("ssm.inner_size", self.values()),
        ];
        keys.map(|(key, n)| (key, MetaValue::U32(n as u32))).to_vec()
    }

    fn convert(&self, layer: &mut ConvertedLayer<'_>) -> Result<(), LoadError> {
        let conversion = layer.conversion();
        let order = conversion.head_order;
        (conversion.projections)(layer, self)?;
        let (heads, conv) = (self.value_heads, [self.channels(), self.conv_taps]);
        let taps = layer.need("linear_attn.conv1d.weight", &conv)?.rows(&conv, self.channels_in(order));
        layer.put("ssm_conv1d.weight", &conv, taps.floats(|x| x));
        let single = |this: &Self| this.heads_in(order, 0, 1);
        let a = layer.need("linear_attn.A_log", &[heads])?.rows(&[heads, 1], single(self));
        layer.put("ssm_a", &[heads], a.floats(|a| -a.exp()));
        let bias = layer.need("linear_attn.dt_bias", &[heads])?.rows(&[heads, 1], single(self));
        layer.put("ssm_dt.bias", &[heads], bias.floats(|x| x));
        layer.put_floats("ssm_norm.weight", "linear_attn.norm.weight", &[self.value_dim])?;
        let shape = [layer.hidden, self.values()];
        let out = layer.need("linear_attn.out_proj.weight", &shape)?;
        let by_head = [layer.hidden, heads, self.value_dim];
        layer.put("ssm_out.weight", &shape, out.rows(&by_head, single(self)));
        Ok(())
    }

    fn count(w: &GdnWeights, summary: &mut Summary) {
        [&w.qkv, &w.z, &w.b, &w.a, &w.out].into_iter().for_each(|t| summary.tensor(Role::Gdn, t));
        [&w.conv, &w.a_neg, &w.dt_bias, &w.norm].into_iter().for_each(|x| summary.values(Role::Gdn, x));
    }
}

fn packing<'a>(layer: &Layer<'a>) -> &'a GdnPacking {
    layer.gdn.expect("a family with gated-delta blocks says how they are packed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_heads_find_their_key_head_in_both_orders() {
        let mut gdn = GdnConfig {
            key_heads: 2,
            value_heads: 6,
            key_dim: 4,
            value_dim: 4,
            conv_taps: 4,
            head_order: HeadOrder::Grouped,
        };
        assert_eq!((0..6).map(|h| gdn.key_head(h)).collect::<Vec<_>>(), [0, 0, 0, 1, 1, 1]);
        gdn.head_order = HeadOrder::Tiled;
        assert_eq!((0..6).map(|h| gdn.key_head(h)).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 1]);
        assert_eq!(gdn.channels(), 40);
        let grouped = gdn.heads_in(HeadOrder::Tiled, 16, 4);
        assert_eq!(grouped.iter().map(|r| (r.start - 16) / 4).collect::<Vec<_>>(), [0, 3, 1, 4, 2, 5]);
        assert_eq!(gdn.channels_in(HeadOrder::Grouped), [0..16, 16..20, 20..24, 24..28, 28..32, 32..36, 36..40]);
    }
}

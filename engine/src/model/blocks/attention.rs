//! Attention over all positions before. Whether it has an output gate, norms of queries and keys, rotated positions,
//! and by what it scales scores, is data.

mod scaling;

use super::ConvertedLayer;
use super::Layer;
use super::{Operator, StateShape};
use crate::format::gguf::{MetaValue, Metadata};
use crate::format::hf::HfConfig;
use crate::format::{LoadError, Problem, Tensor};
use crate::model::gguf_keys::Keys;
use crate::model::hf_keys::{multiple, size};
use crate::model::summary::{Role, Summary};
use chimere_kernels::reference::{Yarn, rope_frequency};

/// Part of a head that Qwen's hybrids rotate where config.json does not say.
const ROTARY_PART_DEFAULT: f64 = 0.25;

/// Shape of an attention block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionConfig {
    /// Query heads, a multiple of `kv_heads`.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head, D.
    pub head_dim: usize,
    /// Whether each query head has a gate, whose sigmoid its output is multiplied with.
    pub gated: bool,
    /// Whether queries and keys go through an RMS norm of their head.
    pub qk_norm: bool,
    /// How positions turn queries and keys; `None` for no positions at all.
    pub rope: Option<Rope>,
    /// What scores are multiplied with.
    pub scale: f32,
}

/// How heads are rotated by their position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// The first dimensions of each head that are rotated, in halves.
    pub dim: usize,
    /// Base of the rotation.
    pub theta: f64,
    /// How frequencies are changed for more positions than the model was trained for, if they are.
    pub yarn: Option<Yarn>,
}

/// What a family's heads do with positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum Positions {
    /// Scores do not depend on positions.
    Unused,
    /// Positions rotate queries and keys.
    Rotated,
    /// Positions rotate queries and keys, by YaRN where a file asks for it.
    Scaled,
}

/// Weights of an attention block.
#[derive(Debug)]
pub struct AttentionWeights {
    /// The shape of the weights.
    pub config: AttentionConfig,
    /// `[heads * D, hidden]`; with gates `[heads * 2 * D, hidden]`, per head D rows of query, then D rows of gate.
    pub q: Tensor,
    /// `[kv_heads * D, hidden]`.
    pub k: Tensor,
    /// `[kv_heads * D, hidden]`.
    pub v: Tensor,
    /// `[D]`, where queries and keys are normed.
    pub q_norm: Option<Vec<f32>>,
    /// `[D]`, where queries and keys are normed.
    pub k_norm: Option<Vec<f32>>,
    /// `[hidden, heads * D]`.
    pub out: Tensor,
}

impl AttentionConfig {
    /// The scale of most models, `1 / sqrt(D)`.
    pub fn usual_scale(head_dim: usize) -> f32 {
        1.0 / (head_dim as f32).sqrt()
    }

    /// Values of all query heads: what the out-projection reads.
    pub fn queries(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Rows of the query projection: queries, and gates where there are some.
    pub fn query_rows(&self) -> usize {
        if self.gated { 2 * self.queries() } else { self.queries() }
    }

    /// Values of all key heads, or of all value heads.
    pub fn keys(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// From a GGUF file's `attention` and `rope` keys: gated, normed and rotated, as all of Qwen's hybrids are.
    /// `attends` says which main layers the keys are about.
    pub(in crate::model) fn from_gguf(keys: &Keys<'_>, attends: &[bool]) -> Result<Self, LoadError> {
        let of = |name: &str| keys.size_in("attention", name, |layer| attends[layer]);
        let (heads, kv_heads) = (of("attention.head_count")?, of("attention.head_count_kv")?);
        keys.check_multiple("attention.head_count", heads, "attention.head_count_kv", kv_heads)?;
        let head_dim = keys.size("attention.key_length")?;
        let value_dim = keys.size("attention.value_length")?;
        if value_dim != head_dim {
            return Err(keys.error(
                "attention.value_length",
                format_args!("{head_dim} like attention.key_length"),
                value_dim,
            ));
        }
        let rope = Some(Rope::from_gguf(keys, head_dim, None)?);
        let scale = keys.factor("attention.scale")?.unwrap_or(Self::usual_scale(head_dim));
        Self { heads, kv_heads, head_dim, gated: true, qk_norm: true, rope, scale }.of_usual_scale(keys)
    }

    /// Normed and rotated without gates, as [`Self::plain_from_gguf`] otherwise.
    pub(in crate::model) fn normed_from_gguf(
        keys: &Keys<'_>,
        attends: &[bool],
        positions: Positions,
    ) -> Result<Self, LoadError> {
        let plain = Self::plain_from_gguf(keys, attends, positions)?;
        Self { qk_norm: true, ..plain }.of_usual_scale(keys)
    }

    /// That the file does not ask for another scale, in families whose scores have the usual one.
    fn of_usual_scale(self, keys: &Keys<'_>) -> Result<Self, LoadError> {
        let usual = Self::usual_scale(self.head_dim);
        if self.scale == usual {
            return Ok(self);
        }
        Err(keys.error("attention.scale", format_args!("{usual}, the usual scale of these heads"), self.scale))
    }

    /// Without gates and norms, as other hybrids have it. `attends` says which main layers the keys are about. A head
    /// is as wide as its share of the stream unless a key says otherwise.
    pub(in crate::model) fn plain_from_gguf(
        keys: &Keys<'_>,
        attends: &[bool],
        positions: Positions,
    ) -> Result<Self, LoadError> {
        let of = |name: &str| keys.size_in("attention", name, |layer| attends[layer]);
        let (heads, kv_heads) = (of("attention.head_count")?, of("attention.head_count_kv")?);
        keys.check_multiple("attention.head_count", heads, "attention.head_count_kv", kv_heads)?;
        let dim =
            |name: &str| if keys.has(name) { keys.size(name) } else { Ok(keys.size("embedding_length")? / heads) };
        let (head_dim, value_dim) = (dim("attention.key_length")?, dim("attention.value_length")?);
        if value_dim != head_dim {
            let want = format!("{head_dim} like attention.key_length");
            return Err(keys.error("attention.value_length", want, value_dim));
        }
        let rope = match positions {
            Positions::Unused => None,
            Positions::Rotated => Some(Rope::from_gguf(keys, head_dim, Some(head_dim))?),
            Positions::Scaled => Some(Rope::scaled_from_gguf(keys, head_dim)?),
        };
        let scale = keys.factor("attention.scale")?.unwrap_or(Self::usual_scale(head_dim));
        Ok(Self { heads, kv_heads, head_dim, gated: false, qk_norm: false, rope, scale })
    }

    /// Attention without gates and head norms from config.json, with the usual factor of the scores.
    pub(in crate::model) fn plain_from_hugging_face(c: &HfConfig, positions: Positions) -> Result<Self, LoadError> {
        let (heads, kv_heads) = (size(c, "num_attention_heads")?, size(c, "num_key_value_heads")?);
        multiple(c, "num_attention_heads", heads, kv_heads)?;
        let head_dim = match ["head_dim", "attention_head_dim"].into_iter().find(|key| c.has(key)) {
            Some(key) => size(c, key)?,
            None => size(c, "hidden_size")? / heads,
        };
        c.must_be("attention_head_dim", head_dim)?;
        let rope = match positions {
            Positions::Unused => None,
            Positions::Rotated => Some(Rope::from_hugging_face(c, head_dim, 1.0)?),
            Positions::Scaled => Some(Rope::scaled_from_hugging_face(c, head_dim)?),
        };
        let scale = Self::usual_scale(head_dim);
        Ok(Self { heads, kv_heads, head_dim, gated: false, qk_norm: false, rope, scale })
    }

    /// Normed and rotated without gates, from config.json.
    pub(in crate::model) fn normed_from_hugging_face(c: &HfConfig, positions: Positions) -> Result<Self, LoadError> {
        Ok(Self { qk_norm: true, ..Self::plain_from_hugging_face(c, positions)? })
    }

    /// Gated, normed and rotated, from the config.json of a Hugging Face directory.
    pub(in crate::model) fn from_hugging_face(c: &HfConfig) -> Result<Self, LoadError> {
        let heads = size(c, "num_attention_heads")?;
        let kv_heads = size(c, "num_key_value_heads")?;
        multiple(c, "num_attention_heads", heads, kv_heads)?;
        let head_dim = size(c, "head_dim")?;
        let rope = Some(Rope::from_hugging_face(c, head_dim, ROTARY_PART_DEFAULT)?);
        Ok(Self { heads, kv_heads, head_dim, gated: true, qk_norm: true, rope, scale: Self::usual_scale(head_dim) })
    }
}

impl Rope {
    /// Radians by which pair `i` turns a position.
    pub fn frequency(&self, i: usize) -> f64 {
        rope_frequency(i, self.dim, self.theta, self.yarn.as_ref())
    }

    /// What cosines and sines are multiplied with.
    pub fn magnitude(&self) -> f64 {
        self.yarn.map_or(1.0, |yarn| yarn.magnitude)
    }

    /// Positions that a file means whose model was made for `context`: YaRN leads it beyond them.
    pub(in crate::model) fn extended(&self, context: u32) -> u32 {
        let extended = self.yarn.map_or(0.0, |yarn| yarn.factor * yarn.positions);
        context.max(extended as u32)
    }

    /// Where no key says how much of a head is rotated, `dim_default` is.
    fn from_gguf(keys: &Keys<'_>, head_dim: usize, dim_default: Option<usize>) -> Result<Self, LoadError> {
        // An empty string stands for none.
        let kind = keys.meta.str(&keys.key("rope.scaling.type"))?;
        if let Some(other) = kind.filter(|kind| !["none", ""].contains(kind)) {
            let want = "`none`: scaled rotation is not supported";
            return Err(keys.error("rope.scaling.type", want, format_args!("`{other}`")));
        }
        Self::unscaled_from_gguf(keys, head_dim, dim_default)
    }

    /// Rotation of whole heads unless a key says otherwise, by YaRN where the file asks for it.
    fn scaled_from_gguf(keys: &Keys<'_>, head_dim: usize) -> Result<Self, LoadError> {
        let yarn = match keys.meta.str(&keys.key("rope.scaling.type"))? {
            None | Some("none" | "") => None,
            Some("yarn") => Some(scaling::yarn_from_gguf(keys)?),
            Some(other) => {
                let want = "`none` or `yarn`: other scaled rotations are not supported";
                return Err(keys.error("rope.scaling.type", want, format_args!("`{other}`")));
            }
        };
        Ok(Self { yarn, ..Self::unscaled_from_gguf(keys, head_dim, Some(head_dim))? })
    }

    fn unscaled_from_gguf(keys: &Keys<'_>, head_dim: usize, dim_default: Option<usize>) -> Result<Self, LoadError> {
        let meta: &Metadata = keys.meta;
        let dim = match dim_default {
            Some(dim) if !keys.has("rope.dimension_count") => dim,
            _ => keys.size("rope.dimension_count")?,
        };
        if dim > head_dim || dim % 2 == 1 {
            let want = format!("an even number of at most {head_dim}, the head's size");
            return Err(meta.error(Problem::key(keys.key("rope.dimension_count"), want, dim)));
        }
        Ok(Self { dim, theta: meta.need_f64(&keys.key("rope.freq_base"))?, yarn: None })
    }

    /// Rotation of whole heads unless config.json says otherwise, by YaRN where it asks for it.
    fn scaled_from_hugging_face(c: &HfConfig, head_dim: usize) -> Result<Self, LoadError> {
        let yarn = scaling::yarn_from_hugging_face(c)?;
        Ok(Self { yarn, ..Self::from_hugging_face(c, head_dim, 1.0)? })
    }

    /// Where config.json does not say which part of a head is rotated, `part_default` of it is.
    fn from_hugging_face(c: &HfConfig, head_dim: usize, part_default: f64) -> Result<Self, LoadError> {
        let key = |name: &str| Ok::<_, LoadError>(c.f64(&format!("rope_parameters.{name}"))?.or(c.f64(name)?));
        let theta = key("rope_theta")?.map_or_else(|| c.need_f64("rope_parameters.rope_theta"), Ok)?;
        let part = key("partial_rotary_factor")?.unwrap_or(part_default);
        let rotary = head_dim as f64 * part;
        if !(2.0..=head_dim as f64).contains(&rotary) || rotary as usize % 2 == 1 {
            let want = format!("a part of {head_dim} that is even and not 0");
            return Err(c.error("partial_rotary_factor", want, part));
        }
        Ok(Self { dim: rotary as usize, theta, yarn: None })
    }
}

impl Operator for AttentionConfig {
    type Weights = AttentionWeights;
    const NAME: &'static str = "attention";

    fn state(&self) -> StateShape {
        StateShape { kv_heads: self.kv_heads, kv_dim: self.head_dim, ..StateShape::default() }
    }

    fn describe(&self) -> String {
        let positions = match self.rope {
            Some(Rope { dim, theta, yarn: None }) => format!("{dim} rotated, base {theta}"),
            Some(Rope { dim, theta, yarn: Some(yarn) }) => {
                format!("{dim} rotated, base {theta}, by YaRN {} from {}", yarn.factor, yarn.positions)
            }
            None => "no positions".to_owned(),
        };
        format!("{} query and {} key heads of {}, {positions}", self.heads, self.kv_heads, self.head_dim)
    }

    fn read_gguf(&self, layer: &Layer<'_>) -> Result<AttentionWeights, LoadError> {
        let (q_rows, kv_rows, hidden) = (self.query_rows(), self.keys(), layer.hidden);
        let (q, k, v) = match layer.find("attn_qkv.weight", &[q_rows + 2 * kv_rows, hidden])? {
            Some(fused) => {
                let (k_at, v_at) = (q_rows, q_rows + kv_rows);
                (fused.rows_of_each(0..k_at), fused.rows_of_each(k_at..v_at), fused.rows_of_each(v_at..v_at + kv_rows))
            }
            None => (
                layer.need("attn_q.weight", &[q_rows, hidden])?,
                layer.need("attn_k.weight", &[kv_rows, hidden])?,
                layer.need("attn_v.weight", &[kv_rows, hidden])?,
            ),
        };
        Ok(AttentionWeights {
            config: *self,
            q: self.in_halves(q, layer.paired),
            k: self.in_halves(k, layer.paired),
            v,
            q_norm: self.head_norm(layer, "attn_q_norm.weight")?,
            k_norm: self.head_norm(layer, "attn_k_norm.weight")?,
            out: layer.need("attn_output.weight", &[hidden, self.queries()])?,
        })
    }

    fn read_hugging_face(&self, layer: &Layer<'_>) -> Result<AttentionWeights, LoadError> {
        let hidden = layer.hidden;
        Ok(AttentionWeights {
            config: *self,
            q: layer.need("self_attn.q_proj.weight", &[self.query_rows(), hidden])?,
            k: layer.need("self_attn.k_proj.weight", &[self.keys(), hidden])?,
            v: layer.need("self_attn.v_proj.weight", &[self.keys(), hidden])?,
            q_norm: self.head_norm(layer, "self_attn.q_norm.weight")?,
            k_norm: self.head_norm(layer, "self_attn.k_norm.weight")?,
            out: layer.need("self_attn.o_proj.weight", &[hidden, self.queries()])?,
        })
    }

    fn gguf_keys(&self) -> Vec<(&'static str, MetaValue)> {
        let count = |n: usize| MetaValue::U32(n as u32);
        let mut keys = vec![
            ("attention.head_count", count(self.heads)),
            ("attention.head_count_kv", count(self.kv_heads)),
            ("attention.key_length", count(self.head_dim)),
            ("attention.value_length", count(self.head_dim)),
        ];
        if let Some(rope) = self.rope {
            keys.push(("rope.freq_base", MetaValue::F32(rope.theta as f32)));
            keys.push(("rope.dimension_count", count(rope.dim)));
        }
        keys
    }

    fn convert(&self, layer: &mut ConvertedLayer<'_>) -> Result<(), LoadError> {
        let hidden = layer.hidden;
        layer.put_from("attn_q.weight", "self_attn.q_proj.weight", &[self.query_rows(), hidden])?;
        layer.put_from("attn_k.weight", "self_attn.k_proj.weight", &[self.keys(), hidden])?;
        layer.put_from("attn_v.weight", "self_attn.v_proj.weight", &[self.keys(), hidden])?;
        layer.put_from("attn_output.weight", "self_attn.o_proj.weight", &[hidden, self.queries()])?;
        if self.qk_norm {
            layer.put_norm("attn_q_norm.weight", "self_attn.q_norm.weight", &[self.head_dim])?;
            layer.put_norm("attn_k_norm.weight", "self_attn.k_norm.weight", &[self.head_dim])?;
        }
        Ok(())
    }

    fn count(w: &AttentionWeights, summary: &mut Summary) {
        [&w.q, &w.k, &w.v, &w.out].into_iter().for_each(|t| summary.tensor(Role::Attention, t));
        [&w.q_norm, &w.k_norm].into_iter().flatten().for_each(|x| summary.values(Role::Attention, x));
    }
}

impl AttentionConfig {
    /// Rows that are rotated together half a head apart, wherever the file has them. Heads without positions have any
    /// order that queries and keys share.
    fn in_halves(&self, t: Tensor, paired: bool) -> Tensor {
        if !paired || self.rope.is_none() {
            return t;
        }
        let half = self.head_dim / 2;
        let places = (0..t.rows()).map(|row| {
            let (head, at) = (row / self.head_dim, row % self.head_dim);
            head * self.head_dim + 2 * (at % half) + at / half
        });
        t.gather_rows(&places.map(|place| place..place + 1).collect::<Vec<_>>())
    }

    fn head_norm(&self, layer: &Layer<'_>, name: &str) -> Result<Option<Vec<f32>>, LoadError> {
        self.qk_norm.then(|| layer.norm(name, &[self.head_dim])).transpose()
    }
}

//! Attention over all positions before. Whether it has an output gate, norms of queries and keys, rotated positions,
//! and by what it scales scores, is data.

use super::ConvertedLayer;
use super::Layer;
use super::{Operator, StateShape};
use crate::format::gguf::{MetaValue, Metadata};
use crate::format::hf::HfConfig;
use crate::format::{LoadError, Problem, Tensor};
use crate::model::gguf_keys::Keys;
use crate::model::hf_keys::{multiple, size};
use crate::model::summary::{Role, Summary};

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
        let usual = Self::usual_scale(head_dim);
        if let Some(scale) = keys.factor("attention.scale")?.filter(|scale| *scale != usual) {
            return Err(keys.error("attention.scale", format_args!("{usual}, the usual scale of these heads"), scale));
        }
        Ok(Self { heads, kv_heads, head_dim, gated: true, qk_norm: true, rope, scale: Self::usual_scale(head_dim) })
    }

    /// Without gates and norms, as other hybrids have it. `attends` says which main layers the keys are about,
    /// `rotated` whether their heads are turned by position. A head is as wide as its share of the stream unless a key
    /// says otherwise.
    pub(in crate::model) fn plain_from_gguf(
        keys: &Keys<'_>,
        attends: &[bool],
        rotated: bool,
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
        let rope = rotated.then(|| Rope::from_gguf(keys, head_dim, Some(head_dim))).transpose()?;
        let scale = keys.factor("attention.scale")?.unwrap_or(Self::usual_scale(head_dim));
        Ok(Self { heads, kv_heads, head_dim, gated: false, qk_norm: false, rope, scale })
    }

    /// Attention without gates and head norms from config.json, with the usual factor of the scores.
    pub(in crate::model) fn plain_from_hugging_face(c: &HfConfig, rotated: bool) -> Result<Self, LoadError> {
        let (heads, kv_heads) = (size(c, "num_attention_heads")?, size(c, "num_key_value_heads")?);
        multiple(c, "num_attention_heads", heads, kv_heads)?;
        let head_dim = match ["head_dim", "attention_head_dim"].into_iter().find(|key| c.has(key)) {
            Some(key) => size(c, key)?,
            None => size(c, "hidden_size")? / heads,
        };
        c.must_be("attention_head_dim", head_dim)?;
        let rope = rotated.then(|| Rope::from_hugging_face(c, head_dim, 1.0)).transpose()?;
        let scale = Self::usual_scale(head_dim);
        Ok(Self { heads, kv_heads, head_dim, gated: false, qk_norm: false, rope, scale })
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
    /// Where no key says how much of a head is rotated, `dim_default` is.
    fn from_gguf(keys: &Keys<'_>, head_dim: usize, dim_default: Option<usize>) -> Result<Self, LoadError> {
        let meta: &Metadata = keys.meta;
        // An empty string stands for none.
        if let Some(other) = meta.str(&keys.key("rope.scaling.type"))?.filter(|kind| !["none", ""].contains(kind)) {
            let want = "`none`: scaled rotation is not supported";
            return Err(keys.error("rope.scaling.type", want, format_args!("`{other}`")));
        }
        let dim = match dim_default {
            Some(dim) if !keys.has("rope.dimension_count") => dim,
            _ => keys.size("rope.dimension_count")?,
        };
        if dim > head_dim || dim % 2 == 1 {
            let want = format!("an even number of at most {head_dim}, the head's size");
            return Err(meta.error(Problem::key(keys.key("rope.dimension_count"), want, dim)));
        }
        Ok(Self { dim, theta: meta.need_f64(&keys.key("rope.freq_base"))? })
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
        Ok(Self { dim: rotary as usize, theta })
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
            Some(Rope { dim, theta }) => format!("{dim} rotated, base {theta}"),
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
            q,
            k,
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
    fn head_norm(&self, layer: &Layer<'_>, name: &str) -> Result<Option<Vec<f32>>, LoadError> {
        self.qk_norm.then(|| layer.norm(name, &[self.head_dim])).transpose()
    }
}

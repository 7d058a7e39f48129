//! A mixture of experts: a router gives each token a few of many feed-forward parts, and all tokens may share one more.

use super::ConvertedLayer;
use super::Layer;
use super::Operator;
use super::mlp::{MlpConfig, MlpWeights};
use crate::format::gguf::MetaValue;
use crate::format::hf::HfConfig;
use crate::format::{LoadError, Tensor};
use crate::model::gguf_keys::Keys;
use crate::model::hf_keys::size;
use crate::model::reader::stack;
use crate::model::summary::{Role, Summary};

/// Shape of a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoeConfig {
    /// How many experts there are to choose from, E.
    pub experts: usize,
    /// Experts a token uses, at most E.
    pub used: usize,
    /// How they are chosen and weighed.
    pub router: Router,
    /// The shape of each expert.
    pub expert: MlpConfig,
    /// How wide the rows are that the chosen experts read and make, where that is not the stream's width: a matrix
    /// brings a row to it, and another one brings their sum back. Router and shared expert read the whole row.
    pub latent: Option<usize>,
    /// The expert that every token uses, if there is one.
    pub shared: Option<SharedConfig>,
}

/// How experts are chosen and weighed. Ties go to the lower expert.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Router {
    /// The largest logits; weighed by the softmax over those chosen.
    Softmax,
    /// The largest of sigmoid and a bias of the expert's own; weighed by the sigmoids without it, brought to a sum of
    /// `scale`.
    SigmoidBias {
        /// Sum of a token's weights.
        scale: f32,
    },
}

/// Shape of a shared expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedConfig {
    /// The shape of the expert.
    pub expert: MlpConfig,
    /// Whether its output is multiplied with the sigmoid of a product of the input.
    pub gated: bool,
}

/// Weights of a mixture of experts.
#[derive(Debug)]
pub struct MoeWeights {
    /// The shape of the weights.
    pub config: MoeConfig,
    /// Router matrix, `[experts, hidden]`.
    pub router: Tensor,
    /// `[experts]`, where experts are chosen with a bias.
    pub bias: Option<Vec<f32>>,
    /// Stacks of all routed experts.
    pub experts: MlpWeights,
    /// Where these read rows of another width.
    pub latent: Option<LatentWeights>,
    /// The expert that every token takes, if there is one.
    pub shared: Option<SharedWeights>,
}

/// What stands before and behind experts that read rows of another width.
#[derive(Debug)]
pub struct LatentWeights {
    /// Matrix that brings a row to the width of the experts, `[latent, hidden]`.
    pub into: Tensor,
    /// `[hidden, latent]`; of the weighed sum of the chosen experts.
    pub back: Tensor,
}

/// Weights of a shared expert.
#[derive(Debug)]
pub struct SharedWeights {
    /// The weights of the expert.
    pub expert: MlpWeights,
    /// `[hidden]`; the sigmoid of its product scales the expert's output.
    pub gate: Option<Vec<f32>>,
}

impl MoeConfig {
    /// SwiGLU experts behind a softmax, with a gated shared one, as all of Qwen's mixtures are.
    fn qwen(experts: usize, used: usize, width: usize, shared_width: usize) -> Self {
        let shared = SharedConfig { expert: MlpConfig::swiglu(shared_width), gated: true };
        let (router, expert) = (Router::Softmax, MlpConfig::swiglu(width));
        Self { experts, used, router, expert, latent: None, shared: Some(shared) }
    }

    /// From a GGUF file's `expert` keys.
    pub(in crate::model) fn from_gguf(keys: &Keys<'_>) -> Result<Self, LoadError> {
        // 1 stands for a softmax.
        keys.must_be("expert_gating_func", 1)?;
        let (experts, used) = gguf_expert_counts(keys)?;
        let width = keys.width("expert_feed_forward_length", "blk.0.ffn_down_exps.weight")?;
        let shared_width = keys.width("expert_shared_feed_forward_length", "blk.0.ffn_down_shexp.weight")?;
        Ok(Self::qwen(experts, used, width, shared_width))
    }

    /// From config.json's keys about experts.
    pub(in crate::model) fn from_hugging_face(c: &HfConfig) -> Result<Self, LoadError> {
        let (experts, used) = expert_counts(c, "num_experts")?;
        let width = size(c, "moe_intermediate_size")?;
        let shared_width = size(c, "shared_expert_intermediate_size")?;
        Ok(Self::qwen(experts, used, width, shared_width))
    }
}

/// How many experts there are, and how many a token uses, by a GGUF file's keys.
pub(in crate::model) fn gguf_expert_counts(keys: &Keys<'_>) -> Result<(usize, usize), LoadError> {
    let (experts, used) = (keys.size("expert_count")?, keys.size("expert_used_count")?);
    if used > experts {
        return Err(keys.error("expert_used_count", format_args!("at most {experts}, the number of experts"), used));
    }
    Ok((experts, used))
}

/// How many experts there are, which `key` of config.json says, and how many a token uses.
pub(in crate::model) fn expert_counts(c: &HfConfig, key: &str) -> Result<(usize, usize), LoadError> {
    let (experts, used) = (size(c, key)?, size(c, "num_experts_per_tok")?);
    if used > experts {
        return Err(c.error("num_experts_per_tok", format_args!("at most {experts}, the number of experts"), used));
    }
    Ok((experts, used))
}

impl Operator for MoeConfig {
    type Weights = MoeWeights;
    const NAME: &'static str = "feed-forward";

    fn describe(&self) -> String {
        let shared = self.shared.map(|s| format!(", and a shared one {} wide", s.expert.width)).unwrap_or_default();
        let latent = self.latent.map(|width| format!(" on rows of {width}")).unwrap_or_default();
        format!("{} of {} experts {} wide{latent}{shared}", self.used, self.experts, self.expert.width)
    }

    fn read_gguf(&self, layer: &Layer<'_>) -> Result<MoeWeights, LoadError> {
        let biased = matches!(self.router, Router::SigmoidBias { .. });
        Ok(MoeWeights {
            config: *self,
            router: layer.need("ffn_gate_inp.weight", &[self.experts, layer.hidden])?,
            bias: biased.then(|| layer.values("exp_probs_b.bias", &[self.experts])).transpose()?,
            experts: self.gguf_experts(layer)?,
            latent: self.read_latent(layer)?,
            shared: self.read_shared(layer, |part| format!("ffn_{part}_shexp.weight"), "ffn_gate_inp_shexp.weight")?,
        })
    }

    fn read_hugging_face(&self, layer: &Layer<'_>) -> Result<MoeWeights, LoadError> {
        let biased = matches!(self.router, Router::SigmoidBias { .. });
        let (experts, width, hidden) = (self.experts, self.expert.width, layer.hidden);
        Ok(MoeWeights {
            config: *self,
            router: layer.need("mlp.gate.weight", &[experts, hidden])?,
            bias: biased.then(|| layer.values("mlp.gate.e_score_correction_bias", &[experts])).transpose()?,
            experts: match layer.find("mlp.experts.gate_up_proj", &[experts, 2 * width, hidden])? {
                Some(fused) => self.split(&fused, layer.need("mlp.experts.down_proj", &[experts, hidden, width])?),
                None => self.separate_experts(layer)?,
            },
            latent: None,
            shared: self.read_shared(
                layer,
                |part| format!("mlp.shared_expert.{part}_proj.weight"),
                "mlp.shared_expert_gate.weight",
            )?,
        })
    }

    fn gguf_keys(&self) -> Vec<(&'static str, MetaValue)> {
        let shared = self.shared.map(|s| ("expert_shared_feed_forward_length", s.expert.width));
        let keys = [
            ("expert_count", self.experts),
            ("expert_used_count", self.used),
            ("expert_feed_forward_length", self.expert.width),
        ];
        keys.into_iter().chain(shared).map(|(key, n)| (key, MetaValue::U32(n as u32))).collect()
    }

    fn convert(&self, layer: &mut ConvertedLayer<'_>) -> Result<(), LoadError> {
        layer.put_floats("ffn_gate_inp.weight", "mlp.gate.weight", &[self.experts, layer.hidden])?;
        self.convert_experts(layer)?;
        let Some(SharedConfig { expert, gated }) = self.shared else { return Ok(()) };
        if gated {
            layer.put_floats("ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", &[1, layer.hidden])?;
        }
        let names = |part: &str| [format!("ffn_{part}_shexp.weight"), format!("mlp.shared_expert.{part}_proj.weight")];
        expert.convert_as(layer, names)
    }

    fn count(w: &MoeWeights, summary: &mut Summary) {
        summary.tensor(Role::Other, &w.router);
        w.bias.iter().for_each(|x| summary.values(Role::Other, x));
        w.experts.matrices().for_each(|t| summary.tensor(Role::Experts, t));
        w.latent.iter().flat_map(|l| [&l.into, &l.back]).for_each(|t| summary.tensor(Role::Other, t));
        if let Some(shared) = &w.shared {
            shared.expert.matrices().for_each(|t| summary.tensor(Role::SharedExperts, t));
            shared.gate.iter().for_each(|x| summary.values(Role::Other, x));
        }
    }
}

impl MoeConfig {
    /// Gate and up matrices of all experts in one tensor, as newer exports have them.
    fn split(&self, fused: &Tensor, down: Tensor) -> MlpWeights {
        let width = self.expert.width;
        let (gate, up) = (fused.rows_of_each(0..width), fused.rows_of_each(width..2 * width));
        MlpWeights { config: self.expert, gate: Some(gate), up, down }
    }

    /// Stacks of routed experts, from fused matrices or from one an expert.
    fn convert_experts(&self, layer: &mut ConvertedLayer<'_>) -> Result<(), LoadError> {
        let (experts, width, hidden) = (self.experts, self.expert.width, layer.hidden);
        let (fused, into) = ([experts, 2 * width, hidden], [experts, width, hidden]);
        for (part, shape, half) in [
            ("gate", into, Some(0..width)),
            ("up", into, Some(width..2 * width)),
            ("down", [experts, hidden, width], None),
        ] {
            let whole = match &half {
                Some(half) => {
                    let both = layer.find("mlp.experts.gate_up_proj", &fused)?;
                    both.map(|source| source.rows(&fused, vec![half.clone()]))
                }
                None => layer.find("mlp.experts.down_proj", &shape)?,
            };
            let names = (0..experts).map(|e| format!("mlp.experts.{e}.{part}_proj.weight"));
            let source = whole.map_or_else(|| layer.need_stack(names, &shape[1..]), Ok)?;
            layer.put(&format!("ffn_{part}_exps.weight"), &shape, source);
        }
        Ok(())
    }

    fn gguf_experts(&self, layer: &Layer<'_>) -> Result<MlpWeights, LoadError> {
        let (experts, width, hidden) = (self.experts, self.expert.width, self.latent.unwrap_or(layer.hidden));
        let down = |layer: &Layer<'_>| layer.need("ffn_down_exps.weight", &[experts, hidden, width]);
        let gated = self.expert.activation.is_gated();
        if gated && let Some(fused) = layer.find("ffn_gate_up_exps.weight", &[experts, 2 * width, hidden])? {
            return Ok(self.split(&fused, down(layer)?));
        }
        let gate = || layer.need("ffn_gate_exps.weight", &[experts, width, hidden]);
        Ok(MlpWeights {
            config: self.expert,
            gate: gated.then(gate).transpose()?,
            up: layer.need("ffn_up_exps.weight", &[experts, width, hidden])?,
            down: down(layer)?,
        })
    }

    fn read_latent(&self, layer: &Layer<'_>) -> Result<Option<LatentWeights>, LoadError> {
        let read = |latent| {
            let into = layer.need("ffn_latent_down.weight", &[latent, layer.hidden])?;
            Ok(LatentWeights { into, back: layer.need("ffn_latent_up.weight", &[layer.hidden, latent])? })
        };
        self.latent.map(read).transpose()
    }

    fn separate_experts(&self, layer: &Layer<'_>) -> Result<MlpWeights, LoadError> {
        let (width, hidden) = (self.expert.width, layer.hidden);
        let stacked = |part: &str, shape: [usize; 2]| {
            let one = |e| layer.need(&format!("mlp.experts.{e}.{part}_proj.weight"), &shape);
            let all = (0..self.experts).map(one).collect::<Result<Vec<_>, _>>()?;
            stack(layer.name(&format!("mlp.experts.{part}_proj")), &all).map_err(|p| layer.reader.error(p))
        };
        Ok(MlpWeights {
            config: self.expert,
            gate: self.expert.activation.is_gated().then(|| stacked("gate", [width, hidden])).transpose()?,
            up: stacked("up", [width, hidden])?,
            down: stacked("down", [hidden, width])?,
        })
    }

    fn read_shared(
        &self,
        layer: &Layer<'_>,
        name: impl Fn(&str) -> String,
        gate: &str,
    ) -> Result<Option<SharedWeights>, LoadError> {
        let Some(SharedConfig { expert, gated }) = self.shared else { return Ok(None) };
        let expert = expert.read(layer, name)?;
        Ok(Some(SharedWeights { expert, gate: gated.then(|| layer.values(gate, &[layer.hidden])).transpose()? }))
    }
}

//! A model from a Hugging Face directory, for every architecture. Here 1 is added to norms and -exp taken of A_log, experts are stacked
//! and fused ones split; value heads stay in grouped order.

use super::load::Spec;
use super::reader::{Layer, Projections, Reader, SIZE_MAX, Source, stack};
use super::*;
use crate::format::hf::{Attends, HfConfig, HfExperts};
use crate::format::{HfDir, LoadError, Tensor, TextAssets};
use std::path::Path;

/// Prefixes of the main model's tensors that exports use, before `embed_tokens.weight`.
const PREFIXES: [&str; 4] = ["model.language_model.", "language_model.model.", "model.", ""];
const HEADS: [&str; 2] = ["lm_head.weight", "language_model.lm_head.weight"];
const DRAFTS: [&str; 2] = ["mtp.", "model.mtp."];

/// Reads the model of this architecture.
pub(super) fn read(dir: &HfDir, spec: &Spec) -> Result<Model, LoadError> {
    let config = config(dir, spec)?;
    let text = TextAssets::from_hugging_face_for(dir.path(), config.vocab)?;
    let reader = Reader::new(dir);
    let (hidden, vocab) = (config.hidden, config.vocab);
    let prefix = PREFIXES.into_iter().find(|p| dir.has_tensor(&format!("{p}embed_tokens.weight")));
    let prefix = prefix.ok_or_else(|| reader.missing("model.embed_tokens.weight", &[vocab, hidden]))?;
    let layers = config.layers.iter().enumerate().map(|(i, kind)| {
        let prefix = format!("{prefix}layers.{i}.");
        layer(&Layer { reader, prefix: &prefix, config: &config }, *kind, spec)
    });
    let weights = Weights {
        embed: reader.need(&format!("{prefix}embed_tokens.weight"), &[vocab, hidden])?,
        norm: plus_one(reader.values(&format!("{prefix}norm.weight"), &[hidden])?),
        head: head(dir, reader, &config)?,
        layers: layers.collect::<Result<_, _>>()?,
        mtp: mtp(dir, reader, &config, spec),
    };
    let files = dir.files().clone();
    files.check()?;
    Ok(Model { config, weights, text, files })
}

impl Source for HfDir {
    fn path(&self) -> &Path {
        self.path()
    }

    fn tensor(&self, name: &str) -> Result<Option<Tensor>, LoadError> {
        self.tensor(name)
    }
}

fn config(dir: &HfDir, spec: &Spec) -> Result<ModelConfig, LoadError> {
    let c = dir.config();
    let name = dir.path().canonicalize().ok().and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned()));
    Ok(ModelConfig {
        architecture: spec.architecture,
        name: name.unwrap_or_default(),
        hidden: size(c, "hidden_size", c.hidden_size)?,
        vocab: size(c, "vocab_size", c.vocab_size)?,
        context: u32::try_from(c.max_position_embeddings).unwrap_or(u32::MAX),
        rms_eps: c.rms_norm_eps as f32,
        layers: kinds(dir, c)?,
        gdn: gdn_config(c)?,
        attention: attention_config(c)?,
        ffn: ffn_config(c, spec)?,
    })
}

fn size(c: &HfConfig, key: &str, value: u64) -> Result<usize, LoadError> {
    if (1..=SIZE_MAX).contains(&value) { Ok(value as usize) } else { Err(c.error(key, format_args!("1 to {SIZE_MAX}"), value)) }
}

fn multiple(c: &HfConfig, key: &str, value: usize, of: usize) -> Result<(), LoadError> {
    if value.is_multiple_of(of) { Ok(()) } else { Err(c.error(key, format_args!("a multiple of {of}"), value)) }
}

fn kinds(dir: &HfDir, c: &HfConfig) -> Result<Vec<LayerKind>, LoadError> {
    let (layers, tensors) = (c.num_hidden_layers, dir.tensor_count() as u64);
    if layers == 0 || layers > tensors {
        return Err(c.error("num_hidden_layers", format_args!("1 to {tensors}, the number of tensors"), layers));
    }
    let kind = |attends: bool| if attends { LayerKind::Attention } else { LayerKind::Gdn };
    match &c.attends {
        Attends::Every(n) => Ok((1..=layers).map(|i| kind(i.is_multiple_of(*n))).collect()),
        Attends::Listed(all) if all.len() as u64 == layers => Ok(all.iter().map(|a| kind(*a)).collect()),
        Attends::Listed(all) => Err(c.error("layer_types", format_args!("{layers} entries, one a layer"), all.len())),
    }
}

fn gdn_config(c: &HfConfig) -> Result<GdnConfig, LoadError> {
    let gdn = GdnConfig {
        key_heads: size(c, "linear_num_key_heads", c.linear_num_key_heads)?,
        value_heads: size(c, "linear_num_value_heads", c.linear_num_value_heads)?,
        key_dim: size(c, "linear_key_head_dim", c.linear_key_head_dim)?,
        value_dim: size(c, "linear_value_head_dim", c.linear_value_head_dim)?,
        conv_taps: size(c, "linear_conv_kernel_dim", c.linear_conv_kernel_dim)?,
        head_order: HeadOrder::Grouped,
    };
    multiple(c, "linear_num_value_heads", gdn.value_heads, gdn.key_heads)?;
    Ok(gdn)
}

fn attention_config(c: &HfConfig) -> Result<AttentionConfig, LoadError> {
    let heads = size(c, "num_attention_heads", c.num_attention_heads)?;
    let kv_heads = size(c, "num_key_value_heads", c.num_key_value_heads)?;
    multiple(c, "num_attention_heads", heads, kv_heads)?;
    let head_dim = size(c, "head_dim", c.head_dim)?;
    let rotary = head_dim as f64 * c.partial_rotary_factor;
    if !(2.0..=head_dim as f64).contains(&rotary) || rotary as usize % 2 == 1 {
        let want = format!("a part of {head_dim} that is even and not 0");
        return Err(c.error("partial_rotary_factor", want, c.partial_rotary_factor));
    }
    Ok(AttentionConfig { heads, kv_heads, head_dim, rotary_dim: rotary as usize, rope_theta: c.rope_theta })
}

fn ffn_config(c: &HfConfig, spec: &Spec) -> Result<FfnConfig, LoadError> {
    if !spec.moe {
        let width = c.intermediate_size.ok_or_else(|| c.error("intermediate_size", "a whole number", "no such key"))?;
        return Ok(FfnConfig::Dense { width: size(c, "intermediate_size", width)? });
    }
    let e: HfExperts = c.experts.ok_or_else(|| c.error("num_experts", "at least 1", "none"))?;
    let experts = size(c, "num_experts", e.num_experts)?;
    let used = size(c, "num_experts_per_tok", e.num_experts_per_tok)?;
    if used > experts {
        return Err(c.error("num_experts_per_tok", format_args!("at most {experts}, the number of experts"), used));
    }
    Ok(FfnConfig::Moe {
        experts,
        used,
        width: size(c, "moe_intermediate_size", e.moe_intermediate_size)?,
        shared_width: size(c, "shared_expert_intermediate_size", e.shared_expert_intermediate_size)?,
    })
}

fn head(dir: &HfDir, reader: Reader<'_>, config: &ModelConfig) -> Result<Option<Tensor>, LoadError> {
    if dir.config().tie_word_embeddings {
        return Ok(None);
    }
    let name = HEADS.into_iter().find(|n| dir.has_tensor(n)).unwrap_or(HEADS[0]);
    reader.need(name, &[config.vocab, config.hidden]).map(Some)
}

fn plus_one(mut w: Vec<f32>) -> Vec<f32> {
    w.iter_mut().for_each(|w| *w += 1.0);
    w
}

fn layer(layer: &Layer<'_>, kind: LayerKind, spec: &Spec) -> Result<LayerWeights, LoadError> {
    let hidden = layer.config.hidden;
    Ok(LayerWeights {
        input_norm: plus_one(layer.values("input_layernorm.weight", &[hidden])?),
        mixer: match kind {
            LayerKind::Gdn => MixerWeights::Gdn(gdn(layer, spec)?),
            LayerKind::Attention => MixerWeights::Attention(attention(layer)?),
        },
        post_norm: plus_one(layer.values("post_attention_layernorm.weight", &[hidden])?),
        ffn: ffn(layer)?,
    })
}

fn gdn(layer: &Layer<'_>, spec: &Spec) -> Result<GdnWeights, LoadError> {
    let (gdn, hidden) = (&layer.config.gdn, layer.config.hidden);
    let heads = gdn.value_heads;
    let Projections { qkv, z, b, a } = (spec.hugging_face_projections)(layer)?;
    let mut a_neg = layer.values("linear_attn.A_log", &[heads])?;
    a_neg.iter_mut().for_each(|a| *a = -a.exp());
    Ok(GdnWeights {
        qkv,
        z,
        b,
        a,
        conv: layer.values("linear_attn.conv1d.weight", &[gdn.channels(), gdn.conv_taps])?,
        a_neg,
        dt_bias: layer.values("linear_attn.dt_bias", &[heads])?,
        norm: layer.values("linear_attn.norm.weight", &[gdn.value_dim])?,
        out: layer.need("linear_attn.out_proj.weight", &[hidden, heads * gdn.value_dim])?,
    })
}

fn attention(layer: &Layer<'_>) -> Result<AttentionWeights, LoadError> {
    let (at, hidden) = (&layer.config.attention, layer.config.hidden);
    let (queries, keys) = (at.heads * at.head_dim, at.kv_heads * at.head_dim);
    Ok(AttentionWeights {
        q: layer.need("self_attn.q_proj.weight", &[2 * queries, hidden])?,
        k: layer.need("self_attn.k_proj.weight", &[keys, hidden])?,
        v: layer.need("self_attn.v_proj.weight", &[keys, hidden])?,
        q_norm: plus_one(layer.values("self_attn.q_norm.weight", &[at.head_dim])?),
        k_norm: plus_one(layer.values("self_attn.k_norm.weight", &[at.head_dim])?),
        out: layer.need("self_attn.o_proj.weight", &[hidden, queries])?,
    })
}

fn ffn(layer: &Layer<'_>) -> Result<FfnWeights, LoadError> {
    match layer.config.ffn {
        FfnConfig::Dense { width } => Ok(FfnWeights::Dense(swiglu(layer, "mlp.", width)?)),
        FfnConfig::Moe { experts, width, shared_width, .. } => Ok(FfnWeights::Moe(MoeWeights {
            router: layer.need("mlp.gate.weight", &[experts, layer.config.hidden])?,
            experts: match layer.find("mlp.experts.gate_up_proj", &[experts, 2 * width, layer.config.hidden])? {
                Some(fused) => fused_experts(layer, &fused, experts, width)?,
                None => separate_experts(layer, experts, width)?,
            },
            shared: swiglu(layer, "mlp.shared_expert.", shared_width)?,
            shared_gate: layer.values("mlp.shared_expert_gate.weight", &[layer.config.hidden])?,
        })),
    }
}

fn swiglu(layer: &Layer<'_>, part: &str, width: usize) -> Result<SwigluWeights, LoadError> {
    let hidden = layer.config.hidden;
    Ok(SwigluWeights {
        gate: layer.need(&format!("{part}gate_proj.weight"), &[width, hidden])?,
        up: layer.need(&format!("{part}up_proj.weight"), &[width, hidden])?,
        down: layer.need(&format!("{part}down_proj.weight"), &[hidden, width])?,
    })
}

fn fused_experts(layer: &Layer<'_>, fused: &Tensor, experts: usize, width: usize) -> Result<SwigluWeights, LoadError> {
    Ok(SwigluWeights {
        gate: fused.rows_of_each(0..width),
        up: fused.rows_of_each(width..2 * width),
        down: layer.need("mlp.experts.down_proj", &[experts, layer.config.hidden, width])?,
    })
}

fn separate_experts(layer: &Layer<'_>, experts: usize, width: usize) -> Result<SwigluWeights, LoadError> {
    let hidden = layer.config.hidden;
    let stacked = |part: &str, shape: [usize; 2]| {
        let one = |e| layer.need(&format!("mlp.experts.{e}.{part}_proj.weight"), &shape);
        let all = (0..experts).map(one).collect::<Result<Vec<_>, _>>()?;
        stack(layer.name(&format!("mlp.experts.{part}_proj")), &all).map_err(|p| layer.reader.error(p))
    };
    Ok(SwigluWeights {
        gate: stacked("gate", [width, hidden])?,
        up: stacked("up", [width, hidden])?,
        down: stacked("down", [hidden, width])?,
    })
}

/// The draft head, if the directory has one that can be read. A main model that is whole is served either way.
fn mtp(dir: &HfDir, reader: Reader<'_>, config: &ModelConfig, spec: &Spec) -> Option<MtpWeights> {
    let prefix = DRAFTS.into_iter().find(|p| dir.has_tensor(&format!("{p}fc.weight")))?;
    read_mtp(reader, prefix, config, spec).inspect_err(|e| tracing::warn!("the draft head is left out: {e}")).ok()
}

fn read_mtp(reader: Reader<'_>, prefix: &str, config: &ModelConfig, spec: &Spec) -> Result<MtpWeights, LoadError> {
    let hidden = config.hidden;
    let norm = |name: &str| reader.values(&format!("{prefix}{name}.weight"), &[hidden]).map(plus_one);
    let block = format!("{prefix}layers.0.");
    Ok(MtpWeights {
        embed_norm: norm("pre_fc_norm_embedding")?,
        hidden_norm: norm("pre_fc_norm_hidden")?,
        fc: reader.need(&format!("{prefix}fc.weight"), &[hidden, 2 * hidden])?,
        layer: layer(&Layer { reader, prefix: &block, config }, LayerKind::Attention, spec)?,
        norm: norm("norm")?,
    })
}

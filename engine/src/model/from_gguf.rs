//! A model from GGUF metadata and tensor names, for every architecture.

use super::load::Spec;
use super::reader::{Layer, Projections, Reader, SIZE_MAX, Source};
use super::*;
use crate::format::gguf::Metadata;
use crate::format::{Gguf, LoadError, Problem, Tensor, TextAssets};
use std::path::Path;

/// llama.cpp's default where a file does not say which layers attend.
const ATTENTION_INTERVAL_DEFAULT: u64 = 4;

/// Reads the model of this architecture.
pub(super) fn read(file: &Gguf, spec: &Spec) -> Result<Model, LoadError> {
    let text = TextAssets::from_gguf(file)?;
    let reader = Reader::new(file);
    let config = Keys::new(file, spec)?.config(reader)?;
    check_vocabulary(file, &text, config.vocab)?;
    let layers = config.layers.iter().enumerate().map(|(i, kind)| {
        let prefix = format!("blk.{i}.");
        layer(&Layer { reader, prefix: &prefix, config: &config }, *kind, spec)
    });
    let weights = Weights {
        embed: reader.need("token_embd.weight", &[config.vocab, config.hidden])?,
        norm: reader.values("output_norm.weight", &[config.hidden])?,
        head: reader.find("output.weight", &[config.vocab, config.hidden])?,
        layers: layers.collect::<Result<_, _>>()?,
        mtp: mtp(file, reader, &config, spec),
    };
    let files = file.files().clone();
    files.check()?;
    Ok(Model { config, weights, text, files })
}

impl Source for Gguf {
    fn path(&self) -> &Path {
        self.path()
    }

    /// With the factor of NVFP4's companion tensor, where there is one.
    fn tensor(&self, name: &str) -> Result<Option<Tensor>, LoadError> {
        let Some(tensor) = self.tensor(name) else { return Ok(None) };
        let companion = name.strip_suffix(".weight").and_then(|stem| self.tensor(&format!("{stem}.scale")));
        let Some(scale) = companion else { return Ok(Some(tensor.clone())) };
        let count: usize = scale.shape.iter().product();
        if count != 1 && count != tensor.matrices() {
            let want = format!("1 value, or {}, one a matrix", tensor.matrices());
            return Err(Problem::tensor(&scale.name, want, count).in_file(self.path()));
        }
        let mut scaled = tensor.clone();
        scaled.scale = Some(scale.decode().into());
        Ok(Some(scaled))
    }
}

fn check_vocabulary(file: &Gguf, text: &TextAssets, rows: usize) -> Result<(), LoadError> {
    let crate::format::TokenizerSource::Gguf { tokens, .. } = &text.tokenizer else { return Ok(()) };
    if tokens.len() <= rows {
        return Ok(());
    }
    let want = format!("at most {rows} tokens, the rows of token_embd.weight");
    Err(file.meta().error(Problem::key("tokenizer.ggml.tokens", want, tokens.len())))
}

/// Metadata keys of one architecture, with its prefix.
struct Keys<'a> {
    file: &'a Gguf,
    meta: &'a Metadata,
    spec: &'a Spec,
    /// `block_count`: main layers and those of the draft head.
    blocks: usize,
    /// One entry a main layer.
    kinds: Vec<LayerKind>,
}

impl<'a> Keys<'a> {
    fn new(file: &'a Gguf, spec: &'a Spec) -> Result<Self, LoadError> {
        let meta = file.meta();
        let mut keys = Self { file, meta, spec, blocks: 0, kinds: Vec::new() };
        let (count, draft) = (keys.key("block_count"), keys.key("nextn_predict_layers"));
        let (blocks, tensors) = (meta.need_u64(&count)?, file.tensors().len());
        // Each block has several tensors, so this bounds everything that is later allocated a layer.
        if blocks == 0 || blocks > tensors as u64 {
            return Err(meta.error(Problem::key(count, format_args!("1 to {tensors}, the number of tensors"), blocks)));
        }
        let mtp = meta.u64(&draft)?.unwrap_or(0);
        if mtp >= blocks {
            return Err(meta.error(Problem::key(draft, format_args!("less than the block count of {blocks}"), mtp)));
        }
        keys.blocks = blocks as usize;
        keys.kinds = keys.kinds((blocks - mtp) as usize)?;
        Ok(keys)
    }

    fn config(self, reader: Reader<'_>) -> Result<ModelConfig, LoadError> {
        self.check_rope_scaling()?;
        let hidden = self.size("embedding_length")?;
        let embed = reader.any("token_embd.weight")?.ok_or_else(|| {
            let want = format!("the embedding, {hidden} values a row");
            self.meta.error(Problem::tensor("token_embd.weight", want, "no such tensor"))
        })?;
        let context = self.meta.need_u64(&self.key("context_length"))?;
        let stem = || self.file.path().file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        Ok(ModelConfig {
            architecture: self.spec.architecture,
            name: self.meta.str("general.name")?.map_or_else(stem, str::to_owned),
            hidden,
            vocab: embed.rows(),
            context: u32::try_from(context).unwrap_or(u32::MAX),
            rms_eps: self.meta.need_f64(&self.key("attention.layer_norm_rms_epsilon"))? as f32,
            gdn: self.gdn()?,
            attention: self.attention()?,
            ffn: self.ffn(reader)?,
            layers: self.kinds,
        })
    }

    /// `attention.recurrent_layers` if it is there, else every n-th layer attends.
    fn kinds(&self, main: usize) -> Result<Vec<LayerKind>, LoadError> {
        let kind = |gdn: bool| if gdn { LayerKind::Gdn } else { LayerKind::Attention };
        let key = self.key("attention.recurrent_layers");
        if let Some(flags) = self.meta.integers(&key)? {
            if flags.len() != self.blocks && flags.len() != main {
                return Err(self.meta.error(Problem::key(key, format_args!("{} entries, one a block", self.blocks), flags.len())));
            }
            return Ok(flags[..main].iter().map(|f| kind(*f != 0)).collect());
        }
        let key = self.key("full_attention_interval");
        let interval = self.meta.u64(&key)?.unwrap_or(ATTENTION_INTERVAL_DEFAULT);
        if interval == 0 {
            return Err(self.meta.error(Problem::key(key, "at least 1", 0)));
        }
        Ok((1..=main as u64).map(|i| kind(!i.is_multiple_of(interval))).collect())
    }

    fn gdn(&self) -> Result<GdnConfig, LoadError> {
        let key_heads = self.size("ssm.group_count")?;
        let value_heads = self.size("ssm.time_step_rank")?;
        let inner = self.size("ssm.inner_size")?;
        self.check_multiple("ssm.time_step_rank", value_heads, "ssm.group_count", key_heads)?;
        self.check_multiple("ssm.inner_size", inner, "ssm.time_step_rank", value_heads)?;
        Ok(GdnConfig {
            key_heads,
            value_heads,
            key_dim: self.size("ssm.state_size")?,
            value_dim: inner / value_heads,
            conv_taps: self.size("ssm.conv_kernel")?,
            head_order: self.spec.gguf_head_order,
        })
    }

    fn attention(&self) -> Result<AttentionConfig, LoadError> {
        let of = |name: &str| self.same_in("attention", name, |kind| kind == LayerKind::Attention);
        let (heads, kv_heads) = (of("attention.head_count")?, of("attention.head_count_kv")?);
        self.check_multiple("attention.head_count", heads, "attention.head_count_kv", kv_heads)?;
        let head_dim = self.size("attention.key_length")?;
        let value_dim = self.size("attention.value_length")?;
        if value_dim != head_dim {
            let want = format!("{head_dim} like attention.key_length");
            return Err(self.meta.error(Problem::key(self.key("attention.value_length"), want, value_dim)));
        }
        let rotary_dim = self.size("rope.dimension_count")?;
        if rotary_dim > head_dim || rotary_dim % 2 == 1 {
            let want = format!("an even number of at most {head_dim}, the head's size");
            return Err(self.meta.error(Problem::key(self.key("rope.dimension_count"), want, rotary_dim)));
        }
        Ok(AttentionConfig { heads, kv_heads, head_dim, rotary_dim, rope_theta: self.meta.need_f64(&self.key("rope.freq_base"))? })
    }

    fn ffn(&self, reader: Reader<'_>) -> Result<FfnConfig, LoadError> {
        if !self.spec.moe {
            return Ok(FfnConfig::Dense { width: self.size("feed_forward_length")? });
        }
        let (experts, used) = (self.size("expert_count")?, self.size("expert_used_count")?);
        if used > experts {
            let want = format!("at most {experts}, the number of experts");
            return Err(self.meta.error(Problem::key(self.key("expert_used_count"), want, used)));
        }
        Ok(FfnConfig::Moe {
            experts,
            used,
            width: self.width(reader, "expert_feed_forward_length", "blk.0.ffn_down_exps.weight")?,
            shared_width: self.width(reader, "expert_shared_feed_forward_length", "blk.0.ffn_down_shexp.weight")?,
        })
    }

    /// A width of experts; where the key is missing, that of a tensor, as llama.cpp does, so files without it exist.
    fn width(&self, reader: Reader<'_>, name: &str, tensor: &str) -> Result<usize, LoadError> {
        match reader.any(tensor)? {
            Some(t) if !self.meta.keys().any(|k| k == self.key(name)) => Ok(t.cols()),
            _ => self.size(name),
        }
    }

    fn check_rope_scaling(&self) -> Result<(), LoadError> {
        let key = self.key("rope.scaling.type");
        match self.meta.str(&key)? {
            None | Some("none" | "") => Ok(()),
            Some(other) => {
                Err(self.meta.error(Problem::key(key, "`none`: scaled rotation is not supported", format_args!("`{other}`"))))
            }
        }
    }

    fn check_multiple(&self, name: &str, value: usize, of: &str, divisor: usize) -> Result<(), LoadError> {
        if value.is_multiple_of(divisor) {
            return Ok(());
        }
        Err(self.meta.error(Problem::key(self.key(name), format_args!("a multiple of {divisor}, the value of {of}"), value)))
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.spec.gguf)
    }

    /// A size: one number.
    fn size(&self, name: &str) -> Result<usize, LoadError> {
        self.same_in("main", name, |_| true)
    }

    /// A size that may be written a layer, and must be the same in all main layers that `counts` picks.
    fn same_in(&self, which: &str, name: &str, counts: impl Fn(LayerKind) -> bool) -> Result<usize, LoadError> {
        let key = self.key(name);
        let all = self.meta.u64_per_layer(&key, self.blocks)?.ok_or_else(|| self.meta.missing(&key, "a whole number"))?;
        let mut picked = all.iter().zip(&self.kinds).filter(|(_, kind)| counts(**kind)).map(|(n, _)| *n);
        let first = picked.next().unwrap_or(all[0]);
        if let Some(other) = picked.find(|n| *n != first) {
            let got = format!("{first} and {other}");
            return Err(self.meta.error(Problem::key(key, format_args!("the same number in all {which} layers"), got)));
        }
        if first == 0 || first > SIZE_MAX {
            return Err(self.meta.error(Problem::key(key, format_args!("1 to {SIZE_MAX}"), first)));
        }
        Ok(first as usize)
    }
}

fn layer(layer: &Layer<'_>, kind: LayerKind, spec: &Spec) -> Result<LayerWeights, LoadError> {
    let hidden = layer.config.hidden;
    Ok(LayerWeights {
        input_norm: layer.values("attn_norm.weight", &[hidden])?,
        mixer: match kind {
            LayerKind::Gdn => MixerWeights::Gdn(gdn(layer, spec)?),
            LayerKind::Attention => MixerWeights::Attention(attention(layer)?),
        },
        post_norm: layer.values("post_attention_norm.weight", &[hidden])?,
        ffn: ffn(layer)?,
    })
}

fn gdn(layer: &Layer<'_>, spec: &Spec) -> Result<GdnWeights, LoadError> {
    let (gdn, hidden) = (&layer.config.gdn, layer.config.hidden);
    let heads = gdn.value_heads;
    let Projections { qkv, z, b, a } = (spec.gguf_projections)(layer)?;
    Ok(GdnWeights {
        qkv,
        z,
        b,
        a,
        conv: layer.values("ssm_conv1d.weight", &[gdn.channels(), gdn.conv_taps])?,
        a_neg: layer.values("ssm_a", &[heads])?,
        dt_bias: layer.values("ssm_dt.bias", &[heads])?,
        norm: layer.values("ssm_norm.weight", &[gdn.value_dim])?,
        out: layer.need("ssm_out.weight", &[hidden, heads * gdn.value_dim])?,
    })
}

fn attention(layer: &Layer<'_>) -> Result<AttentionWeights, LoadError> {
    let (at, hidden) = (&layer.config.attention, layer.config.hidden);
    let (q_rows, kv_rows) = (2 * at.heads * at.head_dim, at.kv_heads * at.head_dim);
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
        q,
        k,
        v,
        q_norm: layer.values("attn_q_norm.weight", &[at.head_dim])?,
        k_norm: layer.values("attn_k_norm.weight", &[at.head_dim])?,
        out: layer.need("attn_output.weight", &[hidden, at.heads * at.head_dim])?,
    })
}

fn ffn(layer: &Layer<'_>) -> Result<FfnWeights, LoadError> {
    let hidden = layer.config.hidden;
    match layer.config.ffn {
        FfnConfig::Dense { width } => Ok(FfnWeights::Dense(swiglu(layer, "", width)?)),
        FfnConfig::Moe { experts, width, shared_width, .. } => Ok(FfnWeights::Moe(MoeWeights {
            router: layer.need("ffn_gate_inp.weight", &[experts, hidden])?,
            experts: expert_stacks(layer, experts, width)?,
            shared: swiglu(layer, "_shexp", shared_width)?,
            shared_gate: layer.values("ffn_gate_inp_shexp.weight", &[hidden])?,
        })),
    }
}

fn swiglu(layer: &Layer<'_>, suffix: &str, width: usize) -> Result<SwigluWeights, LoadError> {
    let hidden = layer.config.hidden;
    let matrix = |part: &str, shape| layer.need(&format!("ffn_{part}{suffix}.weight"), shape);
    Ok(SwigluWeights {
        gate: matrix("gate", &[width, hidden])?,
        up: matrix("up", &[width, hidden])?,
        down: matrix("down", &[hidden, width])?,
    })
}

fn expert_stacks(layer: &Layer<'_>, experts: usize, width: usize) -> Result<SwigluWeights, LoadError> {
    let hidden = layer.config.hidden;
    let (gate, up) = match layer.find("ffn_gate_up_exps.weight", &[experts, 2 * width, hidden])? {
        Some(fused) => (fused.rows_of_each(0..width), fused.rows_of_each(width..2 * width)),
        None => (
            layer.need("ffn_gate_exps.weight", &[experts, width, hidden])?,
            layer.need("ffn_up_exps.weight", &[experts, width, hidden])?,
        ),
    };
    Ok(SwigluWeights { gate, up, down: layer.need("ffn_down_exps.weight", &[experts, hidden, width])? })
}

/// The draft head, if the file has one that can be read. A file whose main model is whole is served either way.
fn mtp(file: &Gguf, reader: Reader<'_>, config: &ModelConfig, spec: &Spec) -> Option<MtpWeights> {
    let main = config.layers.len();
    let blocks = file.meta().u64(&format!("{}.block_count", spec.gguf)).ok().flatten()?;
    if blocks as usize == main {
        return None;
    }
    let prefix = format!("blk.{main}.");
    let layer = Layer { reader, prefix: &prefix, config };
    read_mtp(&layer, spec).inspect_err(|e| tracing::warn!("the draft head is left out: {e}")).ok()
}

fn read_mtp(at: &Layer<'_>, spec: &Spec) -> Result<MtpWeights, LoadError> {
    let hidden = at.config.hidden;
    Ok(MtpWeights {
        embed_norm: at.values("nextn.enorm.weight", &[hidden])?,
        hidden_norm: at.values("nextn.hnorm.weight", &[hidden])?,
        fc: at.need("nextn.eh_proj.weight", &[hidden, 2 * hidden])?,
        norm: at.values("nextn.shared_head_norm.weight", &[hidden])?,
        layer: layer(at, LayerKind::Attention, spec)?,
    })
}

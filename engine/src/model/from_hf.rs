//! A model from a Hugging Face directory, for every family. Here 1 is added to norms and -exp taken of A_log, experts
//! are stacked and fused ones split; value heads stay in grouped order.

use super::blocks::Layer;
use super::families::{Family, Layers};
use super::harmless;
use super::hf_keys::{factor, size};
use super::hf_tensors::{HfSource, RenamedDir};
use super::reader::{Format, Reader, TensorSource, plus_one};
use super::unread::{check_keys, check_tensors, draft_is_whole};
use super::{Block, DraftHeadWeights, Model, ModelConfig, Weights};
use crate::format::hf::{HfConfig, is_vision};
use crate::format::{HfDir, LoadError, Tensor, TextAssets};

/// Prefixes of the main model's tensors that exports use, before `embed_tokens.weight`.
pub(super) const PREFIXES: [&str; 4] = ["model.language_model.", "language_model.model.", "model.", ""];
const HEADS: [&str; 2] = ["lm_head.weight", "language_model.lm_head.weight"];
const DRAFTS: [&str; 2] = ["mtp.", "model.mtp."];

/// Context of a model that was made for no certain one, which is what converters write.
const CONTEXT_DEFAULT: u64 = 1 << 20;

/// What the names of the main model's tensors begin with, if it has an embedding under any of them.
pub(super) fn main_prefix(dir: &HfDir) -> Option<&'static str> {
    PREFIXES.into_iter().find(|p| dir.has_tensor(&format!("{p}embed_tokens.weight")))
}

/// Prefix of the names of the draft head's tensors, if there is a draft head.
pub(super) fn draft_prefix(dir: &HfDir) -> Option<&'static str> {
    DRAFTS.into_iter().find(|p| dir.has_tensor(&format!("{p}fc.weight")))
}

/// The name of the head, or the one that it should have.
pub(super) fn head_name(dir: &HfDir) -> &'static str {
    HEADS.into_iter().find(|n| dir.has_tensor(n)).unwrap_or(HEADS[0])
}

/// Reads the model of this family.
pub(super) fn read(dir: &HfDir, family: &'static Family) -> Result<Model, LoadError> {
    let source = HfSource::new(dir);
    let model = match family.hugging_face_tensors {
        Some(tensors) => read_renamed(dir, &RenamedDir::new(&source, tensors)?, family)?,
        None => read_own(dir, &source, family)?,
    };
    check_keys_read(dir.config())?;
    let left_out = |name: &str| is_vision(name) || is_draft(name);
    check_tensors(source.names(), source.record(), left_out).map_err(|problem| problem.in_file(dir.path()))?;
    model.files.check()?;
    Ok(model)
}

/// That every key of the text part was read or changes nothing.
pub(super) fn check_keys_read(c: &HfConfig) -> Result<(), LoadError> {
    c.must_be("use_sliding_window", false)?;
    if c.has("use_sliding_window") {
        // Releases say how wide a window would be beside saying that there is none.
        let _unused = c.u64("sliding_window")?;
    }
    check_keys(&c.unread(), "", harmless::HUGGING_FACE).map_err(|problem| problem.in_file(&c.file))
}

/// Whether a tensor is one of a draft head.
pub(super) fn is_draft(name: &str) -> bool {
    DRAFTS.iter().any(|prefix| name.starts_with(prefix))
}

/// Reads the model of a family whose tensors are found under the names of GGUF files.
fn read_renamed(dir: &HfDir, source: &RenamedDir<'_>, family: &'static Family) -> Result<Model, LoadError> {
    let shape = shape(dir, family)?;
    let Layers { main, .. } = (family.hugging_face_layers)(dir)?;
    if dir.tensor_names().any(is_draft) {
        tracing::warn!("the draft head is left out: those of {} are not read", family.gguf);
    }
    let config = shape.with_layers(&main, None);
    let text = TextAssets::from_hugging_face_for(dir.path(), config.vocab)?;
    let (reader, hidden, vocab) = (Reader::new(source), config.hidden, config.vocab);
    let layer = |(i, plan)| {
        let (format, paired, prefix) = (Format::Gguf, false, &*format!("blk.{i}."));
        Layer { reader, format, gdn: family.gdn.as_ref(), paired, prefix, hidden }.read(plan)
    };
    let embed = reader.need("token_embd.weight", &[vocab, hidden])?;
    let weights = Weights {
        head: head(dir.config(), reader, "output.weight", &embed)?,
        embed,
        norm: reader.values("output_norm.weight", &[hidden])?,
        layers: main.iter().enumerate().map(layer).collect::<Result<_, _>>()?,
        draft_head: None,
    };
    Ok(Model { config, weights, text, files: dir.files().clone() })
}

fn read_own(dir: &HfDir, source: &HfSource<'_>, family: &'static Family) -> Result<Model, LoadError> {
    let shape = shape(dir, family)?;
    let Layers { main, draft } = (family.hugging_face_layers)(dir)?;
    let config = shape.with_layers(&main, Some(&draft));
    let text = TextAssets::from_hugging_face_for(dir.path(), config.vocab)?;
    let reader = Reader::new(source);
    let (hidden, vocab) = (config.hidden, config.vocab);
    let prefix = main_prefix(dir).ok_or_else(|| reader.missing("model.embed_tokens.weight", &[vocab, hidden]))?;
    let layer = |prefix: &str, plan| {
        let (format, paired) = (Format::HuggingFace, false);
        Layer { reader, format, gdn: family.gdn.as_ref(), paired, prefix, hidden }.read(plan)
    };
    let layers = main.iter().enumerate().map(|(i, plan)| layer(&format!("{prefix}layers.{i}."), plan));
    let embed = reader.need(&format!("{prefix}embed_tokens.weight"), &[vocab, hidden])?;
    let weights = Weights {
        head: head(dir.config(), reader, head_name(dir), &embed)?,
        embed,
        norm: plus_one(reader.values(&format!("{prefix}norm.weight"), &[hidden])?),
        layers: layers.collect::<Result<_, _>>()?,
        draft_head: draft_head(dir, reader, hidden, |prefix| layer(&format!("{prefix}layers.0."), &draft))
            .filter(|_| draft_is_whole(reader, is_draft)),
    };
    let files = dir.files().clone();
    let config = if weights.draft_head.is_some() { config } else { ModelConfig { draft: Vec::new(), ..config } };
    Ok(Model { config, weights, text, files })
}

/// Everything about the model that is not about its layers.
pub(super) fn shape(dir: &HfDir, family: &Family) -> Result<ModelConfig, LoadError> {
    let c = dir.config();
    let name = dir.path().canonicalize().ok().and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned()));
    Ok(ModelConfig {
        architecture: family.gguf,
        name: name.unwrap_or_default(),
        hidden: size(c, "hidden_size")?,
        vocab: size(c, "vocab_size")?,
        context: u32::try_from(context(c, family)?).unwrap_or(u32::MAX),
        rms_eps: rms_eps(c)? as f32,
        embedding_scale: factor(c, "embedding_multiplier")?,
        logit_scale: factor(c, "lm_head_multiplier")? / factor(c, "logits_scaling")?,
        layers: Vec::new(),
        draft: Vec::new(),
    })
}

fn context(c: &HfConfig, family: &Family) -> Result<u64, LoadError> {
    match c.u64("max_position_embeddings")? {
        None if family.hugging_face_tensors.is_none() => c.need_u64("max_position_embeddings"),
        context => Ok(context.unwrap_or(CONTEXT_DEFAULT)),
    }
}

/// Families call it differently, and some by several names.
fn rms_eps(c: &HfConfig) -> Result<f64, LoadError> {
    let mut found = None;
    for key in ["layer_norm_epsilon", "norm_eps", "rms_norm_eps"] {
        match (found, c.f64(key)?) {
            (Some(eps), Some(other)) if eps != other => return Err(c.error(key, eps, other)),
            (_, own) => found = found.or(own),
        }
    }
    found.map_or_else(|| c.need_f64("rms_norm_eps"), Ok)
}

/// The head, `None` where it is the embedding. Programs that tie weights untie a head that differs from the embedding
/// whatever config.json says, and write many that do not differ.
fn head(c: &HfConfig, reader: Reader<'_>, name: &str, embed: &Tensor) -> Result<Option<Tensor>, LoadError> {
    if !c.is_tied() {
        return reader.need(name, &embed.shape).map(Some);
    }
    Ok(reader.find(name, &embed.shape)?.filter(|head| unties(head, embed)))
}

/// Whether a head beside an embedding to which it is said to be tied is another matrix.
pub(super) fn unties(head: &Tensor, embed: &Tensor) -> bool {
    head.ty != embed.ty || head.bytes() != embed.bytes()
}

/// The draft head, if the directory has one that can be read. A main model that is whole is served either way.
fn draft_head(
    dir: &HfDir,
    reader: Reader<'_>,
    hidden: usize,
    layer: impl FnOnce(&str) -> Result<Vec<Block>, LoadError>,
) -> Option<DraftHeadWeights> {
    let prefix = draft_prefix(dir)?;
    let norm = |name: &str| reader.values(&format!("{prefix}{name}.weight"), &[hidden]).map(plus_one);
    let read = || {
        Ok::<_, LoadError>(DraftHeadWeights {
            embed_norm: norm("pre_fc_norm_embedding")?,
            hidden_norm: norm("pre_fc_norm_hidden")?,
            fc: reader.need(&format!("{prefix}fc.weight"), &[hidden, 2 * hidden])?,
            layer: layer(prefix)?,
            norm: norm("norm")?,
            shortlist: None,
        })
    };
    read().inspect_err(|e| tracing::warn!("the draft head is left out: {e}")).ok()
}

//! A model from GGUF metadata and tensor names, for every family.

use super::blocks::Layer;
use super::families::{Family, Layers};
use super::gguf_keys::Keys;
use super::hf_tensors::layer_of;
use super::reader::{Format, Reader, TensorSource, finite_values};
use super::unread::{check_tensors, draft_is_whole};
use super::{Block, DraftHeadWeights, Model, Weights};
use crate::format::{Gguf, LoadError, Problem, ReadNames, Tensor, TextAssets};
use std::path::Path;

/// Reads the model of this family.
pub(super) fn read(file: &Gguf, family: &'static Family) -> Result<Model, LoadError> {
    let text = TextAssets::from_gguf(file)?;
    let source = GgufSource { file, record: ReadNames::default() };
    let reader = Reader::new(&source);
    let keys = Keys::new(file, family.gguf)?;
    let shape = keys.shape(reader)?;
    let Layers { main, draft } = (family.gguf_layers)(&keys)?;
    let drafts = keys.blocks > keys.main && !draft.is_empty();
    if keys.blocks > keys.main && !drafts {
        tracing::warn!("the draft head is left out: those of {} are not read", family.gguf);
    }
    check_vocabulary(file, &text, shape.vocab)?;
    keys.check_read()?;
    let (hidden, vocab) = (shape.hidden, shape.vocab);
    let layer = |i: usize, plan| {
        let (format, paired, prefix) = (Format::Gguf, family.form.paired, &*format!("blk.{i}."));
        Layer { reader, format, gdn: family.gdn.as_ref(), paired, prefix, hidden }.read(plan)
    };
    let behind = |name: &str| layer_of(name).is_some_and(|(layer, _)| (keys.main..keys.blocks).contains(&layer));
    let weights = Weights {
        embed: reader.need("token_embd.weight", &[vocab, hidden])?,
        norm: reader.values(family.form.output_norm, &[hidden])?,
        head: reader.find("output.weight", &[vocab, hidden])?,
        layers: main.iter().enumerate().map(|(i, plan)| layer(i, plan)).collect::<Result<_, _>>()?,
        draft_head: match drafts {
            false => None,
            true => draft_head(reader, keys.main, hidden, || layer(keys.main, &draft))
                .filter(|_| draft_is_whole(reader, behind)),
        },
    };
    check_tensors(reader.names(), reader.record(), behind).map_err(|problem| reader.error(problem))?;
    let files = file.files().clone();
    files.check()?;
    let draft = weights.draft_head.as_ref().map(|_| &draft);
    Ok(Model { config: shape.with_layers(&main, draft), weights, text, files })
}

/// A file, and which of its tensors were read.
struct GgufSource<'a> {
    file: &'a Gguf,
    record: ReadNames,
}

impl GgufSource<'_> {
    fn noted(&self, name: &str) -> Option<&Tensor> {
        self.file.tensor(name).inspect(|_| self.record.note(name))
    }
}

impl TensorSource for GgufSource<'_> {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn names(&self) -> Vec<&str> {
        self.file.tensors().map(|tensor| tensor.name.as_str()).collect()
    }

    fn record(&self) -> &ReadNames {
        &self.record
    }

    /// With the factor of NVFP4's companion tensor, where there is one.
    fn tensor(&self, name: &str) -> Result<Option<Tensor>, LoadError> {
        let Some(tensor) = self.noted(name) else { return Ok(None) };
        let companion = name.strip_suffix(".weight").and_then(|stem| self.noted(&format!("{stem}.scale")));
        let Some(scale) = companion else { return Ok(Some(tensor.clone())) };
        let count: usize = scale.shape.iter().product();
        if count != 1 && count != tensor.matrices() {
            let want = format!("1 value, or {}, one a matrix", tensor.matrices());
            return Err(Problem::tensor(&scale.name, want, count).in_file(self.path()));
        }
        let mut scaled = tensor.clone();
        scaled.scale = Some(finite_values(scale).map_err(|p| p.in_file(self.path()))?.into());
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

/// The draft head after `main` layers, if it can be read; without a last norm of its own it has the main model's. A file
/// whose main model is whole is served either way.
fn draft_head(
    reader: Reader<'_>,
    main: usize,
    hidden: usize,
    layer: impl FnOnce() -> Result<Vec<Block>, LoadError>,
) -> Option<DraftHeadWeights> {
    let norm = |name: &str| reader.values(&format!("blk.{main}.nextn.{name}.weight"), &[hidden]);
    let read = || {
        let (embed_norm, hidden_norm) = (norm("enorm")?, norm("hnorm")?);
        let fc = reader.need(&format!("blk.{main}.nextn.eh_proj.weight"), &[hidden, 2 * hidden])?;
        let norm = match reader.find(&format!("blk.{main}.nextn.shared_head_norm.weight"), &[hidden])? {
            Some(own) => reader.decoded(&own)?,
            None => reader.values("output_norm.weight", &[hidden])?,
        };
        Ok::<_, LoadError>(DraftHeadWeights { embed_norm, hidden_norm, fc, norm, layer: layer()?, shortlist: None })
    };
    read().inspect_err(|e| tracing::warn!("the draft head is left out: {e}")).ok()
}

//! The metadata keys of one family in a GGUF file: sizes and factors, each checked where it is read.

use super::ModelConfig;
use super::harmless;
use super::reader::{Reader, SIZE_MAX};
use super::unread::check_keys;
use crate::format::gguf::Metadata;
use crate::format::{Gguf, LoadError, Problem, ReadNames, Tensor};

/// Metadata keys of one family, with its prefix.
pub(super) struct Keys<'a> {
    file: &'a Gguf,
    pub(super) meta: &'a Metadata,
    prefix: &'static str,
    /// `block_count`: main layers and those of the draft head.
    pub(super) blocks: usize,
    /// How many main layers there are.
    pub(super) main: usize,
    record: ReadNames,
}

impl<'a> Keys<'a> {
    pub(super) fn new(file: &'a Gguf, prefix: &'static str) -> Result<Self, LoadError> {
        let meta = file.meta();
        let mut keys = Self { file, meta, prefix, blocks: 0, main: 0, record: ReadNames::default() };
        let (blocks, tensors) = (meta.need_u64(&keys.key("block_count"))?, file.tensors().len());
        // Each block has several tensors, so this bounds everything that is later allocated a layer.
        if blocks == 0 || blocks > tensors as u64 {
            return Err(keys.error("block_count", format_args!("1 to {tensors}, the number of tensors"), blocks));
        }
        let own = meta.u64(&keys.key("nextn_predict_layers"))?.unwrap_or(0);
        if own >= blocks {
            return Err(keys.error("nextn_predict_layers", format_args!("less than the block count of {blocks}"), own));
        }
        (keys.blocks, keys.main) = (blocks as usize, (blocks - own) as usize);
        Ok(keys)
    }

    /// Everything about the model that is not about its layers.
    pub(super) fn shape(&self, reader: Reader<'_>) -> Result<ModelConfig, LoadError> {
        let hidden = self.size("embedding_length")?;
        let embed = reader.any("token_embd.weight")?.ok_or_else(|| {
            let want = format!("the embedding, {hidden} values a row");
            self.meta.error(Problem::tensor("token_embd.weight", want, "no such tensor"))
        })?;
        // Other programs believe the key where a file has no tokenizer.
        self.must_be("vocab_size", embed.rows() as u64)?;
        let context = self.meta.need_u64(&self.key("context_length"))?;
        let stem = || self.file.path().file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        Ok(ModelConfig {
            architecture: self.prefix,
            name: self.meta.str("general.name")?.map_or_else(stem, str::to_owned),
            hidden,
            vocab: embed.rows(),
            context: u32::try_from(context).unwrap_or(u32::MAX),
            rms_eps: self.epsilon()?,
            embedding_scale: self.factor("embedding_scale")?.unwrap_or(1.0),
            logit_scale: self.factor("logit_scale")?.map_or(1.0, |divisor| 1.0 / divisor),
            layers: Vec::new(),
            draft: Vec::new(),
        })
    }

    /// That of the norms. Where a file names only that of norms with means, llama.cpp takes it, so files do so.
    fn epsilon(&self) -> Result<f32, LoadError> {
        let key = self.key("attention.layer_norm_rms_epsilon");
        let value = match (self.meta.f64(&key)?, self.meta.f64(&self.key("attention.layer_norm_epsilon"))?) {
            (Some(own), _) | (None, Some(own)) => own,
            (None, None) => self.meta.need_f64(&key)?,
        };
        Ok(value as f32)
    }

    /// A width of experts; where the key is missing, that of a tensor, as llama.cpp does, so files without it exist.
    pub(super) fn width(&self, name: &str, tensor: &str) -> Result<usize, LoadError> {
        match self.file.tensor(tensor) {
            Some(t) if !self.has(name) => Ok(t.cols()),
            _ => self.size(name),
        }
    }

    /// The error of a key's value.
    pub(super) fn error(&self, name: &str, want: impl std::fmt::Display, got: impl std::fmt::Display) -> LoadError {
        self.meta.error(Problem::key(self.full(name), want, got))
    }

    pub(super) fn check_multiple(&self, name: &str, value: usize, of: &str, divisor: usize) -> Result<(), LoadError> {
        if value.is_multiple_of(divisor) {
            return Ok(());
        }
        Err(self.error(name, format_args!("a multiple of {divisor}, the value of {of}"), value))
    }

    /// Whether the file has the key.
    pub(super) fn has(&self, name: &str) -> bool {
        let key = self.full(name);
        self.meta.keys().any(|k| k == key)
    }

    /// Whether the file has a tensor of this whole name.
    pub(super) fn has_tensor(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    /// That either all layers that have a tensor of the one name have one of the other name too, or none.
    pub(super) fn check_all_or_none(&self, of: &str, name: &str) -> Result<(), LoadError> {
        let lacks =
            |t: &&Tensor| t.name.strip_suffix(of).is_some_and(|layer| !self.has_tensor(&format!("{layer}{name}")));
        if !self.file.tensors().any(|t| t.name.ends_with(name)) {
            return Ok(());
        }
        match self.file.tensors_in_order().find(lacks) {
            None => Ok(()),
            Some(t) => {
                let missing = t.name.replace(of, name);
                Err(self.meta.error(Problem::tensor(missing, "one in every such layer or in none", "no such tensor")))
            }
        }
    }

    /// A factor, if there is one: 0 stands for none.
    pub(super) fn factor(&self, name: &str) -> Result<Option<f32>, LoadError> {
        match self.meta.f64(&self.key(name))?.map(|factor| factor as f32) {
            Some(factor) if !factor.is_finite() || factor < 0.0 => {
                Err(self.error(name, "a number of at least 0", factor))
            }
            factor => Ok(factor.filter(|factor| *factor > 0.0)),
        }
    }

    /// A number of each main layer; `None` if the key is not there.
    pub(super) fn per_layer(&self, name: &str) -> Result<Option<Vec<usize>>, LoadError> {
        let Some(all) = self.meta.u64_per_layer(&self.key(name), self.blocks)? else { return Ok(None) };
        if let Some(huge) = all.iter().find(|n| **n > SIZE_MAX) {
            return Err(self.error(name, format_args!("at most {SIZE_MAX}"), huge));
        }
        Ok(Some(all[..self.main].iter().map(|n| *n as usize).collect()))
    }

    /// That a key, if it is there, has this value.
    pub(super) fn must_be(&self, name: &str, want: u64) -> Result<(), LoadError> {
        match self.meta.u64(&self.key(name))? {
            Some(got) if got != want => Err(self.error(name, want, got)),
            _ => Ok(()),
        }
    }

    /// That every key of the family was read or changes nothing.
    pub(super) fn check_read(&self) -> Result<(), LoadError> {
        let prefix = self.full("");
        let own = self.meta.keys().filter(|key| key.starts_with(&prefix) && !self.record.has(key));
        let mut unread: Vec<_> = own.filter_map(|key| Some((key.to_owned(), self.meta.plain(key)?))).collect();
        unread.sort_by(|a, b| a.0.cmp(&b.0));
        check_keys(&unread, &prefix, harmless::GGUF).map_err(|problem| self.meta.error(problem))
    }

    /// A key with the family's prefix, to be asked for: it counts as read from now on.
    pub(super) fn key(&self, name: &str) -> String {
        let key = self.full(name);
        self.record.note(&*key);
        key
    }

    /// Leaves out keys that are about layers of a kind that the family knows and this model does not have.
    pub(super) fn leave_out(&self, names: &[&str]) {
        names.iter().for_each(|name| self.record.note(self.full(name)));
    }

    /// A key with the family's prefix, to be spoken of.
    fn full(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    /// A size: one number.
    pub(super) fn size(&self, name: &str) -> Result<usize, LoadError> {
        self.size_in("main", name, |_| true)
    }

    /// A size that may be written a layer, and must be the same in all main layers that `counts` picks.
    pub(super) fn size_in(&self, which: &str, name: &str, counts: impl Fn(usize) -> bool) -> Result<usize, LoadError> {
        let key = self.key(name);
        let all =
            self.meta.u64_per_layer(&key, self.blocks)?.ok_or_else(|| self.meta.missing(&key, "a whole number"))?;
        let mut picked = all.iter().enumerate().take(self.main).filter(|(layer, _)| counts(*layer)).map(|(_, n)| *n);
        let first = picked.next().unwrap_or(all[0]);
        if let Some(other) = picked.find(|n| *n != first) {
            return Err(self.error(
                name,
                format_args!("the same number in all {which} layers"),
                format_args!("{first} and {other}"),
            ));
        }
        if first == 0 || first > SIZE_MAX {
            return Err(self.error(name, format_args!("1 to {SIZE_MAX}"), first));
        }
        Ok(first as usize)
    }
}

//! The text part of config.json as written: its keys, typed, and those that no architecture here may have.

use super::json::Json;
use crate::format::{LoadError, Problem};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// config.json, the nested `text_config` or the whole. Who knows an architecture asks for its keys.
#[derive(Clone, Debug)]
pub struct HfConfig {
    /// The file, for messages.
    pub file: PathBuf,
    /// Which architecture the keys are of.
    pub model_type: String,
    json: Json,
    /// `tie_word_embeddings`, which may stand beside the text part.
    tied: bool,
}

impl HfConfig {
    /// Reads the file. What no forward pass implements is refused here.
    pub fn read(file: &Path) -> Result<Self, LoadError> {
        let whole = Json::read(file)?;
        let tied = whole.bool("tie_word_embeddings")?;
        let quantization =
            ["quantization_config", "text_config.quantization_config"].into_iter().find(|k| whole.get(k).is_some());
        check_quantization(&whole, quantization)?;
        let json = match whole.get("text_config") {
            Some(part) => Json { file: whole.file.clone(), value: part.clone() },
            None => whole,
        };
        check_supported(&json)?;
        let model_type = json.str("model_type")?.ok_or_else(|| missing(&json, "model_type"))?.to_owned();
        let tied = json.bool("tie_word_embeddings")?.or(tied).unwrap_or(false);
        Ok(Self { file: json.file.clone(), model_type, tied, json })
    }

    /// Whether the head is the embedding.
    pub fn is_tied(&self) -> bool {
        self.tied
    }

    /// Whether there is such a key.
    pub fn has(&self, key: &str) -> bool {
        self.json.get(key).is_some()
    }

    /// A whole number that is not negative. Keys are dotted paths.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, LoadError> {
        self.json.u64(key)
    }

    /// The number at `key`, if there is one.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, LoadError> {
        self.json.f64(key)
    }

    /// The truth value at `key`, if there is one.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, LoadError> {
        self.json.bool(key)
    }

    /// The string at `key`, if there is one.
    pub fn str(&self, key: &str) -> Result<Option<&str>, LoadError> {
        self.json.str(key)
    }

    /// A list of strings.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&str>>, LoadError> {
        let Some(all) = self.json.array(key)? else { return Ok(None) };
        all.iter().map(|v| v.as_str().ok_or_else(|| self.error(key, "strings", v))).collect::<Result<_, _>>().map(Some)
    }

    /// A list of two numbers, `None` for what JSON cannot write: no number, or an infinite one.
    pub fn pair(&self, key: &str) -> Result<Option<[Option<f64>; 2]>, LoadError> {
        match self.json.array(key)?.map(Vec::as_slice) {
            None => Ok(None),
            Some([low, high]) => Ok(Some([low.as_f64(), high.as_f64()])),
            Some(other) => Err(self.error(key, "two numbers", other.len())),
        }
    }

    /// A list of numbers.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, LoadError> {
        let Some(all) = self.json.array(key)? else { return Ok(None) };
        let number = |v: &Value| v.as_f64().ok_or_else(|| self.error(key, "a list of numbers", v));
        all.iter().map(number).collect::<Result<_, _>>().map(Some)
    }

    /// As [`HfConfig::u64`], but the key must be there.
    pub fn need_u64(&self, key: &str) -> Result<u64, LoadError> {
        self.u64(key)?.ok_or_else(|| missing(&self.json, key))
    }

    /// As [`HfConfig::f64`], but the key must be there.
    pub fn need_f64(&self, key: &str) -> Result<f64, LoadError> {
        self.f64(key)?.ok_or_else(|| missing(&self.json, key))
    }

    /// That a key has this value, or is not there.
    pub fn must_be(&self, key: &str, want: impl Into<Value>) -> Result<(), LoadError> {
        let want = want.into();
        match self.json.get(key) {
            Some(got) if *got != want => Err(self.error(key, want, got)),
            _ => Ok(()),
        }
    }

    /// The error of a value that contradicts another.
    pub fn error(&self, key: &str, want: impl std::fmt::Display, got: impl std::fmt::Display) -> LoadError {
        Problem::key(key, want, got).in_file(&self.file)
    }
}

fn missing(json: &Json, key: &str) -> LoadError {
    json.error(key, "a value", "no such key")
}

fn check_quantization(json: &Json, key: Option<&str>) -> Result<(), LoadError> {
    let Some(key) = key else { return Ok(()) };
    let method = format!("{key}.quant_method");
    match json.str(&method)? {
        Some("fp8") => Ok(()),
        other => Err(json.error(&method, "`fp8`", format_args!("`{}`", other.unwrap_or("nothing")))),
    }
}

/// Variations of the architecture that exist as keys, but in no released model.
fn check_supported(json: &Json) -> Result<(), LoadError> {
    for (key, want) in [("norm_topk_prob", true), ("attn_output_gate", true), ("attention_bias", false)] {
        if let Some(got) = json.bool(key)?
            && got != want
        {
            return Err(json.error(key, want, got));
        }
    }
    if let Some(step) = json.u64("decoder_sparse_step")?
        && step != 1
    {
        return Err(json.error("decoder_sparse_step", "1: experts in every layer", step));
    }
    if let Some(layers) = json.array("mlp_only_layers")?
        && !layers.is_empty()
    {
        return Err(json.error("mlp_only_layers", "no layer", format_args!("{} layers", layers.len())));
    }
    if let Some(act) = json.str("hidden_act")?
        && act != "silu"
    {
        return Err(json.error("hidden_act", "`silu`", format_args!("`{act}`")));
    }
    for key in ["rope_parameters.rope_type", "rope_scaling.rope_type", "rope_scaling.type"] {
        if let Some(kind) = json.str(key)?
            && kind != "default"
        {
            return Err(json.error(key, "`default`: scaled rotation is not supported", format_args!("`{kind}`")));
        }
    }
    Ok(())
}

//! The text part of config.json as written: its keys, typed.

use super::json::Json;
use super::quantized::Quantization;
use crate::format::{KeyValue, LoadError, Problem, ReadNames};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Objects of config.json whose members are keys of the model.
const NESTED: [&str; 2] = ["rope_parameters", "rope_scaling"];

/// config.json, the nested `text_config` or the whole. Who knows an architecture asks for its keys; which were asked
/// for is recorded.
#[derive(Debug)]
pub struct HfConfig {
    /// The file, for messages.
    pub file: PathBuf,
    /// Which architecture the keys are of.
    pub model_type: String,
    json: Json,
    /// The whole file: how weights are quantised may stand beside the text part.
    whole: Json,
    /// `tie_word_embeddings`, which may stand beside the text part.
    tied: bool,
    read: ReadNames,
}

impl HfConfig {
    /// Reads a JSON file of a directory whole.
    pub fn read(file: &Path) -> Result<Self, LoadError> {
        let whole = Json::read(file)?;
        let tied = whole.bool("tie_word_embeddings")?;
        let json = match whole.get("text_config") {
            Some(part) => Json { file: whole.file.clone(), value: part.clone() },
            None => whole.clone(),
        };
        let model_type = json.str("model_type")?.ok_or_else(|| missing(&json, "model_type"))?.to_owned();
        // LFM2's first exports call it otherwise.
        let tied = json.bool("tie_embedding")?.or(json.bool("tie_word_embeddings")?).or(tied).unwrap_or(false);
        let read = ReadNames::default();
        ["model_type", "tie_word_embeddings", "tie_embedding", "quantization_config", "compression_config"]
            .into_iter()
            .for_each(|key| read.note(key));
        Ok(Self { file: json.file.clone(), model_type, whole, tied, json, read })
    }

    /// What is said of weights of few bits, here or in the directory.
    pub(super) fn quantization(&self, dir: &Path) -> Result<Quantization, LoadError> {
        Quantization::of(&self.whole, dir)
    }

    /// The keys that nobody has asked for, in the order of their names, each with its value. `null` is no value.
    pub(crate) fn unread(&self) -> Vec<(String, KeyValue)> {
        let Some(members) = self.json.value.as_object() else { return Vec::new() };
        let mut all = Vec::new();
        for (key, value) in members {
            match value.as_object() {
                Some(inner) if NESTED.contains(&key.as_str()) => {
                    all.extend(inner.iter().map(|(name, value)| (format!("{key}.{name}"), value)));
                }
                _ => all.push((key.clone(), value)),
            }
        }
        all.retain(|(key, value)| !value.is_null() && !self.read.has(key));
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.into_iter().map(|(key, value)| (key, plain(value))).collect()
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
        self.asked(key).u64(key)
    }

    /// The number at `key`, if there is one.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, LoadError> {
        self.asked(key).f64(key)
    }

    /// The truth value at `key`, if there is one.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, LoadError> {
        self.asked(key).bool(key)
    }

    /// The string at `key`, if there is one.
    pub fn str(&self, key: &str) -> Result<Option<&str>, LoadError> {
        self.asked(key).str(key)
    }

    /// A list of strings.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&str>>, LoadError> {
        let Some(all) = self.asked(key).array(key)? else { return Ok(None) };
        all.iter().map(|v| v.as_str().ok_or_else(|| self.error(key, "strings", v))).collect::<Result<_, _>>().map(Some)
    }

    /// A list of two numbers, `None` for what JSON cannot write: no number, or an infinite one.
    pub fn pair(&self, key: &str) -> Result<Option<[Option<f64>; 2]>, LoadError> {
        match self.asked(key).array(key)?.map(Vec::as_slice) {
            None => Ok(None),
            Some([low, high]) => Ok(Some([low.as_f64(), high.as_f64()])),
            Some(other) => Err(self.error(key, "two numbers", other.len())),
        }
    }

    /// A list of numbers.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, LoadError> {
        let Some(all) = self.asked(key).array(key)? else { return Ok(None) };
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
        match self.asked(key).get(key) {
            Some(got) if *got != want => Err(self.error(key, want, got)),
            _ => Ok(()),
        }
    }

    /// The keys, of which this one counts as read from now on.
    fn asked(&self, key: &str) -> &Json {
        self.read.note(key);
        &self.json
    }

    /// The error of a value that contradicts another.
    pub fn error(&self, key: &str, want: impl std::fmt::Display, got: impl std::fmt::Display) -> LoadError {
        Problem::key(key, want, got).in_file(&self.file)
    }
}

fn missing(json: &Json, key: &str) -> LoadError {
    json.error(key, "a value", "no such key")
}

fn plain(value: &Value) -> KeyValue {
    match value {
        Value::Number(n) => KeyValue::Number(n.as_f64().unwrap_or(f64::NAN)),
        Value::Bool(flag) => KeyValue::Flag(*flag),
        Value::String(word) => KeyValue::Word(word.clone()),
        Value::Array(all) if all.is_empty() => KeyValue::Empty,
        _ => KeyValue::Other,
    }
}

//! Keys of a JSON file, with errors that name them. `null` means absent.

use crate::files::read_regular;
use crate::format::{LoadError, Problem, TEXT_FILE_BYTES_MAX};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A JSON object of a file.
#[derive(Clone, Debug)]
pub(crate) struct Json {
    /// The file, for messages.
    pub(crate) file: PathBuf,
    pub(super) value: Value,
}

impl Json {
    /// The file; `None` if there is none.
    pub(super) fn read_if_there(file: &Path) -> Result<Option<Self>, LoadError> {
        match read_regular(file, TEXT_FILE_BYTES_MAX) {
            Ok(bytes) => Self::parse(file, &bytes).map(Some),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Problem::from(e).in_file(file)),
        }
    }

    pub(super) fn read(file: &Path) -> Result<Self, LoadError> {
        Self::parse(file, &read_regular(file, TEXT_FILE_BYTES_MAX).map_err(|e| Problem::from(e).in_file(file))?)
    }

    /// A file that has a list, as the value of the key `modules`; `None` if there is none.
    pub(super) fn read_list_if_there(file: &Path) -> Result<Option<Self>, LoadError> {
        let bytes = match read_regular(file, TEXT_FILE_BYTES_MAX) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(|e| Problem::from(e).in_file(file))?,
        };
        let list: Vec<Value> = serde_json::from_slice(&bytes)
            .map_err(|e| Problem::container("content", "a JSON list", e).in_file(file))?;
        Ok(Some(Self { file: file.to_owned(), value: serde_json::json!({"modules": list}) }))
    }

    pub(super) fn parse(file: &Path, bytes: &[u8]) -> Result<Self, LoadError> {
        let value: Value = serde_json::from_slice(bytes)
            .or_else(|e| serde_json::from_slice(&without_constants(bytes)).map_err(|_| e))
            .map_err(|e| Problem::container("content", "JSON", e).in_file(file))?;
        if !value.is_object() {
            return Err(Problem::container("content", "a JSON object", kind(&value)).in_file(file));
        }
        Ok(Self { file: file.to_owned(), value })
    }

    /// All keys with their values.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.value.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
    }

    /// The value at a dotted path.
    pub(crate) fn get(&self, path: &str) -> Option<&Value> {
        path.split('.').try_fold(&self.value, |v, key| v.get(key)).filter(|v| !v.is_null())
    }

    pub(crate) fn u64(&self, path: &str) -> Result<Option<u64>, LoadError> {
        self.typed(path, "a whole number of at least 0", Value::as_u64)
    }

    pub(crate) fn f64(&self, path: &str) -> Result<Option<f64>, LoadError> {
        self.typed(path, "a number", Value::as_f64)
    }

    pub(crate) fn bool(&self, path: &str) -> Result<Option<bool>, LoadError> {
        self.typed(path, "a bool", Value::as_bool)
    }

    pub(super) fn str(&self, path: &str) -> Result<Option<&str>, LoadError> {
        self.typed(path, "a string", Value::as_str)
    }

    pub(super) fn array(&self, path: &str) -> Result<Option<&Vec<Value>>, LoadError> {
        self.typed(path, "an array", Value::as_array)
    }

    /// One id or several.
    pub(super) fn ids(&self, path: &str) -> Result<Vec<u32>, LoadError> {
        let id = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
        let read = |v: &Value| match v {
            Value::Array(all) => all.iter().map(id).collect(),
            one => id(one).map(|id| vec![id]),
        };
        match self.get(path) {
            None => Ok(Vec::new()),
            Some(v) => read(v).ok_or_else(|| self.error(path, "a token id or an array of them", kind(v))),
        }
    }

    pub(crate) fn error(&self, path: &str, want: impl std::fmt::Display, got: impl std::fmt::Display) -> LoadError {
        Problem::key(path, want, got).in_file(&self.file)
    }

    fn typed<'a, T>(
        &'a self,
        path: &str,
        want: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, LoadError> {
        self.get(path).map(|v| read(v).ok_or_else(|| self.error(path, want, kind(v)))).transpose()
    }
}

/// Python writes infinities and NaN by name, which is no JSON: they become `null`.
fn without_constants(bytes: &[u8]) -> Vec<u8> {
    const NAMES: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let (mut out, mut at, mut quoted) = (Vec::with_capacity(bytes.len()), 0, false);
    while at < bytes.len() {
        let constant = NAMES.iter().find(|name| !quoted && bytes[at..].starts_with(name));
        let step = match (bytes[at], constant) {
            (_, Some(name)) => {
                out.extend_from_slice(b"null");
                at += name.len();
                continue;
            }
            // What is escaped ends no string.
            (b'\\', _) if quoted => 2.min(bytes.len() - at),
            _ => 1,
        };
        quoted ^= bytes[at] == b'"';
        out.extend_from_slice(&bytes[at..at + step]);
        at += step;
    }
    out
}

/// A value, short enough for a message.
fn kind(v: &Value) -> String {
    match v {
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(_) => "a string".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinities_outside_of_strings_are_taken_for_null() {
        let text = br#"{"limit": [0.0, Infinity], "low": -Infinity, "s": "a \"NaN\" Infinity"}"#;
        let json = Json::parse(Path::new("config.json"), text).unwrap();
        assert_eq!(json.value, serde_json::json!({"limit": [0.0, null], "low": null, "s": "a \"NaN\" Infinity"}));
        assert!(Json::parse(Path::new("config.json"), br#"{"a": Infinite}"#).is_err());
    }
}

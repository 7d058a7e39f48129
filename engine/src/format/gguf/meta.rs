//! Typed access to the metadata. A missing key is `None`; a value of another type or range is an error that names the
//! key.

use super::parse::{Value, ValueType, scalar, scalar_bytes};
use crate::format::mapped::MappedFile;
use crate::format::{KeyValue, LoadError, Problem};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// The key-value pairs of a file.
#[derive(Clone)]
pub struct Metadata {
    entries: HashMap<String, Value>,
    encoded: Vec<(String, Range<usize>)>,
    file: Arc<MappedFile>,
    path: PathBuf,
}

impl Metadata {
    pub(super) fn new(
        entries: HashMap<String, Value>,
        encoded: Vec<(String, Range<usize>)>,
        file: Arc<MappedFile>,
        path: PathBuf,
    ) -> Self {
        Self { entries, encoded, file, path }
    }

    /// All keys in the file's order, each with its type and value as they stand there: what another file passes on.
    pub fn encoded(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.encoded.iter().map(|(key, range)| (key.as_str(), &self.file[range.clone()]))
    }

    /// All keys, in no particular order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The value of a key without regard to its type, if the key is there.
    pub(crate) fn plain(&self, key: &str) -> Option<KeyValue> {
        Some(match self.entries.get(key)? {
            Value::Unsigned(n) => KeyValue::Number(*n as f64),
            Value::Signed(n) => KeyValue::Number(*n as f64),
            Value::Float(x) => KeyValue::Number(*x),
            Value::Bool(flag) => KeyValue::Flag(*flag),
            Value::Str(range) => KeyValue::Word(String::from_utf8_lossy(&self.file[range.clone()]).into_owned()),
            Value::Array { len: 0, .. } => KeyValue::Empty,
            Value::Array { .. } => KeyValue::Other,
        })
    }

    /// A whole number that is not negative.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, LoadError> {
        self.get(key, "a whole number of at least 0", as_u64)
    }

    /// The number that the key has, if it is there.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, LoadError> {
        self.get(key, "a number", as_f64)
    }

    /// The bool that the key has, if it is there.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, LoadError> {
        self.get(key, "a bool", |v| if let Value::Bool(b) = v { Some(*b) } else { None })
    }

    /// The string that the key has, if it is there.
    pub fn str(&self, key: &str) -> Result<Option<&str>, LoadError> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(Value::Str(range)) => self.utf8(key, range.clone()).map(Some),
            Some(v) => Err(self.wrong(key, "a string", v)),
        }
    }

    /// As [`Metadata::u64`], but the key must be there.
    pub fn need_u64(&self, key: &str) -> Result<u64, LoadError> {
        self.u64(key)?.ok_or_else(|| self.missing(key, "a whole number"))
    }

    /// As [`Metadata::f64`], but the key must be there.
    pub fn need_f64(&self, key: &str) -> Result<f64, LoadError> {
        self.f64(key)?.ok_or_else(|| self.missing(key, "a number"))
    }

    /// As [`Metadata::str`], but the key must be there.
    pub fn need_str(&self, key: &str) -> Result<&str, LoadError> {
        self.str(key)?.ok_or_else(|| self.missing(key, "a string"))
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<String>>, LoadError> {
        let Some((of, len, data)) = self.array(key, "an array of strings")? else { return Ok(None) };
        if of != ValueType::Str && len > 0 {
            return Err(self.error(Problem::key(key, "an array of strings", format_args!("an array of {of}"))));
        }
        let mut at = data.start;
        let mut out = Vec::with_capacity(len);
        for _ in 0..len {
            // The parser walked these lengths and they stayed within `data`; by now the file may be another.
            let n = self.file.get(at..).and_then(<[u8]>::first_chunk).map(|n| u64::from_le_bytes(*n));
            let end = n
                .and_then(|n| usize::try_from(n).ok())
                .and_then(|n| (at + 8).checked_add(n))
                .filter(|end| *end <= data.end);
            let end = end.ok_or_else(|| self.error(Problem::Changed))?;
            out.push(self.utf8(key, at + 8..end)?.to_owned());
            at = end;
        }
        Ok(Some(out))
    }

    /// An array of whole numbers of any width (an array of bools gives 0 and 1).
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>, LoadError> {
        let Some((of, len, data)) = self.array(key, "an array of whole numbers")? else { return Ok(None) };
        let size = self.scalar_size(key, of, "an array of whole numbers")?;
        let items = self.file[data].chunks_exact(size).take(len);
        let read = |b| match scalar(of, b, key) {
            Ok(Value::Unsigned(n)) => i64::try_from(n).ok(),
            Ok(Value::Signed(n)) => Some(n),
            Ok(Value::Bool(b)) => Some(b.into()),
            _ => None,
        };
        let all: Option<Vec<i64>> = items.map(read).collect();
        all.map(Some)
            .ok_or_else(|| self.error(Problem::key(key, "whole numbers below 2^63", format_args!("an array of {of}"))))
    }

    /// A whole number for each of `layers` layers, from a single number or an array of one entry a layer. `None` if the
    /// key is missing.
    pub fn u64_per_layer(&self, key: &str, layers: usize) -> Result<Option<Vec<u64>>, LoadError> {
        if !matches!(self.entries.get(key), Some(Value::Array { .. })) {
            return Ok(self.u64(key)?.map(|n| vec![n; layers]));
        }
        let all = self.integers(key)?.unwrap_or_default();
        if all.len() != layers {
            return Err(self.error(Problem::key(key, format_args!("one number, or {layers}, one a layer"), all.len())));
        }
        let all: Option<Vec<u64>> = all.into_iter().map(|n| u64::try_from(n).ok()).collect();
        all.map(Some).ok_or_else(|| self.error(Problem::key(key, "numbers of at least 0", "a negative one")))
    }

    /// The error of a key that is not there.
    pub fn missing(&self, key: &str, want: &str) -> LoadError {
        self.error(Problem::key(key, want, "no such key"))
    }

    /// `problem` in this file.
    pub fn error(&self, problem: Problem) -> LoadError {
        problem.in_file(&self.path)
    }

    fn get<T>(&self, key: &str, want: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Option<T>, LoadError> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(v) => read(v).map(Some).ok_or_else(|| self.wrong(key, want, v)),
        }
    }

    fn array(&self, key: &str, want: &str) -> Result<Option<(ValueType, usize, Range<usize>)>, LoadError> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(Value::Array { of, len, data }) => Ok(Some((*of, *len, data.clone()))),
            Some(v) => Err(self.wrong(key, want, v)),
        }
    }

    fn scalar_size(&self, key: &str, of: ValueType, want: &str) -> Result<usize, LoadError> {
        scalar_bytes(of).ok_or_else(|| self.error(Problem::key(key, want, format_args!("an array of {of}"))))
    }

    fn utf8(&self, key: &str, range: Range<usize>) -> Result<&str, LoadError> {
        std::str::from_utf8(&self.file[range]).map_err(|e| self.error(Problem::key(key, "UTF-8", e)))
    }

    fn wrong(&self, key: &str, want: &str, got: &Value) -> LoadError {
        let got = match got {
            Value::Unsigned(n) => n.to_string(),
            Value::Signed(n) => n.to_string(),
            Value::Float(x) => x.to_string(),
            Value::Bool(b) => b.to_string(),
            Value::Str(_) => "a string".to_owned(),
            Value::Array { of, len, .. } => format!("an array of {len} {of}"),
        };
        self.error(Problem::key(key, want, got))
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata").field("path", &self.path).field("keys", &self.entries.len()).finish()
    }
}

fn as_u64(v: &Value) -> Option<u64> {
    match v {
        Value::Unsigned(n) => Some(*n),
        Value::Signed(n) => u64::try_from(*n).ok(),
        _ => None,
    }
}

fn as_f64(v: &Value) -> Option<f64> {
    match v {
        Value::Float(x) => Some(*x),
        Value::Unsigned(n) => Some(*n as f64),
        Value::Signed(n) => Some(*n as f64),
        _ => None,
    }
}

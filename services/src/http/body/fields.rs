//! Takes a JSON object apart field by field, so that every error names the field, what was wanted and what came.

use crate::http::wire::error::ApiError;
use crate::http::wire::json::{self, JsonError};
use crate::limits::HINT_BYTES_MAX;
use crate::metrics;
use crate::text::call_arguments::{self, ArgumentsError};
use crate::text::template::written;
use serde_json::{Map, Value as Json};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// What a body with tools, with calls of them or with a schema contains one of. No other has numbers whose digits
/// count.
const MAY_HAVE_NUMBERS: [&str; 5] = ["\"tool", "schema\"", "\"format\"", "\"structured_outputs\"", "\"guided_json\""];
/// The fields in which numbers keep their digits: those that a template shows, and those that hold a schema.
const WITH_NUMBERS: [&str; 9] = [
    "messages",
    "tools",
    "response_format",
    "structured_outputs",
    "guided_json",
    "json_schema",
    "format",
    "text",
    "output_config",
];
/// The byte order mark, U+FEFF, in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn code_of(error: &JsonError) -> &'static str {
    match error {
        JsonError::Invalid(_) => "invalid_json",
        JsonError::TooLarge { .. } => "json_too_large",
    }
}

/// An object whose fields are taken one by one. What nobody took is refused by [`Fields::finish`], or counted and let
/// go by [`Fields::ignore_rest`]. Null is absent everywhere.
pub(in crate::http) struct Fields {
    /// Path of the object, empty for the body.
    path: String,
    map: Map<String, Json>,
    /// Names that were asked for, to suggest one for a name that nobody knows.
    known: Vec<&'static str>,
}

impl Fields {
    /// The body of a request.
    pub(in crate::http) fn of_body(body: &[u8]) -> Result<Self, ApiError> {
        // Some programs begin every text with a byte order mark.
        let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
        let value = read(body).map_err(|e| ApiError::invalid_body(e.to_string()).with_code(code_of(&e)))?;
        match value {
            Json::Object(map) => Ok(Self::new(String::new(), map)),
            other => Err(ApiError::invalid_body(format!("the body must be a JSON object, got {}", describe(&other)))),
        }
    }

    /// An object inside of the body.
    pub(in crate::http) fn nested(path: String, value: Json) -> Result<Self, ApiError> {
        match value {
            Json::Object(map) => Ok(Self::new(path, map)),
            other => Err(wrong_type(&path, "an object", &other)),
        }
    }

    /// A body in the words of chat, made of one in another dialect's.
    pub(in crate::http) fn in_chat_words(map: Map<String, Json>) -> Self {
        Self::new(String::new(), map)
    }

    /// Fields that are called the same in chat, as they stand.
    pub(in crate::http) fn same(&mut self, names: &[&'static str]) -> Map<String, Json> {
        names.iter().filter_map(|name| Some(((*name).to_owned(), self.any(name)?))).collect()
    }

    /// Copies of fields that are called the same in chat; the fields themselves stay.
    pub(in crate::http) fn copied(&self, names: &[&'static str]) -> Map<String, Json> {
        names.iter().filter_map(|name| Some(((*name).to_owned(), self.map.get(*name)?.clone()))).collect()
    }

    fn new(path: String, mut map: Map<String, Json>) -> Self {
        map.retain(|_, value| !value.is_null());
        Self { path, map, known: Vec::new() }
    }

    /// Full path of a field.
    pub(in crate::http) fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// A field as it stands.
    pub(in crate::http) fn any(&mut self, name: &'static str) -> Option<Json> {
        self.known.push(name);
        self.map.shift_remove(name)
    }

    /// A value that stays where it is.
    pub(in crate::http) fn peek(&self, name: &str) -> Option<&Json> {
        self.map.get(name)
    }

    /// A value that may be changed in its place.
    pub(in crate::http) fn peek_mut(&mut self, name: &str) -> Option<&mut Json> {
        self.map.get_mut(name)
    }

    /// Puts a value in the place of a field.
    pub(in crate::http) fn set(&mut self, name: &'static str, value: Json) {
        self.map.insert(name.to_owned(), value);
    }

    /// Puts a value where a request says nothing.
    pub(in crate::http) fn set_unless_given(&mut self, name: &'static str, value: Json) {
        if self.map.get(name).is_none_or(Json::is_null) {
            self.set(name, value);
        }
    }

    /// Whether a field is there. Does not take it.
    pub(in crate::http) fn has(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    /// Whether a field is this number. Does not take it.
    pub(in crate::http) fn is(&self, name: &str, number: i64) -> bool {
        self.map.get(name).and_then(whole) == Some(number)
    }

    pub(in crate::http) fn bool(&mut self, name: &'static str) -> Result<Option<bool>, ApiError> {
        self.typed(name, "a boolean", |v| v.as_bool().ok_or(v))
    }

    pub(in crate::http) fn string(&mut self, name: &'static str) -> Result<Option<String>, ApiError> {
        self.typed(name, "a string", |v| match v {
            Json::String(s) => Ok(s),
            other => Err(other),
        })
    }

    /// One of some words, as what it stands for.
    pub(in crate::http) fn choice<T: Copy, const N: usize>(
        &mut self,
        name: &'static str,
        known: [(&str, T); N],
    ) -> Result<Option<T>, ApiError> {
        let path = self.path(name);
        let Some(got) = self.string(name)? else { return Ok(None) };
        let value = known.iter().find(|(word, _)| *word == got).map(|(_, value)| *value);
        value.map(Some).ok_or_else(|| {
            let shown: String = got.chars().take(40).collect();
            let words: Vec<_> = known.iter().map(|(word, _)| format!("{word:?}")).collect();
            let words =
                words.iter().rev().skip(1).rev().cloned().collect::<Vec<_>>().join(", ") + " or " + &words[N - 1];
            ApiError::invalid(&path, format!("`{path}` must be {words}, got {shown:?}"))
        })
    }

    pub(in crate::http) fn list(&mut self, name: &'static str) -> Result<Option<Vec<Json>>, ApiError> {
        self.typed(name, "an array", |v| match v {
            Json::Array(items) => Ok(items),
            other => Err(other),
        })
    }

    pub(in crate::http) fn object(&mut self, name: &'static str) -> Result<Option<Map<String, Json>>, ApiError> {
        self.typed(name, "an object", |v| match v {
            Json::Object(map) => Ok(map),
            other => Err(other),
        })
    }

    /// An object whose fields are taken one by one.
    pub(in crate::http) fn fields(&mut self, name: &'static str) -> Result<Option<Fields>, ApiError> {
        let path = self.path(name);
        self.any(name).map(|value| Fields::nested(path, value)).transpose()
    }

    /// A whole number within bounds.
    pub(in crate::http) fn integer(
        &mut self,
        name: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        let path = self.path(name);
        self.any(name).map(|value| integer(&path, &value, range)).transpose()
    }

    /// A number within bounds.
    pub(in crate::http) fn number(
        &mut self,
        name: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ApiError> {
        let path = self.path(name);
        self.any(name).map(|value| number(&path, &value, range)).transpose()
    }

    /// A field that means something elsewhere and nothing here: refused when it is there.
    pub(in crate::http) fn refuse(&mut self, name: &'static str, why: &str) -> Result<(), ApiError> {
        let path = self.path(name);
        match self.any(name) {
            Some(_) => Err(ApiError::unsupported(&path, format!("`{path}` {why}"))),
            None => Ok(()),
        }
    }

    /// A switch whose one value is what happens in any case; the other one is refused for this reason.
    pub(in crate::http) fn fixed(&mut self, name: &'static str, value: bool, why: &str) -> Result<(), ApiError> {
        let path = self.path(name);
        match self.bool(name)? {
            Some(got) if got != value => Err(ApiError::unsupported(&path, format!("`{path}` must be {value}: {why}"))),
            _ => Ok(()),
        }
    }

    /// What is left has no effect. Clients put fields of other services into the parts of a request that they keep and
    /// send again, so refusing them would end conversations; they are counted by name instead.
    pub(in crate::http) fn ignore_rest(self) {
        self.remember();
        if self.map.is_empty() {
            return;
        }
        let place = without_numbers(&self.path);
        self.map.keys().for_each(|name| metrics::count_ignored(&place, name));
    }

    /// Nothing may be left.
    pub(in crate::http) fn finish(self) -> Result<(), ApiError> {
        self.remember();
        let Some(name) = self.map.keys().next() else { return Ok(()) };
        let path = self.path(name);
        let close = |known: &&&str| (strsim::jaro_winkler(known, name) * 1e3) as u32;
        // A long name is no slip of the pen, and comparing it would take milliseconds that others wait for.
        let known = if name.len() <= HINT_BYTES_MAX { &self.known[..] } else { &[] };
        let near = known.iter().max_by_key(close).filter(|known| strsim::jaro_winkler(known, name) > 0.85);
        let hint = near.map_or_else(String::new, |known| format!("; did you mean `{}`?", self.path(known)));
        Err(ApiError::invalid(&path, format!("unknown field `{path}`{hint}")).with_code("unknown_parameter"))
    }

    /// For tests that compare what is described with what is taken.
    fn remember(&self) {
        #[cfg(test)]
        if self.path.is_empty() {
            KNOWN.with_borrow_mut(|known| known.extend(&self.known));
        }
    }

    fn typed<T>(
        &mut self,
        name: &'static str,
        wanted: &str,
        read: impl Fn(Json) -> Result<T, Json>,
    ) -> Result<Option<T>, ApiError> {
        let path = self.path(name);
        self.any(name).map(|value| read(value).map_err(|other| wrong_type(&path, wanted, &other))).transpose()
    }
}

#[cfg(test)]
thread_local! {
    static KNOWN: std::cell::RefCell<Vec<&'static str>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// The fields that bodies were asked for on this thread since the last time.
#[cfg(test)]
pub(in crate::http) fn known_names() -> Vec<&'static str> {
    KNOWN.take()
}

/// A body's JSON, with all digits of the numbers that templates show or that answers are bound to.
fn read(body: &[u8]) -> Result<Json, JsonError> {
    let text = std::str::from_utf8(body).ok().filter(|text| MAY_HAVE_NUMBERS.iter().any(|key| text.contains(key)));
    match text {
        // An error is told of the text as it came.
        Some(text) => json::parse_with_numbers(text, &WITH_NUMBERS).or_else(|_| json::parse(body)),
        None => json::parse(body),
    }
}

/// A path without the numbers of entries: `messages.content` for `messages[2].content[0]`.
fn without_numbers(path: &str) -> String {
    path.split('[')
        .enumerate()
        .map(|(i, part)| if i == 0 { part } else { part.split_once(']').map_or("", |(_, rest)| rest) })
        .collect()
}

/// A whole number within bounds.
pub(in crate::http) fn integer(path: &str, value: &Json, range: RangeInclusive<i64>) -> Result<i64, ApiError> {
    match (whole(value), value) {
        (Some(n), _) if range.contains(&n) => Ok(n),
        (_, Json::Number(n)) if n.as_f64().is_some_and(|x| x.fract() == 0.0) => {
            Err(out_of_range(path, range.start(), range.end(), n))
        }
        (_, other) => Err(wrong_type(path, "an integer", other)),
    }
}

/// A whole number, however it is written: to JSON Schema `678.0` and `6.78e2` are integers as `678` is.
pub(in crate::http) fn whole(value: &Json) -> Option<i64> {
    // Beyond that not every whole number is a float, and one that was written may have become its neighbour.
    const EXACT: f64 = (1u64 << f64::MANTISSA_DIGITS) as f64;
    let float = || value.as_f64().filter(|x| x.fract() == 0.0 && x.abs() <= EXACT && !value.is_u64());
    value.as_i64().or_else(|| float().map(|x| x as i64))
}

/// A number within bounds.
pub(in crate::http) fn number(path: &str, value: &Json, range: RangeInclusive<f64>) -> Result<f64, ApiError> {
    match value.as_f64() {
        Some(x) if range.contains(&x) => Ok(x),
        Some(x) => Err(out_of_range(path, range.start(), range.end(), x)),
        None => Err(wrong_type(path, "a number", value)),
    }
}

fn out_of_range(path: &str, min: impl Display, max: impl Display, got: impl Display) -> ApiError {
    ApiError::invalid(path, format!("`{path}` must lie between {min} and {max}, got {got}")).with_code("out_of_range")
}

/// A field of another type than was wanted.
pub(in crate::http) fn wrong_type(path: &str, wanted: &str, got: &Json) -> ApiError {
    ApiError::invalid(path, format!("`{path}` must be {wanted}, got {}", describe(got))).with_code("invalid_type")
}

/// The arguments of an earlier call, which came as a text.
pub(in crate::http) fn call_arguments(path: &str, text: &str) -> Result<Json, ApiError> {
    call_arguments::read(text).map_err(|error| match error {
        ArgumentsError::NotAnObject(other) => wrong_type(path, "a JSON object in a string", &written::plain(&other)),
        ArgumentsError::ReservedName(message) => ApiError::invalid(path, format!("`{path}`: {message}")),
    })
}

/// A field that has to be there.
pub(in crate::http) fn missing(path: &str, wanted: &str) -> ApiError {
    ApiError::invalid(path, format!("`{path}` is missing: it must be {wanted}")).with_code("missing_field")
}

/// A value for an error message: never long.
fn describe(value: &Json) -> String {
    match value {
        Json::Null => "null".into(),
        Json::Bool(b) => b.to_string(),
        Json::Number(n) => n.to_string(),
        Json::String(s) if s.chars().count() <= 40 => format!("the string {s:?}"),
        Json::String(s) => format!("a string of {} characters", s.chars().count()),
        Json::Array(_) => "an array".into(),
        Json::Object(_) => "an object".into(),
    }
}

/// Bounds the length of a list or map.
pub(in crate::http) fn at_most(path: &str, got: usize, max: usize) -> Result<(), ApiError> {
    if got <= max {
        return Ok(());
    }
    Err(ApiError::invalid(path, format!("`{path}` has {got} entries, at most {max} are taken"))
        .with_code("too_many_entries"))
}

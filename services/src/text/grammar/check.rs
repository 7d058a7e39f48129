//! What a form may be at most, and why one is refused.

use super::AnswerForm;
use crate::limits;
use serde_json::{Map, Value as Json};
use std::collections::HashMap;

/// Why there is no grammar. Reads on after the name of the field: "`FIELD`: nothing matches it".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FormError {
    /// What is wrong, with limit and value, or with the keyword that is not supported.
    pub message: String,
    /// Larger than a limit, or too complex within it.
    pub too_large: bool,
}

impl FormError {
    pub(super) fn unusable(message: String) -> Self {
        Self { message, too_large: false }
    }

    fn too_large(what: &str, got: usize, max: usize) -> Self {
        Self { message: format!("it has {got} {what}, at most {max} are taken"), too_large: true }
    }

    /// What the library says, without line breaks and never long.
    pub(super) fn of_library(error: &(impl std::fmt::Display + ?Sized)) -> Self {
        let text = error.to_string();
        let line: Vec<&str> = text.split_whitespace().collect();
        let mut message: String = line.join(" ").chars().take(limits::GRAMMAR_ERROR_CHARS_MAX).collect();
        let too_large = ["too big", "too large", "too complex", "limit", "fuel", "items", "cancelled"]
            .iter()
            .any(|word| message.contains(word));
        if too_large {
            message = format!("it is too complex: {message}");
        }
        Self { message, too_large }
    }
}

/// Refuses what is larger than anybody needs, before anything looks at it.
pub(super) fn within_limits(form: &AnswerForm) -> Result<(), FormError> {
    match form {
        AnswerForm::Json { schema, .. } => schema_within_limits(schema),
        AnswerForm::Regex(regex) => at_most("bytes", regex.len(), limits::GRAMMAR_REGEX_BYTES_MAX),
        AnswerForm::Lark(lark) => lark_within_limits(lark),
        AnswerForm::Gbnf(text) => at_most("bytes", text.len(), limits::LARK_BYTES_MAX),
        AnswerForm::Choice(texts) => {
            at_most("texts", texts.len(), limits::GRAMMAR_CHOICES_MAX)?;
            at_most("bytes", texts.iter().map(String::len).sum(), limits::GRAMMAR_BYTES_MAX)
        }
    }
}

/// The same of a schema.
pub(super) fn schema_within_limits(schema: &Json) -> Result<(), FormError> {
    let mut size = SchemaSize::default();
    size.add(schema, 0);
    at_most("levels", size.depth, limits::GRAMMAR_DEPTH_MAX)?;
    at_most("values", size.values, limits::GRAMMAR_VALUES_MAX)?;
    at_most("bytes of text", size.bytes, limits::GRAMMAR_BYTES_MAX)?;
    at_most("bytes in one `pattern`", size.pattern, limits::GRAMMAR_REGEX_BYTES_MAX)?;
    at_most("`patternProperties` in one object", size.name_patterns, limits::GRAMMAR_NAME_PATTERNS_MAX)?;
    at_most("names times `patternProperties`", size.name_comparisons, limits::GRAMMAR_NAME_COMPARISONS_MAX)?;
    let conditions = Conditions { root: schema, known: HashMap::new() }.of(schema);
    at_most("conditions (`pattern`, `multipleOf`) on one value", conditions, limits::GRAMMAR_CONDITIONS_MAX)?;
    match size.multiple {
        Some(multiple) => Err(FormError {
            message: format!("its `multipleOf` {multiple} must lie between 1e-6 and {}", limits::GRAMMAR_MULTIPLE_MAX),
            too_large: true,
        }),
        None => Ok(()),
    }
}

/// Refuses what would take longer to compile than its length says. Schemas inside of grammars would go unseen.
fn lark_within_limits(lark: &str) -> Result<(), FormError> {
    at_most("bytes", lark.len(), limits::LARK_BYTES_MAX)?;
    if let Some(name) = ["%json", "%lark", "%llguidance"].into_iter().find(|name| lark.contains(name)) {
        return Err(FormError::unusable(format!("`{name}` is not supported")));
    }
    let both = lark.lines().map(conjunctions).sum();
    at_most("`&`", both, limits::GRAMMAR_CONDITIONS_MAX)
}

/// The `&` of a line that stand outside of texts and expressions.
fn conjunctions(line: &str) -> usize {
    let (mut count, mut inside, mut escaped) = (0, None, false);
    for c in line.chars() {
        match (inside, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(end), c) if c == end => inside = None,
            (None, '"' | '/') => inside = Some(c),
            (None, '&') => count += 1,
            _ => {}
        }
    }
    count
}

fn at_most(what: &str, got: usize, max: usize) -> Result<(), FormError> {
    if got > max { Err(FormError::too_large(what, got, max)) } else { Ok(()) }
}

#[derive(Default)]
struct SchemaSize {
    values: usize,
    bytes: usize,
    depth: usize,
    /// Bytes of the longest expression.
    pattern: usize,
    /// Expressions for names in one object, at most.
    name_patterns: usize,
    /// These times the names beside them.
    name_comparisons: usize,
    /// A `multipleOf` that is out of bounds.
    multiple: Option<f64>,
}

impl SchemaSize {
    /// Bodies are nested no deeper than their parser goes, so this ends.
    fn add(&mut self, value: &Json, depth: usize) {
        self.values += 1;
        self.depth = self.depth.max(depth);
        match value {
            Json::String(text) => self.bytes += text.len(),
            Json::Array(items) => items.iter().for_each(|item| self.add(item, depth + 1)),
            Json::Object(map) => {
                let members = |key: &str| map.get(key).and_then(Json::as_object).map_or(0, Map::len);
                let names = members("patternProperties");
                self.name_patterns = self.name_patterns.max(names);
                self.name_comparisons = self.name_comparisons.max(names * members("properties"));
                let most = f64::from(limits::GRAMMAR_MULTIPLE_MAX);
                let multiple = map.get("multipleOf").and_then(Json::as_f64);
                self.multiple = self.multiple.or(multiple.filter(|of| !(1.0 / most..=most).contains(&of.abs())));
                for (key, value) in map {
                    self.bytes += key.len();
                    if let (true, Some(text)) = (key == "pattern", value.as_str()) {
                        self.pattern = self.pattern.max(text.len());
                    }
                    self.add(value, depth + 1);
                }
            }
            _ => {}
        }
    }
}

/// How many conditions may have to hold at once for one value: those of a schema and of all that it takes together, but
/// of its parts and alternatives only the most.
struct Conditions<'a> {
    root: &'a Json,
    /// Of what is referred to; 0 while it is looked at, since what refers to itself adds nothing.
    known: HashMap<&'a str, usize>,
}

impl<'a> Conditions<'a> {
    fn of(&mut self, schema: &'a Json) -> usize {
        let Json::Object(map) = schema else { return 0 };
        let own = ["pattern", "multipleOf"].iter().filter(|key| map.contains_key(**key)).count();
        let target = map.get("$ref").and_then(Json::as_str).map_or(0, |target| self.of_reference(target));
        let together: usize = list(map, "allOf").map(|schema| self.of(schema)).sum();
        let alternatives = ["anyOf", "oneOf", "prefixItems"].into_iter().flat_map(|key| list(map, key));
        let members = ["properties", "patternProperties"].into_iter().filter_map(|key| map.get(key)?.as_object());
        let members = members.flat_map(Map::values);
        let single = ["items", "additionalProperties", "additionalItems"].into_iter().filter_map(|key| map.get(key));
        let parts: Vec<&'a Json> = alternatives.chain(members).chain(single).collect();
        own + target + together + parts.into_iter().map(|part| self.of(part)).max().unwrap_or(0)
    }

    fn of_reference(&mut self, target: &'a str) -> usize {
        if let Some(known) = self.known.get(target) {
            return *known;
        }
        self.known.insert(target, 0);
        let found = target.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        let conditions = found.map_or(0, |schema| self.of(schema));
        self.known.insert(target, conditions);
        conditions
    }
}

fn list<'a>(map: &'a Map<String, Json>, key: &str) -> impl Iterator<Item = &'a Json> + use<'a> {
    map.get(key).and_then(Json::as_array).into_iter().flatten()
}

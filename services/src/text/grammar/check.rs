//! What a form may be at most, and why one is refused.

use super::{AnswerForm, NOTHING, lark};
use crate::limits;
use serde_json::{Map, Value as Json};
use std::collections::{HashMap, HashSet};

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
        if let Some(panic) = text.strip_prefix("panic: ") {
            tracing::error!(
                panic = panic.lines().next().unwrap_or_default(),
                "the library that makes grammars panicked"
            );
            return Self::unusable("the library that makes grammars fails on it".into());
        }
        // What the library calls a rule that leads to no text at all.
        if text.contains("NoExtensionBias") {
            return Self::unusable(NOTHING.into());
        }
        let line: Vec<&str> = text.split_whitespace().collect();
        let line = line.join(" ").replace("Unimplemented keys:", "these keywords cannot be followed exactly:");
        let mut message: String = line.chars().take(limits::GRAMMAR_ERROR_CHARS_MAX).collect();
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
        // A schema is looked at once its references are decoded.
        AnswerForm::Json { .. } => Ok(()),
        AnswerForm::Regex(regex) => {
            at_most("bytes", regex.len(), limits::GRAMMAR_REGEX_BYTES_MAX)?;
            at_most("optional parts", lark::optional_parts(regex), limits::GRAMMAR_OPTIONAL_MAX)
        }
        AnswerForm::Lark(lark) => lark_within_limits(lark),
        AnswerForm::Gbnf(text) => at_most("bytes", text.len(), limits::LARK_BYTES_MAX),
        AnswerForm::Choice(texts) => {
            at_most("texts", texts.len(), limits::GRAMMAR_CHOICES_MAX)?;
            at_most("bytes", texts.iter().map(String::len).sum(), limits::GRAMMAR_BYTES_MAX)
        }
    }
}

/// Refuses a schema that is larger than anybody needs.
pub(super) fn schema_within_limits(schema: &Json) -> Result<(), FormError> {
    let mut size = SchemaSize::default();
    size.add(schema, 0);
    at_most("levels", size.depth, limits::GRAMMAR_DEPTH_MAX)?;
    at_most("values", size.values, limits::GRAMMAR_VALUES_MAX)?;
    let levels = levels_through_references(schema, &size.references);
    at_most("levels together with all that it refers to", levels, limits::GRAMMAR_LEVELS_MAX)?;
    at_most("bytes of text", size.bytes, limits::GRAMMAR_BYTES_MAX)?;
    at_most("bytes in one `pattern`", size.pattern, limits::GRAMMAR_REGEX_BYTES_MAX)?;
    at_most("optional parts in its `pattern`s", size.optional, limits::GRAMMAR_OPTIONAL_MAX)?;
    at_most("`patternProperties` in one object", size.name_patterns, limits::GRAMMAR_NAME_PATTERNS_MAX)?;
    at_most("names times `patternProperties`", size.name_comparisons, limits::GRAMMAR_NAME_COMPARISONS_MAX)?;
    let load = Conditions { root: schema, known: HashMap::new() }.of(schema);
    at_most("conditions (`pattern`, `multipleOf`) on one value", load.count, limits::GRAMMAR_CONDITIONS_MAX)?;
    let (got, max) = (load.multiples.map_or(1, |multiples| multiples.of), limits::GRAMMAR_REMAINDERS_MAX);
    if got > max {
        let message = format!("its `multipleOf` leave {got} remainders, at most {max} are taken");
        return Err(FormError { message, too_large: true });
    }
    match size.multiple {
        Some(multiple) => Err(FormError {
            message: format!("its `multipleOf` {multiple} must lie between 1e-6 and {}", limits::GRAMMAR_MULTIPLE_MAX),
            too_large: true,
        }),
        None => Ok(()),
    }
}

/// Schemas inside of grammars would go unseen, and so would what else is hidden in one.
fn lark_within_limits(lark: &str) -> Result<(), FormError> {
    at_most("bytes", lark.len(), limits::LARK_BYTES_MAX)?;
    if let Some(name) = ["%json", "%lark", "%llguidance"].into_iter().find(|name| lark.contains(name)) {
        return Err(FormError::unusable(format!("`{name}` is not supported")));
    }
    lark::within_limits(lark)
}

pub(super) fn at_most(what: &str, got: usize, max: usize) -> Result<(), FormError> {
    if got > max { Err(FormError::too_large(what, got, max)) } else { Ok(()) }
}

/// How deep the library may call itself: it goes into what a reference refers to from where the reference stands, once
/// for each text of one. Which way is the longest depends on the order of all keywords; none is longer than the sum.
fn levels_through_references(root: &Json, references: &HashSet<&str>) -> usize {
    let mut known = HashMap::new();
    let targets = references.iter().filter_map(|reference| target(root, reference)).chain([root]);
    targets.map(|target| *known.entry(std::ptr::from_ref(target)).or_insert_with(|| levels(target))).sum()
}

/// What the library finds at a reference, which takes each name as it is written.
pub(super) fn target<'a>(root: &'a Json, reference: &str) -> Option<&'a Json> {
    let path = reference.strip_prefix("#/").filter(|path| !path.is_empty());
    path.into_iter().flat_map(|path| path.split('/')).try_fold(root, |at, name| match at {
        Json::Array(items) => items.get(name.parse::<usize>().ok()?),
        other => other.get(name),
    })
}

/// Of a value's lists and objects; those of a schema are no more than there may be.
fn levels(value: &Json) -> usize {
    match value {
        Json::Array(items) => 1 + items.iter().map(levels).max().unwrap_or(0),
        Json::Object(map) => 1 + map.values().map(levels).max().unwrap_or(0),
        _ => 0,
    }
}

#[derive(Default)]
struct SchemaSize<'a> {
    /// The texts of all references.
    references: HashSet<&'a str>,
    values: usize,
    bytes: usize,
    depth: usize,
    /// Bytes of the longest expression.
    pattern: usize,
    /// Parts of all expressions that may be left out.
    optional: usize,
    /// Expressions for names in one object, at most.
    name_patterns: usize,
    /// These times the names beside them.
    name_comparisons: usize,
    /// A `multipleOf` that is out of bounds.
    multiple: Option<f64>,
}

impl<'a> SchemaSize<'a> {
    /// Bodies are nested no deeper than their parser goes, so this ends.
    fn add(&mut self, value: &'a Json, depth: usize) {
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
                    if let ("$ref", Some(text)) = (key.as_str(), value.as_str()) {
                        self.references.insert(text);
                    }
                    if let (true, Some(text)) = (key == "pattern", value.as_str()) {
                        self.pattern = self.pattern.max(text.len());
                        self.optional += lark::optional_parts(text);
                    }
                    if let (true, Some(patterns)) = (key == "patternProperties", value.as_object()) {
                        self.optional += patterns.keys().map(|text| lark::optional_parts(text)).sum::<usize>();
                    }
                    self.add(value, depth + 1);
                }
            }
            _ => {}
        }
    }
}

/// What may have to hold at once for one value.
#[derive(Clone, Copy, Default)]
struct Load {
    /// How many conditions there are.
    count: usize,
    multiples: Option<Multiples>,
}

impl Load {
    fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, multiples: both(self.multiples, other.multiples, Multiples::and) }
    }

    /// Of parts and alternatives, which are compiled apart: conditions meet for one of them at a time, states add up.
    fn or(self, other: Self) -> Self {
        Self { count: self.count.max(other.count), multiples: both(self.multiples, other.multiples, Multiples::or) }
    }
}

/// How many remainders the multiples of several numbers leave, in units of 10 to the power of -`places`.
#[derive(Clone, Copy)]
struct Multiples {
    of: u128,
    places: usize,
    /// They are those of one number, not of several apart.
    one: bool,
}

fn both<T>(a: Option<T>, b: Option<T>, join: impl Fn(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(join(a, b)),
        (a, b) => a.or(b),
    }
}

impl Multiples {
    fn of(number: f64) -> Self {
        // Without an exponent, and with as few digits as tell it from its neighbours.
        let written = number.abs().to_string();
        let places = written.split_once('.').map_or(0, |(_, places)| places.len());
        Self { of: written.replace('.', "").parse().unwrap_or(u128::MAX), places, one: true }
    }

    fn in_units(self, places: usize) -> u128 {
        let units = u32::try_from(places - self.places).ok().and_then(|more| 10u128.checked_pow(more));
        units.map_or(u128::MAX, |units| self.of.saturating_mul(units))
    }

    fn and(self, other: Self) -> Self {
        let places = self.places.max(other.places);
        let [a, b] = [self, other].map(|multiples| multiples.in_units(places).max(1));
        let one = self.one && other.one;
        let common = if one { greatest_common_divisor(a, b) } else { 1 };
        Self { of: (a / common).saturating_mul(b), places, one }
    }

    /// Each in its own units, of which the finest are kept.
    fn or(self, other: Self) -> Self {
        Self { of: self.of.saturating_add(other.of), places: self.places.max(other.places), one: false }
    }
}

fn greatest_common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// What may have to hold at once for one value: of a schema and of all that it takes together, and of its parts and
/// alternatives.
struct Conditions<'a> {
    root: &'a Json,
    /// Of what is referred to; nothing while it is looked at, since what refers to itself adds nothing.
    known: HashMap<&'a str, Load>,
}

impl<'a> Conditions<'a> {
    fn of(&mut self, schema: &'a Json) -> Load {
        let Json::Object(map) = schema else { return Load::default() };
        let count = ["pattern", "multipleOf"].iter().filter(|key| map.contains_key(**key)).count();
        let multiples = map.get("multipleOf").and_then(Json::as_f64).map(Multiples::of);
        let target = map.get("$ref").and_then(Json::as_str).map_or(Load::default(), |of| self.of_reference(of));
        let together = list(map, "allOf").fold(target, |load, schema| load.and(self.of(schema)));
        let alternatives = ["anyOf", "oneOf", "prefixItems"].into_iter().flat_map(|key| list(map, key));
        let members = ["properties", "patternProperties"].into_iter().filter_map(|key| map.get(key)?.as_object());
        let members = members.flat_map(Map::values);
        let single = ["items", "additionalProperties", "additionalItems"].into_iter().filter_map(|key| map.get(key));
        let parts: Vec<&'a Json> = alternatives.chain(members).chain(single).collect();
        let parts = parts.into_iter().fold(Load::default(), |most, part| most.or(self.of(part)));
        Load { count, multiples }.and(together).and(parts)
    }

    fn of_reference(&mut self, target: &'a str) -> Load {
        if let Some(known) = self.known.get(target) {
            return *known;
        }
        self.known.insert(target, Load::default());
        let found = target.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        let load = found.map_or(Load::default(), |schema| self.of(schema));
        self.known.insert(target, load);
        load
    }
}

fn list<'a>(map: &'a Map<String, Json>, key: &str) -> impl Iterator<Item = &'a Json> + use<'a> {
    map.get(key).and_then(Json::as_array).into_iter().flatten()
}

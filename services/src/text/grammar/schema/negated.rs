//! Schemas of the values that break another schema, for `not` and for the alternative of a condition.

use super::excluded::{difference, integers_left, numbers_left, strings_left};
use super::idle::allows_all;
use super::{Json, Map, is_note, json, listed, rewritten};

/// Values of a schema that is negated. Each has to be said again, so that nested conditions would double with each.
const VALUES_MAX: usize = 512;
const TYPES: [&str; 6] = ["null", "boolean", "number", "string", "array", "object"];

/// The values that a negation chooses from: those of the schema that it stands in, as far as its own keywords say.
pub(super) struct Among<'a> {
    schema: Option<&'a Map<String, Json>>,
    types: Vec<&'a str>,
}

impl<'a> Among<'a> {
    pub(super) fn of(schema: &'a Map<String, Json>) -> Self {
        let types = schema.get("type").and_then(names).unwrap_or_else(|| TYPES.to_vec());
        Self { schema: Some(schema), types }
    }

    fn anything() -> Self {
        Self { schema: None, types: TYPES.to_vec() }
    }

    /// The values of one field of an object.
    pub(super) fn field(&self, name: &str) -> Self {
        let field = self.schema.and_then(|schema| schema.get("properties")?.get(name)?.as_object());
        field.map_or_else(Self::anything, Among::of)
    }

    /// Those of these values that are of some types.
    fn of_types(&self, types: &'a Json) -> Option<Self> {
        let named = names(types)?;
        let in_both = |kind: &&str| named.contains(kind) || *kind == "integer" && named.contains(&"number");
        let mut types: Vec<&str> = self.types.iter().copied().filter(in_both).collect();
        if self.types.contains(&"number") && named.contains(&"integer") && !named.contains(&"number") {
            types.push("integer");
        }
        Some(Self { schema: self.schema, types })
    }

    pub(super) fn has(&self, kind: &str) -> bool {
        self.types.contains(&kind)
    }

    /// Whether only objects are among the values.
    pub(super) fn are_objects(&self) -> bool {
        self.types == ["object"]
    }

    pub(super) fn requires(&self, name: &str) -> bool {
        let required = self.schema.and_then(|schema| schema.get("required")?.as_array());
        required.is_some_and(|required| required.iter().any(|one| one == name))
    }

    /// Whether a bound of the values has the whole part of a number, which a range between the two may not leave out
    /// ([`super::open_bounds`]).
    fn is_bounded_near(&self, number: &Json) -> bool {
        let whole = |number: &Json| number.as_f64().map(f64::trunc);
        let bounds = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
        let mut bounds = bounds.iter().filter_map(|key| self.schema?.get(*key));
        bounds.any(|bound| whole(bound).is_some() && whole(bound) == whole(number))
    }

    /// The type of the numbers among the values, if there are any.
    fn numbers(&self) -> Option<&'static str> {
        match (self.has("number"), self.has("integer")) {
            (true, _) => Some("number"),
            (false, true) => Some("integer"),
            _ => None,
        }
    }
}

/// The names of types in a `type`.
fn names(types: &Json) -> Option<Vec<&str>> {
    match types {
        Json::Array(types) => types.iter().map(Json::as_str).collect(),
        one => Some(vec![one.as_str()?]),
    }
}

/// A schema that, among some values, allows those which this schema does not; `None` where there are no words for it.
pub(super) fn negated(schema: &Json, among: &Among<'_>) -> Option<Json> {
    let map = match schema {
        Json::Bool(all) => return Some(Json::Bool(!all)),
        Json::Object(map) if size(schema) <= VALUES_MAX => map,
        _ => return None,
    };
    // Values of other types break the schema already, whatever its other keywords say.
    let within = map.get("type").and_then(|types| among.of_types(types));
    let within = within.as_ref().unwrap_or(among);
    let says = map.iter().filter(|(key, _)| !is_note(key));
    let breaks = says.map(|(key, value)| match key.as_str() {
        "type" => other_types(value, among),
        key => broken(key, value, within),
    });
    Some(any_of(breaks.collect::<Option<Vec<_>>>()?))
}

/// How many values a JSON value has in it.
pub(in crate::text::grammar) fn size(value: &Json) -> usize {
    match value {
        Json::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Json::Object(map) => 1 + map.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

/// The values that break one keyword.
fn broken(key: &str, value: &Json, among: &Among<'_>) -> Option<Json> {
    match (key, value) {
        ("not", schema) => Some(rewritten(schema, false)),
        ("anyOf", Json::Array(options)) => {
            Some(all_of(options.iter().map(|option| negated(option, among)).collect::<Option<Vec<_>>>()?))
        }
        ("allOf", Json::Array(parts)) => {
            Some(any_of(parts.iter().map(|part| negated(part, among)).collect::<Option<Vec<_>>>()?))
        }
        ("const", value) => unlisted(&listed(value, true), among),
        ("enum", Json::Array(values)) => unlisted(values, among),
        ("required", Json::Array(_)) | ("properties", _) if !among.has("object") => Some(Json::Bool(false)),
        ("required", Json::Array(names)) => Some(lacking(names, among)),
        ("properties", Json::Object(fields)) => broken_fields(fields, among),
        ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum", bound) => beyond(key, bound, among),
        ("minLength" | "maxLength", count) => counted(key, count, "string", among),
        ("minItems" | "maxItems", count) => counted(key, count, "array", among),
        _ => None,
    }
}

/// An object that lacks one of these fields at least. Everything else has all that is required of objects.
fn lacking(names: &[Json], among: &Among<'_>) -> Json {
    let names = names.iter().filter_map(Json::as_str).filter(|name| !among.requires(name));
    let options: Vec<Json> = names.map(without).collect();
    match options.is_empty() {
        true => Json::Bool(false),
        false => json!({"type": "object", "anyOf": options}),
    }
}

/// No object that has this field.
pub(super) fn without(name: &str) -> Json {
    json!({"properties": {name: false}})
}

/// An object with a field whose value breaks the schema of that field.
fn broken_fields(fields: &Map<String, Json>, among: &Among<'_>) -> Option<Json> {
    let asks = fields.iter().filter(|(_, schema)| !allows_all(schema));
    let choices = asks.map(|(name, schema)| Some(with_field(name, negated(schema, &among.field(name))?)));
    Some(any_of(choices.collect::<Option<Vec<_>>>()?))
}

/// An object that has a field of a schema.
pub(super) fn with_field(name: &str, schema: Json) -> Json {
    match schema == Json::Bool(false) {
        true => schema,
        false => json!({"type": "object", "required": [name], "properties": {name: schema}}),
    }
}

/// Values of other types than these.
fn other_types(types: &Json, among: &Among<'_>) -> Option<Json> {
    let named = names(types)?;
    // Of numbers only those that are no integers would be left.
    if named.contains(&"integer") && !named.contains(&"number") && among.has("number") {
        return None;
    }
    let other = |kind: &&&str| !(named.contains(*kind) || **kind == "integer" && named.contains(&"number"));
    let left: Vec<&&str> = among.types.iter().filter(other).collect();
    Some(if left.is_empty() { Json::Bool(false) } else { json!({"type": left}) })
}

/// Values that are none of these.
pub(super) fn unlisted(excluded: &[Json], among: &Among<'_>) -> Option<Json> {
    if excluded.iter().any(|value| value.is_array() || value.is_object()) {
        return None;
    }
    if let Some(own) = among.schema.and_then(values) {
        let left = difference(&own, excluded)?;
        return Some(if left.is_empty() { Json::Bool(false) } else { json!({"enum": left}) });
    }
    let (mut choices, mut whole) = (Vec::new(), Vec::new());
    for kind in &among.types {
        match *kind {
            "null" if excluded.iter().any(Json::is_null) => {}
            "boolean" if excluded.iter().any(Json::is_boolean) => {
                choices.extend(difference(&[false.into(), true.into()], excluded).map(|left| json!({"enum": left})));
            }
            "number" if excluded.iter().any(Json::is_number) => {
                choices
                    .push(numbers_left(excluded).filter(|_| !excluded.iter().any(|one| among.is_bounded_near(one)))?);
            }
            "integer" if excluded.iter().any(Json::is_number) => choices.push(integers_left(excluded)?),
            "string" if excluded.iter().any(Json::is_string) => choices.push(strings_left(excluded)?),
            kind => whole.push(kind),
        }
    }
    choices.retain(|choice| choice["enum"] != json!([]));
    choices.extend((!whole.is_empty()).then(|| json!({"type": whole})));
    Some(any_of(choices))
}

/// Numbers on the other side of a bound.
fn beyond(key: &str, bound: &Json, among: &Among<'_>) -> Option<Json> {
    let opposite = match key {
        "minimum" => "exclusiveMaximum",
        "maximum" => "exclusiveMinimum",
        "exclusiveMinimum" => "maximum",
        _ => "minimum",
    };
    let Some(kind) = among.numbers() else { return Some(Json::Bool(false)) };
    let closed = matches!(key, "exclusiveMinimum" | "exclusiveMaximum");
    let exact = kind == "integer" || closed || !among.is_bounded_near(bound);
    (bound.is_number() && exact).then(|| json!({"type": kind, opposite: bound}))
}

/// Texts or lists that are shorter or longer than a count allows.
fn counted(key: &str, count: &Json, kind: &str, among: &Among<'_>) -> Option<Json> {
    let count = count.as_u64()?;
    if !among.has(kind) {
        return Some(Json::Bool(false));
    }
    Some(match key {
        "minLength" => count.checked_sub(1).map_or(Json::Bool(false), |most| json!({"type": kind, "maxLength": most})),
        "minItems" => count.checked_sub(1).map_or(Json::Bool(false), |most| json!({"type": kind, "maxItems": most})),
        "maxLength" => json!({"type": kind, "minLength": count.checked_add(1)?}),
        _ => json!({"type": kind, "minItems": count.checked_add(1)?}),
    })
}

/// The values that match a schema of a field, where it lists them.
pub(super) fn values(schema: &Map<String, Json>) -> Option<Vec<Json>> {
    let mut says = schema.iter().filter(|(key, _)| !is_note(key));
    match (says.next()?, says.next(), says.next()) {
        ((key, value), None, None) if key == "type" && value == "boolean" => Some(vec![false.into(), true.into()]),
        ((key, value), None, None) if key == "const" || key == "enum" => Some(listed(value, key == "const")),
        (a, Some(b), None) => {
            let (kind, list) = if a.0 == "type" { (a, b) } else { (b, a) };
            let strings = kind.0 == "type" && kind.1 == "string" && (list.0 == "const" || list.0 == "enum");
            let values = listed(list.1, list.0 == "const");
            (strings && values.iter().all(Json::is_string)).then_some(values)
        }
        _ => None,
    }
}

/// What matches one of these schemas.
pub(super) fn any_of(mut options: Vec<Json>) -> Json {
    options.retain(|option| *option != Json::Bool(false));
    match options.len() {
        _ if options.iter().any(allows_all) => Json::Bool(true),
        0 => Json::Bool(false),
        1 => options.remove(0),
        _ => json!({"anyOf": options}),
    }
}

/// What matches all of these schemas.
pub(super) fn all_of(mut parts: Vec<Json>) -> Json {
    parts.retain(|part| !allows_all(part));
    match parts.len() {
        _ if parts.contains(&Json::Bool(false)) => Json::Bool(false),
        0 => Json::Bool(true),
        1 => parts.remove(0),
        _ => json!({"allOf": parts}),
    }
}

//! A schema in the words that the library knows. What is written anew means the same as before, so that fewer schemas
//! are refused; what has no such words is left as it is, and is refused by its name.

mod conditional;
mod excluded;
mod idle;
mod key_count;
mod negated;
mod open_bounds;

#[cfg(test)]
pub(super) use negated::size;
use negated::{Among, negated, without};
use serde_json::{Map, Value as Json, json};

/// The keywords that hold a schema, or several in a list (`items` of older drafts).
const HOLDS_SCHEMA: [&str; 11] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "not",
];
/// The keywords that hold a list of schemas.
const HOLDS_SCHEMAS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// The keywords that hold schemas by name.
pub(super) const HOLDS_NAMED: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];
/// The formats of JSON Schema. Others are somebody's notes: a validator passes over what it has never heard of.
const FORMATS: [&str; 19] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "idn-email",
    "idn-hostname",
    "ipv4",
    "ipv6",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "time",
    "uri",
    "uri-reference",
    "uri-template",
    "uuid",
];
/// Characters of the formats that have digits without an end: a fraction of nanoseconds, and numbers of a duration that
/// no calendar has. Without these bounds a model may write digits until its answer is cut.
const FORMAT_LENGTHS: [(&str, u64); 3] = [("date-time", 35), ("time", 24), ("duration", 32)];
/// Dependencies of one object that are written anew: each doubles what the library has to look at.
const DEPENDENCIES_MAX: usize = 4;
/// Conditions within conditions: what breaks one is looked for twice at each level.
const CONDITIONS_NESTED_MAX: usize = 4;
/// What stands beside `properties` where fields that nobody named mean something.
const OPENS: [&str; 13] = [
    "$dynamicRef",
    "$recursiveRef",
    "$ref",
    "additionalProperties",
    "allOf",
    "anyOf",
    "dependencies",
    "dependentSchemas",
    "if",
    "not",
    "oneOf",
    "patternProperties",
    "unevaluatedProperties",
];

/// Calls `act` with all that may be a schema directly inside of this one, and with the lists of such. Values that an
/// answer may have (`const`, `enum`) are no schemas, whatever their members are called; a field of that name has one.
pub(super) fn for_each_inside(schema: &mut Map<String, Json>, act: &mut dyn FnMut(&mut Json)) {
    for (key, value) in schema {
        match value {
            Json::Object(named) if HOLDS_NAMED.contains(&key.as_str()) => named.values_mut().for_each(&mut *act),
            value if !matches!(key.as_str(), "const" | "enum") => act(value),
            _ => {}
        }
    }
}

/// The schema, in known words. `closed`: an object that names its fields and says nothing of others has no others,
/// wherever that cannot take an object away that another part of the schema wants.
pub(super) fn in_known_words(schema: &Json, closed: bool) -> Json {
    let mut known = rewritten(schema, closed && !joins_schemas(schema));
    open_bounds::draw_in(&mut known);
    known
}

fn rewritten(schema: &Json, closed: bool) -> Json {
    let Json::Object(schema) = schema else { return schema.clone() };
    let mut out: Map<String, Json> =
        schema.iter().map(|(key, value)| (key.clone(), inside(key, value, closed))).collect();
    if out.get("format").and_then(Json::as_str).is_some_and(|format| !FORMATS.contains(&format)) {
        out.shift_remove("format");
    }
    idle::remove_idle(&mut out);
    idle::say_by_properties(&mut out);
    bound_format(&mut out);
    excluded::leave_out_excluded(&mut out);
    let mut also = Vec::new();
    if let Some(instead) = out.get("not").and_then(|not| broken_by(not, &Among::of(&out))) {
        out.shift_remove("not");
        also.extend((instead != Json::Bool(true)).then_some(instead));
    }
    also.extend(without_dependencies(&mut out));
    also.extend(conditional::without_conditions(&mut out).into_iter().filter(|choice| *choice != Json::Bool(true)));
    if closed && closes(schema) {
        out.insert("additionalProperties".into(), false.into());
    }
    let empty = key_count::has_too_few_keys(&out) && !key_count::leave_out_objects(&mut out);
    match empty || also.contains(&Json::Bool(false)) {
        true => Json::Bool(false),
        false => with_all(out, also),
    }
}

/// What a keyword holds, with the schemas in it written anew.
fn inside(key: &str, value: &Json, closed: bool) -> Json {
    match value {
        Json::Array(items) if key == "allOf" => items.iter().map(|item| part(item, closed)).collect(),
        Json::Array(items) if HOLDS_SCHEMAS.contains(&key) || key == "items" => {
            items.iter().map(|item| rewritten(item, closed)).collect()
        }
        Json::Object(named) if HOLDS_NAMED.contains(&key) => {
            named.iter().map(|(name, schema)| (name.clone(), rewritten(schema, closed))).collect()
        }
        // What breaks these is looked for in their own words, before they are written anew.
        Json::Object(_) if matches!(key, "if" | "not") => value.clone(),
        Json::Object(_) if HOLDS_SCHEMA.contains(&key) => rewritten(value, closed),
        _ => value.clone(),
    }
}

/// The values that break a schema, which may need other words first. What must not be is no place to forbid more in:
/// that would allow more.
fn broken_by(schema: &Json, among: &Among<'_>) -> Option<Json> {
    let within = nested_conditions(schema) < CONDITIONS_NESTED_MAX;
    within.then(|| negated(schema, among).or_else(|| negated(&rewritten(schema, false), among)))?
}

/// How deep conditions and what must not be are nested in a schema.
fn nested_conditions(value: &Json) -> usize {
    match value {
        Json::Object(map) => {
            let of = |(key, value): (&String, &Json)| {
                nested_conditions(value) + usize::from(matches!(key.as_str(), "if" | "not"))
            };
            map.iter().map(of).max().unwrap_or(0)
        }
        Json::Array(items) => items.iter().map(nested_conditions).max().unwrap_or(0),
        _ => 0,
    }
}

/// A part of a schema. A condition is left to the schema that it is a part of, which knows what values there are.
fn part(schema: &Json, closed: bool) -> Json {
    match schema {
        Json::Object(condition) if conditional::is_condition(schema) => {
            condition.iter().map(|(key, value)| (key.clone(), inside(key, value, closed))).collect::<Map<_, _>>().into()
        }
        schema => rewritten(schema, closed),
    }
}

/// Bounds a text whose format leaves its length open.
fn bound_format(schema: &mut Map<String, Json>) {
    let format = schema.get("format").and_then(Json::as_str);
    let Some((_, longest)) = FORMAT_LENGTHS.into_iter().find(|(name, _)| format == Some(*name)) else { return };
    let limit = |key: &str| schema.get(key).and_then(Json::as_f64);
    // A schema that wants more characters than that has no value with or without a bound.
    if limit("maxLength").is_none_or(|max| max > longest as f64)
        && limit("minLength").is_none_or(|min| min <= longest as f64)
    {
        schema.insert("maxLength".into(), longest.into());
    }
}

/// The values of a `const` or an `enum`.
fn listed(value: &Json, constant: bool) -> Vec<Json> {
    match value {
        Json::Array(values) if !constant => values.clone(),
        value => vec![value.clone()],
    }
}

/// Whether a keyword is a note to the reader.
pub(super) fn is_note(key: &str) -> bool {
    matches!(key, "title" | "description" | "$comment" | "examples" | "default")
}

/// Takes the dependencies out of a schema: for each, a choice between an object without the field and one with it that
/// has what depends on it.
fn without_dependencies(schema: &mut Map<String, Json>) -> Vec<Json> {
    const KEYS: [&str; 3] = ["dependencies", "dependentRequired", "dependentSchemas"];
    let named = || KEYS.iter().filter_map(|key| schema.get(*key)?.as_object());
    let count: usize = named().map(Map::len).sum();
    let choices: Option<Vec<Json>> = named().flatten().map(|(name, needs)| dependent(name, needs)).collect();
    match choices {
        Some(choices) if count <= DEPENDENCIES_MAX => {
            KEYS.iter().for_each(|key| drop(schema.shift_remove(*key)));
            choices
        }
        _ => Vec::new(),
    }
}

fn dependent(name: &str, needs: &Json) -> Option<Json> {
    let with = match needs {
        Json::Array(names) => {
            let names = std::iter::once(Json::from(name)).chain(names.iter().cloned());
            json!({"required": names.collect::<Vec<_>>()})
        }
        Json::String(other) => json!({"required": [name, other]}),
        Json::Object(_) | Json::Bool(_) => json!({"required": [name], "allOf": [needs]}),
        _ => return None,
    };
    Some(json!({"anyOf": [without(name), with]}))
}

fn with_all(mut schema: Map<String, Json>, also: Vec<Json>) -> Json {
    if !also.is_empty() {
        match schema.get_mut("allOf") {
            Some(Json::Array(parts)) => parts.extend(also),
            _ => drop(schema.insert("allOf".into(), also.into())),
        }
    }
    Json::Object(schema)
}

/// Whether an object that names its fields leaves nobody else to name some.
fn closes(schema: &Map<String, Json>) -> bool {
    let Some(properties) = schema.get("properties").and_then(Json::as_object) else { return false };
    let mut required = schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    !OPENS.iter().any(|key| schema.contains_key(*key)) && required.all(|name| properties.contains_key(name))
}

/// Whether one object may have to keep to several of the schema's parts, each of which would close it to the others.
fn joins_schemas(schema: &Json) -> bool {
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Json::Object(map) => {
                let several = ["allOf", "anyOf", "oneOf", "$ref"].iter().filter(|key| map.contains_key(**key)).count();
                let all = map.get("allOf").and_then(Json::as_array).is_some_and(|parts| parts.len() > 1);
                let beside = several > 0 && map.contains_key("properties");
                if all || beside || several > 1 || map.contains_key("if") || map.contains_key("dependentSchemas") {
                    return true;
                }
                open.extend(map.values());
            }
            Json::Array(items) => open.extend(items),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_knows_is_a_note_and_what_the_drafts_name_stays() {
        let schema = json!({"format": "int32", "properties": {"format": {"type": "string", "format": "topic"},
            "at": {"type": "string", "format": "uri-reference"}}, "enum": [{"format": "int32"}]});
        let known = json!({"properties": {"format": {"type": "string"},
            "at": {"type": "string", "format": "uri-reference"}}, "enum": [{"format": "int32"}]});
        assert_eq!(in_known_words(&schema, false), known);
    }

    #[test]
    fn what_must_not_be_is_said_by_what_may() {
        let not = |schema: Json| in_known_words(&json!({"not": schema}), false);
        assert_eq!(not(json!({})), json!(false));
        assert_eq!(not(json!({"description": "never"})), json!(false));
        assert_eq!(not(json!({"not": {"enum": [1]}})), json!({"allOf": [{"enum": [1]}]}));
        assert_eq!(not(json!({"type": "null"}))["allOf"][0]["type"].as_array().unwrap().len(), 5);
        let lacks = json!({"type": "object", "anyOf": [{"properties": {"a": false}}, {"properties": {"b": false}}]});
        assert_eq!(not(json!({"required": ["a", "b"]})), json!({"allOf": [lacks]}));
        let either = not(json!({"anyOf": [{"required": ["a"]}, {"type": "string"}]}));
        assert_eq!(either["allOf"][0]["allOf"].as_array().unwrap().len(), 2);
        for unknown in [json!({"enum": [[1]]}), json!({"type": "integer"}), json!({"anyOf": [{"const": {}}]})] {
            assert_eq!(not(unknown.clone()), json!({"not": unknown}));
        }
    }

    #[test]
    fn what_depends_on_a_field_is_a_choice() {
        let schema = json!({"type": "object", "dependencies": {"a": ["b"]}});
        let choice = json!({"anyOf": [{"properties": {"a": false}}, {"required": ["a", "b"]}]});
        assert_eq!(in_known_words(&schema, false), json!({"type": "object", "allOf": [choice]}));
        let names: Map<String, Json> = (0..=DEPENDENCIES_MAX).map(|i| (i.to_string(), json!(["x"]))).collect();
        let many = json!({"dependentRequired": names});
        assert_eq!(in_known_words(&many, false), many);
    }

    #[test]
    fn objects_are_closed_where_nobody_else_may_name_their_fields() {
        let open = json!({"properties": {"a": {"properties": {"b": {}}}}});
        let shut = json!({"properties": {"a": {"properties": {"b": {}}, "additionalProperties": false}},
            "additionalProperties": false});
        assert_eq!((in_known_words(&open, true), in_known_words(&open, false)), (shut, open));
        for kept in [
            json!({"properties": {"a": {}}, "required": ["b"]}),
            json!({"properties": {"a": {}}, "patternProperties": {"x": {}}}),
            json!({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}),
            json!({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}),
            json!({"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}, {}]}),
        ] {
            assert_eq!(in_known_words(&kept, true), kept);
        }
    }
}

//! Whether a schema leaves open which keys an object has.

use crate::text::grammar::schema::HOLDS_NAMED;
use serde_json::{Map, Value as Json};

/// How a schema's objects leave their keys open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::text::grammar) enum OpenKeys {
    /// There are more keys than any answer has.
    Any,
    /// Some keys have to match an expression, which finitely many may do.
    Matching,
}

/// Whether an object of a schema, as the library gets it, may have keys that are not written in the schema. It may be
/// said of a schema that has none, where several parts of it together close an object.
pub(in crate::text::grammar) fn open_keys(schema: &Json) -> Option<OpenKeys> {
    let map = match schema {
        Json::Object(map) => map,
        other => return (*other == Json::Bool(true)).then_some(OpenKeys::Any),
    };
    if map.contains_key("const") || map.contains_key("enum") {
        return inside_definitions(map);
    }
    let patterns = map.get("patternProperties").and_then(Json::as_object).is_some_and(|named| !named.is_empty());
    let own = match patterns {
        true => Some(OpenKeys::Matching),
        false => (has_open_objects(map) || has_open_items(map)).then_some(OpenKeys::Any),
    };
    own.max(inside(map))
}

/// Whether the keywords of a schema itself leave the keys of its objects open.
fn has_open_objects(schema: &Map<String, Json>) -> bool {
    may_be(schema, "object") && schema.get("additionalProperties") != Some(&Json::Bool(false))
}

/// Whether items may be anything.
fn has_open_items(schema: &Map<String, Json>) -> bool {
    may_be(schema, "array") && !schema.contains_key("items")
}

/// Whether a schema's own keywords allow values of a type. Where others stand for its values, these are looked at.
fn may_be(schema: &Map<String, Json>, kind: &str) -> bool {
    match schema.get("type") {
        Some(Json::Array(kinds)) => kinds.iter().any(|one| one == kind),
        Some(one) => one == kind,
        None => !["$ref", "anyOf", "oneOf", "allOf"].iter().any(|key| schema.contains_key(*key)),
    }
}

fn inside(schema: &Map<String, Json>) -> Option<OpenKeys> {
    let of_key = |(key, value): (&String, &Json)| match value {
        Json::Object(named) if HOLDS_NAMED.contains(&key.as_str()) => named.values().filter_map(open_keys).max(),
        Json::Object(_) if key != "x-guidance" => open_keys(value),
        Json::Bool(true) if matches!(key.as_str(), "items" | "additionalProperties" | "additionalItems") => {
            open_keys(value)
        }
        Json::Array(items) if key != "required" && key != "type" => {
            items.iter().filter(|item| item.is_object() || item.is_boolean()).filter_map(open_keys).max()
        }
        _ => None,
    };
    schema.iter().filter_map(of_key).max()
}

/// A list of values has no open objects, but what stands beside it may be referred to.
fn inside_definitions(schema: &Map<String, Json>) -> Option<OpenKeys> {
    let definitions = ["$defs", "definitions"].into_iter().filter_map(|key| schema.get(key)?.as_object());
    definitions.flat_map(Map::values).filter_map(open_keys).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn closed_objects_and_lists_of_values_have_no_open_keys() {
        for schema in [
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": false}),
            json!({"type": "array", "items": {"type": ["string", "null"]}}),
            json!({"enum": [{"a": 1}, []]}),
            json!({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "boolean"}}}),
            json!(false),
        ] {
            assert_eq!(open_keys(&schema), None, "{schema}");
        }
    }

    #[test]
    fn whatever_may_be_any_object_has_open_keys() {
        for schema in [
            json!({}),
            json!(true),
            json!({"type": "object", "properties": {"a": {"type": "integer"}}}),
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"type": "array"}),
            json!({"type": "array", "items": {}}),
            json!({"const": 1, "$defs": {"a": {"type": "object"}}}),
            json!({"anyOf": [{"type": "null"}, {"type": "object"}]}),
        ] {
            assert_eq!(open_keys(&schema), Some(OpenKeys::Any), "{schema}");
        }
        let matching = json!({"items": {"type": "object", "patternProperties": {"^a$": {}}}, "type": "array"});
        assert_eq!(open_keys(&matching), Some(OpenKeys::Matching));
    }
}

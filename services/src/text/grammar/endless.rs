//! Values without an end: an object that must have a field of its own schema, a reference to itself. No answer is one,
//! and a model that begins one never gets to its end, so they are taken out of a schema before the library sees it.

use super::check::{FormError, target};
use super::schema::for_each_inside;
use serde_json::{Map, Value as Json};
use std::collections::HashMap;

/// Rounds until it is known which references have an end, each as long as the schema. The end of a reference is mostly
/// known after one; a chain that needs more is left as it is.
const ROUNDS_MAX: usize = 64;
/// The reason for which a schema without finite values is refused.
pub(super) const NEVER_ENDS: &str =
    "no answer that ends matches it: a schema that refers to itself needs a case without the reference";

/// The schema without references to values that have no end. An error if no other values are left.
pub(super) fn left_out(mut schema: Json) -> Result<Json, FormError> {
    let mut references = HashMap::new();
    collect(&schema, &mut references);
    if references.is_empty() {
        return Ok(schema);
    }
    let ends = FiniteReferences::of(&schema, references);
    if !ends.of_schema(&schema) {
        return Err(FormError::unusable(NEVER_ENDS.into()));
    }
    let endless: Vec<String> =
        ends.references.iter().filter(|(_, ends)| !**ends).map(|(text, _)| (*text).to_owned()).collect();
    if !endless.is_empty() {
        exclude(&mut schema, &endless);
    }
    Ok(schema)
}

/// Notes all references, none of which is known to have an end.
fn collect<'a>(value: &'a Json, found: &mut HashMap<&'a str, bool>) {
    match value {
        Json::Object(map) => {
            found.extend(map.get("$ref").and_then(Json::as_str).map(|text| (text, false)));
            map.values().for_each(|value| collect(value, found));
        }
        Json::Array(items) => items.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}

/// Puts the schema that nothing matches in the place of references to endless values.
fn exclude(schema: &mut Json, endless: &[String]) {
    match schema {
        Json::Object(map)
            if map.get("$ref").and_then(Json::as_str).is_some_and(|of| endless.iter().any(|e| e == of)) =>
        {
            *schema = Json::Bool(false);
        }
        Json::Object(map) => for_each_inside(map, &mut |inside| exclude(inside, endless)),
        Json::Array(items) => items.iter_mut().for_each(|item| exclude(item, endless)),
        _ => {}
    }
}

/// Which references have a value with an end, as far as is known: the least fixed point of "has a value all of whose
/// parts have one".
struct FiniteReferences<'a> {
    references: HashMap<&'a str, bool>,
}

impl<'a> FiniteReferences<'a> {
    fn of(root: &'a Json, references: HashMap<&'a str, bool>) -> Self {
        let mut ends = Self { references };
        for _ in 0..ROUNDS_MAX {
            let found = |text: &&'a str| target(root, text).is_none_or(|schema| ends.of_schema(schema));
            let open = ends.references.iter().filter(|(_, ends)| !**ends).map(|(text, _)| *text);
            let more: Vec<&'a str> = open.filter(found).collect();
            if more.is_empty() {
                return ends;
            }
            ends.references.extend(more.into_iter().map(|text| (text, true)));
        }
        ends.references.values_mut().for_each(|ends| *ends = true);
        ends
    }

    fn of_schema(&self, schema: &Json) -> bool {
        let Json::Object(map) = schema else { return *schema != Json::Bool(false) };
        let list = |key: &str| map.get(key).and_then(Json::as_array);
        let referred = map.get("$ref").and_then(Json::as_str).is_none_or(|text| self.references[text]);
        let all = list("allOf").is_none_or(|parts| parts.iter().all(|part| self.of_schema(part)));
        let mut choices = ["anyOf", "oneOf"].into_iter().filter_map(list);
        let any = choices.all(|options| options.is_empty() || options.iter().any(|option| self.of_schema(option)));
        let listed = map.contains_key("const") || map.contains_key("enum");
        referred && all && any && (listed || self.of_types(map))
    }

    /// Whether a value of one of a schema's types has an end.
    fn of_types(&self, schema: &Map<String, Json>) -> bool {
        let of_type = |kind: &Json| match kind.as_str() {
            Some("object") => self.of_object(schema),
            Some("array") => self.of_array(schema),
            _ => true,
        };
        match schema.get("type") {
            Some(Json::Array(kinds)) => kinds.is_empty() || kinds.iter().any(of_type),
            Some(kind) => of_type(kind),
            None => true,
        }
    }

    fn of_object(&self, schema: &Map<String, Json>) -> bool {
        let mut required =
            schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
        required.all(|name| match schema.get("properties").and_then(|named| named.get(name)) {
            Some(schema) => self.of_schema(schema),
            None if schema.contains_key("patternProperties") => true,
            None => schema.get("additionalProperties").is_none_or(|others| self.of_schema(others)),
        })
    }

    fn of_array(&self, schema: &Map<String, Json>) -> bool {
        let least = schema.get("minItems").and_then(Json::as_u64).unwrap_or(0);
        let first = ["prefixItems", "items"].into_iter().find_map(|key| schema.get(key).and_then(Json::as_array));
        let first = first.map_or(&[][..], Vec::as_slice);
        let others =
            ["items", "additionalItems"].into_iter().find_map(|key| schema.get(key).filter(|of| !of.is_array()));
        let of_others = least <= first.len() as u64 || others.is_none_or(|schema| self.of_schema(schema));
        of_others && first.iter().take(least as usize).all(|schema| self.of_schema(schema))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_that_must_hold_itself_is_refused() {
        for schema in [
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref":
                "#/$defs/a"}]}}}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "required": ["b"],
                "additionalProperties": {"$ref": "#/$defs/a"}}}}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "minItems": 1,
                "items": {"$ref": "#/$defs/a"}}}}),
        ] {
            assert_eq!(left_out(schema.clone()).unwrap_err().message, NEVER_ENDS, "{schema}");
        }
    }

    #[test]
    fn a_case_without_the_reference_is_an_end() {
        for schema in [
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}]}}}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object",
                "properties": {"a": {"$ref": "#/$defs/a"}}}}}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": ["object", "null"], "required": ["a"],
                "properties": {"a": {"$ref": "#/$defs/a"}}}}}),
            json!({"$ref": "#/nowhere"}),
        ] {
            assert_eq!(left_out(schema.clone()).unwrap(), schema);
        }
    }

    #[test]
    fn a_field_that_could_never_end_is_left_out() {
        let endless = json!({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#/$defs/e"}}});
        let schema = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/e"},
            "y": {"const": {"$ref": "#/$defs/e"}}}, "$defs": {"e": endless}});
        let left = left_out(schema).unwrap();
        assert_eq!(left["properties"], json!({"x": false, "y": {"const": {"$ref": "#/$defs/e"}}}));
    }
}

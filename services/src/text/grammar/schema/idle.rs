//! Keywords that exclude no value, and keywords that exclude the same values as one that the library knows.

use super::{Json, Map, OPENS, is_note, json};

/// Removes the keywords that exclude no value.
pub(super) fn remove_idle(schema: &mut Map<String, Json>) {
    let idle: Vec<String> =
        schema.iter().filter(|(key, value)| is_idle(schema, key, value)).map(|p| p.0.clone()).collect();
    idle.iter().for_each(|key| drop(schema.shift_remove(key)));
}

fn is_idle(schema: &Map<String, Json>, key: &str, value: &Json) -> bool {
    let has = |other: &str| schema.contains_key(other);
    // Without `minContains: 0` a list has to contain one such item.
    let contains_any = schema.get("minContains").and_then(Json::as_f64) == Some(0.0) && !has("maxContains");
    match key {
        "uniqueItems" => value == false,
        "propertyNames" => allows_all(value) || allows_strings(value),
        "unevaluatedItems" | "unevaluatedProperties" => allows_all(value),
        "contains" => contains_any,
        "minContains" => !has("contains") || contains_any,
        "maxContains" => !has("contains"),
        "if" => ["then", "else"].iter().all(|branch| schema.get(*branch).is_none_or(allows_all)),
        "then" | "else" => !has("if") || allows_all(value),
        _ => false,
    }
}

/// Whether every value matches a schema, as far as its words tell.
pub(super) fn allows_all(schema: &Json) -> bool {
    match schema {
        Json::Bool(all) => *all,
        Json::Object(schema) => schema.keys().all(|key| is_note(key)),
        _ => false,
    }
}

fn allows_strings(schema: &Json) -> bool {
    let Json::Object(schema) = schema else { return false };
    let strings = |types: &Json| match types {
        Json::Array(types) => types.iter().any(|kind| kind == "string"),
        one => one == "string",
    };
    schema.iter().all(|(key, value)| is_note(key) || (key == "type" && strings(value)))
}

/// Says by `properties`, `patternProperties` and `additionalProperties` what `propertyNames` and
/// `unevaluatedProperties` say, where these are equal.
pub(super) fn say_by_properties(schema: &mut Map<String, Json>) {
    let closed = schema.get("unevaluatedProperties") == Some(&Json::Bool(false));
    // `patternProperties` evaluates properties for both keywords alike.
    let apart = |key: &&&str| !matches!(**key, "patternProperties" | "unevaluatedProperties");
    if closed && !OPENS.iter().filter(apart).any(|key| schema.contains_key(*key)) {
        schema.shift_remove("unevaluatedProperties");
        schema.insert("additionalProperties".into(), false.into());
    }
    if let Some(Json::Object(names)) = schema.get("propertyNames").cloned()
        && keep_to_names(schema, &names).is_some()
    {
        schema.shift_remove("propertyNames");
    }
}

/// Keeps an object to the names that a schema of names allows; `None` where that schema is more than one list or one
/// expression, and then nothing has changed.
fn keep_to_names(schema: &mut Map<String, Json>, names: &Map<String, Json>) -> Option<()> {
    let says: Vec<_> = names.iter().filter(|(key, _)| !is_note(key) && *key != "type").collect();
    let strings = names.get("type").is_none_or(|kind| kind == "string");
    let ([(key, value)], true, None) = (&says[..], strings, schema.get("patternProperties")) else { return None };
    let others = schema.get("additionalProperties").cloned().unwrap_or(Json::Bool(true));
    let named = schema.get("properties").and_then(Json::as_object).cloned().unwrap_or_default();
    match (key.as_str(), value) {
        ("const" | "enum", value) => {
            let allowed = super::listed(value, key == &"const");
            let mut allowed: Map<String, Json> =
                allowed.iter().filter_map(Json::as_str).map(|name| (name.to_owned(), others.clone())).collect();
            for (name, schema) in named {
                let kept = allowed.contains_key(&name);
                allowed.insert(name, if kept { schema } else { Json::Bool(false) });
            }
            schema.insert("properties".into(), allowed.into());
        }
        ("pattern", Json::String(pattern)) if named.is_empty() => {
            schema.insert("patternProperties".into(), json!({pattern: others}));
        }
        _ => return None,
    }
    schema.insert("additionalProperties".into(), false.into());
    Some(())
}

//! References of a schema as the library reads them: it takes each name between two strokes as it is written, and a
//! name that has a stroke itself cannot be reached.

use super::schema::for_each_inside;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// The keywords that hold definitions.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// The schema with references in plain names. Escapes are read in the order of RFC 6901, section 6: those of the URI
/// first, then `~1` and `~0`. A definition whose name has a stroke gets a name without. A reference that is none stays
/// as it is, and is refused where it is followed.
pub(super) fn decoded(schema: &Json) -> Cow<'_, Json> {
    if !has_escapes(schema) {
        return Cow::Borrowed(schema);
    }
    let (mut schema, mut found) = (schema.clone(), BTreeMap::new());
    each_reference(&mut schema, &mut |text| {
        if let Some(names) = names(text) {
            found.insert(text.clone(), names);
        }
    });
    let renamed = rename_definitions(&mut schema, found.values());
    each_reference(&mut schema, &mut |text| {
        if let Some(names) = found.get(text.as_str()) {
            *text = joined(names, &renamed);
        }
    });
    Cow::Owned(schema)
}

/// Whether anything may be a reference with escapes, which few schemas have.
fn has_escapes(value: &Json) -> bool {
    match value {
        Json::Object(map) => map.iter().any(|(key, value)| match value {
            Json::String(text) => key == "$ref" && names(text).is_some(),
            value => has_escapes(value),
        }),
        Json::Array(items) => items.iter().any(has_escapes),
        _ => false,
    }
}

/// Shows each reference of a schema.
fn each_reference(schema: &mut Json, act: &mut dyn FnMut(&mut String)) {
    match schema {
        Json::Object(map) => {
            if let Some(Json::String(text)) = map.get_mut("$ref") {
                act(text);
            }
            for_each_inside(map, &mut |inside| each_reference(inside, act));
        }
        Json::Array(items) => items.iter_mut().for_each(|item| each_reference(item, act)),
        _ => {}
    }
}

/// The names of a reference into its own document; `None` where it has no escapes or is another reference.
fn names(reference: &str) -> Option<Vec<String>> {
    let path = reference.strip_prefix("#/").filter(|path| path.contains(['%', '~']))?;
    let path = percent_decode_str(path).decode_utf8().ok()?;
    Some(path.split('/').map(|name| name.replace("~1", "/").replace("~0", "~")).collect())
}

/// Renames the definitions that are referred to by names with a stroke. Gives the new names by keyword and old name.
fn rename_definitions<'a>(
    schema: &mut Json,
    references: impl Iterator<Item = &'a Vec<String>>,
) -> BTreeMap<(String, String), String> {
    let mut renamed = BTreeMap::new();
    for names in references {
        let [holder, name, ..] = &names[..] else { continue };
        let key = (holder.clone(), name.clone());
        if !name.contains('/') || !DEFINITIONS.contains(&holder.as_str()) || renamed.contains_key(&key) {
            continue;
        }
        let Some(definitions) = schema.get_mut(holder).and_then(Json::as_object_mut) else { continue };
        if let Some(definition) = definitions.shift_remove(name) {
            let plain = unused(definitions, renamed.len());
            definitions.insert(plain.clone(), definition);
            renamed.insert(key, plain);
        }
    }
    renamed
}

fn unused(definitions: &Map<String, Json>, from: usize) -> String {
    let names: HashSet<&String> = definitions.keys().collect();
    (from..).map(|i| format!("definition_{i}")).find(|name| !names.contains(name)).expect("numbers do not end")
}

fn joined(names: &[String], renamed: &BTreeMap<(String, String), String>) -> String {
    let mut names = names.to_vec();
    if let [holder, name, ..] = &mut names[..]
        && let Some(plain) = renamed.get(&(holder.clone(), name.clone()))
    {
        plain.clone_into(name);
    }
    format!("#/{}", names.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn escapes_of_the_uri_are_read_before_those_of_the_pointer() {
        let schema = json!({"anyOf": [{"$ref": "#/$defs/a%20b~1c"}, {"$ref": "#/$defs/x%7E1y/items"},
            {"$ref": "#/$defs/m~0n"}, {"$ref": "#/$defs/plain"}],
            "$defs": {"a b/c": {"type": "boolean"}, "x/y": {"items": {"$ref": "#/$defs/a%20b~1c"}}, "m~n": {},
            "plain": {}}});
        let read = decoded(&schema).into_owned();
        let found = |at: usize| {
            let path = read["anyOf"][at]["$ref"].as_str().unwrap();
            // As the library looks: by the names between two strokes.
            path.strip_prefix("#/").unwrap().split('/').fold(&read, |at, name| &at[name]).clone()
        };
        assert_eq!(found(0), json!({"type": "boolean"}));
        assert_eq!(found(1)["$ref"], read["anyOf"][0]["$ref"], "inside of a renamed definition too");
        assert_eq!((found(2), found(3)), (json!({}), json!({})));
    }

    #[test]
    fn a_new_name_takes_nobody_elses() {
        let schema = json!({"$ref": "#/$defs/a~1b", "$defs": {"definition_0": 1, "a/b": 2}});
        let read = decoded(&schema);
        assert_eq!(read["$defs"], json!({"definition_0": 1, "definition_1": 2}));
        assert_eq!(read["$ref"], "#/$defs/definition_1");
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for schema in [
            json!({"$ref": "#/$defs/a"}),
            json!({"$ref": "other.json#/a%20b"}),
            json!({"const": {"$ref": "#/a~1b"}, "anyOf": [{"enum": [{"$ref": "#/a~1b"}]}]}),
            json!({"$ref": "#/$defs/%FF"}),
            json!({"$ref": 3}),
        ] {
            assert_eq!(decoded(&schema).as_ref(), &schema);
        }
    }
}

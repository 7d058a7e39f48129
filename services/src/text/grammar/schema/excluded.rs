//! `not` beside a type: the values that it excludes, taken out of the values of the type.

use super::{Json, Map, difference, is_note, json, listed};

/// Values that one `not` may take out of the integers: each leaves one range more.
const INTEGERS_MAX: usize = 64;
/// From here on not every integer is a double.
const EXACT_MAX: i64 = 1 << 53;

/// Takes the values that `not` lists out of the list beside it, or out of the two values of a boolean.
pub(super) fn leave_out_excluded(schema: &mut Map<String, Json>) {
    let booleans = || (schema.get("type")? == "boolean").then(|| json!([false, true]));
    let own = || schema.get("enum").cloned().or_else(booleans);
    let (Some((key, value)), Some(own)) = (only_keyword(schema.get("not")), own()) else { return };
    let Some(left) = difference(&listed(&own, false), &listed(value, key == "const")) else { return };
    if key == "const" || key == "enum" {
        schema.shift_remove("not");
        schema.insert("enum".into(), left.into());
    }
}

/// A schema that stands for `not` beside a type of numbers: of bounds, and of integers that it lists.
pub(super) fn numbers_left(schema: &Map<String, Json>) -> Option<Json> {
    let kind = schema.get("type").filter(|kind| *kind == "integer" || *kind == "number")?;
    let (key, value) = only_keyword(schema.get("not"))?;
    let opposite = match key {
        "minimum" => "exclusiveMaximum",
        "maximum" => "exclusiveMinimum",
        "exclusiveMinimum" => "maximum",
        "exclusiveMaximum" => "minimum",
        "const" | "enum" if kind == "integer" => return integers_left(&listed(value, key == "const")),
        _ => return None,
    };
    value.is_number().then(|| json!({"type": kind, opposite: value}))
}

/// The integers between those that are excluded.
fn integers_left(excluded: &[Json]) -> Option<Json> {
    let mut excluded: Vec<i64> =
        excluded.iter().filter(|value| value.is_number()).map(Json::as_i64).collect::<Option<_>>()?;
    excluded.sort_unstable();
    excluded.dedup();
    let (first, last) = (*excluded.first()?, *excluded.last()?);
    if excluded.len() > INTEGERS_MAX || first <= -EXACT_MAX || last >= EXACT_MAX {
        return None;
    }
    let between = excluded.windows(2).filter(|two| two[0] + 1 < two[1]);
    let between = between.map(|two| json!({"type": "integer", "minimum": two[0] + 1, "maximum": two[1] - 1}));
    let below = json!({"type": "integer", "maximum": first - 1});
    let above = json!({"type": "integer", "minimum": last + 1});
    Some(json!({"anyOf": std::iter::once(below).chain(between).chain([above]).collect::<Vec<_>>()}))
}

/// The keyword of a schema that has only one.
fn only_keyword(schema: Option<&Json>) -> Option<(&str, &Json)> {
    let mut says = schema?.as_object()?.iter().filter(|(key, _)| !is_note(key));
    let (key, value) = says.next()?;
    says.next().is_none().then_some((key.as_str(), value))
}

#[cfg(test)]
mod tests {
    use super::super::in_known_words;
    use super::*;

    #[test]
    fn what_is_not_one_of_some_numbers_or_booleans_is_one_of_the_others() {
        let schema = in_known_words(&json!({"type": "integer", "not": {"enum": [3, 1, 2, "x", 7]}}), false);
        let range = |from: i64, to: i64| json!({"type": "integer", "minimum": from, "maximum": to});
        let ends = (json!({"type": "integer", "maximum": 0}), json!({"type": "integer", "minimum": 8}));
        assert_eq!(schema, json!({"type": "integer", "allOf": [{"anyOf": [ends.0, range(4, 6), ends.1]}]}));
        let schema = in_known_words(&json!({"type": "boolean", "not": {"const": true}}), false);
        assert_eq!(schema, json!({"type": "boolean", "enum": [false]}));
        let schema = in_known_words(&json!({"type": "number", "not": {"minimum": 5}}), false);
        assert_eq!(schema, json!({"type": "number", "allOf": [{"type": "number", "exclusiveMaximum": 5}]}));
        for kept in [json!({"type": "number", "not": {"const": 5}}), json!({"not": {"minimum": 5}})] {
            assert_eq!(in_known_words(&kept, false), kept);
        }
    }
}

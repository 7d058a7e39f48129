//! Values without those that a list excludes.

use super::{Json, Map, is_note, json, listed};
use std::collections::BTreeMap;

/// Numbers that one list may exclude: each leaves one range more.
const NUMBERS_MAX: usize = 64;
/// From here on not every integer is a double.
const EXACT_MAX: i64 = 1 << 53;
/// Characters of the texts that one list may exclude, and of one of them: each is a place of an expression.
const CHARS_MAX: usize = 1024;
const TEXT_CHARS_MAX: usize = 48;
/// An expression of any character.
const ANY: &str = "(?:.|\\n)";

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

/// The values that only the first list has. `None` where a value is a list or an object, which may be equal in more
/// than one way.
pub(super) fn difference(values: &[Json], without: &[Json]) -> Option<Vec<Json>> {
    let plain = |values: &[Json]| !values.iter().any(|value| value.is_array() || value.is_object());
    (plain(values) && plain(without)).then(|| values.iter().filter(|a| !lists(without, a)).cloned().collect())
}

/// Whether a list has a value. Numbers are equal whose values are.
pub(super) fn lists(values: &[Json], value: &Json) -> bool {
    values.iter().any(|one| match (one, value) {
        (Json::Number(a), Json::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (a, b) => a == b,
    })
}

/// The integers between those that are excluded.
pub(super) fn integers_left(excluded: &[Json]) -> Option<Json> {
    let mut excluded: Vec<i64> =
        excluded.iter().filter(|value| value.is_number()).map(Json::as_i64).collect::<Option<_>>()?;
    excluded.sort_unstable();
    excluded.dedup();
    let (first, last) = (*excluded.first()?, *excluded.last()?);
    if excluded.len() > NUMBERS_MAX || first <= -EXACT_MAX || last >= EXACT_MAX {
        return None;
    }
    let between = excluded.windows(2).filter(|two| two[0] + 1 < two[1]);
    let between = between.map(|two| json!({"type": "integer", "minimum": two[0] + 1, "maximum": two[1] - 1}));
    let below = json!({"type": "integer", "maximum": first - 1});
    let above = json!({"type": "integer", "minimum": last + 1});
    Some(json!({"anyOf": std::iter::once(below).chain(between).chain([above]).collect::<Vec<_>>()}))
}

/// The numbers on both sides of one that is excluded. There are no words for what lies between two: between close
/// numbers the library allows the ends of a range that it is told to leave out.
pub(super) fn numbers_left(excluded: &[Json]) -> Option<Json> {
    let mut excluded = excluded.iter().filter(|value| value.is_number());
    let (number, None) = (excluded.next()?, excluded.next()) else { return None };
    let exact = number.as_f64().is_some_and(|value| value.abs() < EXACT_MAX as f64);
    let (below, above) =
        (json!({"type": "number", "exclusiveMaximum": number}), json!({"type": "number", "exclusiveMinimum": number}));
    exact.then(|| json!({"anyOf": [below, above]}))
}

/// The texts that are none of those that are excluded.
pub(super) fn strings_left(excluded: &[Json]) -> Option<Json> {
    let texts: Vec<Vec<char>> = excluded.iter().filter_map(Json::as_str).map(|text| text.chars().collect()).collect();
    let chars = texts.iter().map(Vec::len).sum::<usize>();
    if chars > CHARS_MAX || texts.iter().any(|text| text.len() > TEXT_CHARS_MAX) {
        return None;
    }
    let others = others(&texts.iter().map(Vec::as_slice).collect::<Vec<_>>());
    Some(json!({"type": "string", "pattern": format!("^{others}$")}))
}

/// An expression of the texts that are none of these.
fn others(texts: &[&[char]]) -> String {
    let mut behind: BTreeMap<char, Vec<&[char]>> = BTreeMap::new();
    for text in texts {
        if let [first, rest @ ..] = text {
            behind.entry(*first).or_default().push(rest);
        }
    }
    let may_end = if texts.iter().any(|text| text.is_empty()) { "" } else { "?" };
    if behind.is_empty() {
        return format!("{ANY}+");
    }
    let plain = |char: &char| format!("\\x{{{:x}}}", u32::from(*char));
    let firsts: String = behind.keys().map(plain).collect();
    let other = format!("[^{firsts}]{ANY}*");
    let alike = behind.iter().map(|(first, rests)| format!("{}{}", plain(first), others(rests)));
    format!("(?:{}){may_end}", std::iter::once(other).chain(alike).collect::<Vec<_>>().join("|"))
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
        let schema = in_known_words(&json!({"type": "number", "not": {"const": 5}}), false);
        let sides = json!([{"type": "number", "exclusiveMaximum": 5}, {"type": "number", "exclusiveMinimum": 5}]);
        assert_eq!(schema, json!({"type": "number", "allOf": [{"anyOf": sides}]}));
        for kept in [json!({"type": "number", "not": {"multipleOf": 5}}), json!({"not": {"const": [5]}})] {
            assert_eq!(in_known_words(&kept, false), kept);
        }
    }
}

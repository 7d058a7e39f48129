//! Objects that have to have more keys than there are.

use super::negated::{Among, negated};
use super::{Json, Map, json};
use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::panic_utils::catch_unwind;
use llguidance::regex_to_lark;
use std::collections::{BTreeSet, VecDeque};
use std::panic::AssertUnwindSafe;

/// Bytes that are tried behind the beginnings of keys, for each expression. Where these do not do, there may be keys
/// without an end.
const BYTES_TRIED_MAX: usize = 1 << 16;
/// Steps of compiling an expression.
const STEPS_MAX: u64 = 100_000;

/// Whether no object has as many keys as a schema wants.
pub(super) fn has_too_few_keys(schema: &Map<String, Json>) -> bool {
    let least = schema.get("minProperties").and_then(Json::as_u64).and_then(|least| usize::try_from(least).ok());
    let (Some(least), Some(Json::Bool(false))) = (least, schema.get("additionalProperties")) else { return false };
    let members = |key: &str| schema.get(key).and_then(Json::as_object).into_iter().flatten();
    let (never, named): (Vec<_>, Vec<_>) = members("properties").partition(|(_, of)| **of == Json::Bool(false));
    let never: BTreeSet<&[u8]> = never.iter().map(|(name, _)| name.as_bytes()).collect();
    let mut keys: BTreeSet<Vec<u8>> = named.iter().map(|(name, _)| name.as_bytes().to_vec()).collect();
    for (pattern, _) in members("patternProperties").filter(|(_, of)| **of != Json::Bool(false)) {
        if keys.len() >= least {
            return false;
        }
        let found = catch_unwind(AssertUnwindSafe(|| Ok(matching(pattern, least + never.len()))));
        let Ok(Some(found)) = found else { return false };
        keys.extend(found.into_iter().filter(|key| !never.contains(key.as_slice())));
    }
    keys.len() < least
}

/// Leaves the values of other types of a schema. `false` where there are none.
pub(super) fn leave_out_objects(schema: &mut Map<String, Json>) -> bool {
    let others = negated(&json!({"type": "object"}), &Among::of(schema));
    let types = others.and_then(|others| others.get("type").cloned());
    let left = types.is_some();
    schema.extend(types.map(|types| ("type".to_owned(), types)));
    left
}

/// The texts that an expression matches, shortest first, as many as are wanted. `None` where it cannot be told whether
/// there are others.
fn matching(pattern: &str, wanted: usize) -> Option<BTreeSet<Vec<u8>>> {
    let mut builder = RegexBuilder::new();
    let expression = builder.mk(&RegexAst::SearchRegex(regex_to_lark(pattern, "dw"))).ok()?;
    let mut regex = builder.into_regex_limited(expression, STEPS_MAX).ok()?;
    let (mut found, mut tried) = (BTreeSet::new(), 0);
    let mut open = VecDeque::from([(regex.initial_state(), Vec::new())]);
    while let Some((state, text)) = open.pop_front() {
        if regex.is_accepting(state) {
            found.insert(text.clone());
        }
        tried += 256;
        if found.len() >= wanted {
            return Some(found);
        }
        if tried > BYTES_TRIED_MAX {
            return None;
        }
        for byte in 0..=u8::MAX {
            let next = regex.transition(state, byte);
            if !next.is_dead() {
                open.push_back((next, text.iter().copied().chain([byte]).collect()));
            }
        }
        if regex.alpha().has_error() {
            return None;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_where_an_expression_has_an_end() {
        let of = |pattern: &str, wanted| matching(pattern, wanted).map(|found| found.len());
        assert_eq!(of("^[ab]$", 9), Some(2));
        assert_eq!(of("^(a|ab|a|b)$", 9), Some(3));
        assert_eq!(of("^[ab]{0,2}$", 9), Some(7));
        assert_eq!((of("^x-", 3), of("^[a-z]{1,2}$", 5)), (Some(3), Some(5)));
        assert_eq!(of("(", 3), None);
    }

    #[test]
    fn an_object_wants_more_keys_than_there_are() {
        let few = |schema: Json| has_too_few_keys(schema.as_object().unwrap());
        let of = |least: u64, names: Json| {
            json!({"properties": names, "patternProperties": {"^[ab]$": {}}, "minProperties": least,
                "additionalProperties": false})
        };
        assert!(!few(of(2, json!({}))) && few(of(3, json!({}))));
        assert!(!few(of(3, json!({"a": {}, "x": {}}))) && few(of(4, json!({"a": {}, "x": {}}))));
        assert!(few(of(2, json!({"a": false}))) && !few(of(1, json!({"a": false}))));
        assert!(!few(json!({"minProperties": 9, "patternProperties": {"^[ab]$": {}}})));
    }
}

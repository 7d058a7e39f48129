//! Where bytes become JSON: what a text would take in memory is known before it takes it, and no name stands twice in
//! one object.

use crate::limits::PARSED_BYTES_MAX;
use crate::text::template::written::Text;
use serde_json::{Map, Value, json};

/// What a value takes in an array, with some of the room that arrays grow by.
const VALUE_BYTES: usize = 96;
const _: () = assert!(VALUE_BYTES >= size_of::<Value>(), "a value in an array is weighed by less than it takes");
/// What an array or an object takes beside what it has: its first allocation.
const LIST_BYTES: usize = 144;
/// What a member of an object takes beside its name's characters.
const MEMBER_BYTES: usize = 192;
/// What a number that is kept as it was written takes beside its digits: an object of one member.
const NUMBER_BYTES: usize = LIST_BYTES + VALUE_BYTES + MEMBER_BYTES;

/// Why a text is not taken.
#[derive(Debug, thiserror::Error)]
pub(in crate::http) enum JsonError {
    /// It is no JSON, or says one thing twice.
    #[error("the body is not valid JSON: {0}")]
    Invalid(#[from] serde_json::Error),
    /// Taken apart it would be too large.
    #[error(
        "the body would take about {got} bytes when it is taken apart, at most {PARSED_BYTES_MAX} are allowed: it has very many values"
    )]
    TooLarge {
        /// About how many bytes.
        got: usize,
    },
}

/// About how many bytes a text takes once it is parsed, never much less, and with it the JSON within its strings:
/// arguments of calls and schemas are taken apart with it. What is no JSON is weighed somehow.
pub(in crate::http) fn weight(text: &[u8]) -> usize {
    let (mut bytes, mut i) = (VALUE_BYTES, 0);
    while let Some(&byte) = text.get(i) {
        match byte {
            b'[' | b'{' => bytes += LIST_BYTES + VALUE_BYTES,
            b',' => bytes += VALUE_BYTES,
            b':' => bytes += MEMBER_BYTES,
            b'"' => {
                let end = end_of_string(text, i + 1);
                bytes += end - i + weight_within(&text[i..(end + 1).min(text.len())]);
                i = end;
            }
            _ => {}
        }
        i += 1;
    }
    bytes
}

/// What the JSON that a string is, quotes and all, takes beside the string; 0 for any other text.
fn weight_within(string: &[u8]) -> usize {
    let first = string[1..].iter().find(|byte| **byte != b' ');
    // An escape may stand for what JSON begins with, or for white space before it.
    if !first.is_some_and(|byte| b"{[\\".contains(byte)) {
        return 0;
    }
    let Ok(text) = serde_json::from_slice::<String>(string) else { return 0 };
    if text.trim_start().starts_with(['{', '[']) { weight(text.as_bytes()) } else { 0 }
}

/// Where the quote is that ends a string, or the end of the text.
fn end_of_string(text: &[u8], from: usize) -> usize {
    let mut i = from;
    while let Some(&byte) = text.get(i) {
        match byte {
            b'"' => return i,
            b'\\' => i += 2,
            _ => i += 1,
        }
    }
    text.len()
}

/// The value of a text that is not too large to be one.
pub(in crate::http) fn parse(text: &[u8]) -> Result<Value, JsonError> {
    checked_weight(weight(text))?;
    match std::str::from_utf8(text) {
        Ok(text) => Ok(Text::plain(text).read(true)?),
        // It is no JSON either, and this reader says where.
        Err(_) => Ok(serde_json::from_slice(text)?),
    }
}

/// The value of such a text, in which numbers are kept as they were written in the values under these keys.
pub(in crate::http) fn parse_with_numbers(text: &str, keys: &[&str]) -> Result<Value, JsonError> {
    let kept = Text::with_numbers_within(text, keys);
    checked_weight(weight(text.as_bytes()) + kept.kept() * NUMBER_BYTES)?;
    Ok(kept.read(true)?)
}

fn checked_weight(got: usize) -> Result<(), JsonError> {
    if got > PARSED_BYTES_MAX { Err(JsonError::TooLarge { got }) } else { Ok(()) }
}

/// A log-probability as JSON has it: there is no minus infinity.
pub(in crate::http) fn logprob(value: f32) -> Value {
    json!(if value.is_finite() { value.max(-9999.0) } else { -9999.0 })
}

/// An object of these entries, those without a value left out.
pub(in crate::http) fn object<const N: usize>(entries: [(&str, Option<Value>); N]) -> Value {
    Value::Object(entries.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v?))).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_what_the_usual_reader_makes_of_it() {
        for text in [
            r#"{"a": [1, -2, 3.5, 1e300, "x\n\u00e9", true, null, {"b": {}}], "c": 18446744073709551615}"#,
            "[]",
            "\"\"",
            " 7 ",
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
        for text in ["", "{", "[1,]", "{} {}", "1e999", "\"\\ud800\""] {
            let (ours, theirs) =
                (parse(text.as_bytes()).unwrap_err(), serde_json::from_str::<Value>(text).unwrap_err());
            assert_eq!(ours.to_string(), format!("the body is not valid JSON: {theirs}"));
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert!(parse(deep.as_bytes()).unwrap_err().to_string().contains("recursion limit"));
    }

    #[test]
    fn a_name_that_stands_twice_is_refused_at_any_depth() {
        let error = parse(br#"{"a": [{"role": 1, "x": 2, "role": 3}]}"#).unwrap_err().to_string();
        assert!(error.contains("the name \"role\" stands twice in one object"), "{error}");
        assert!(parse(br#"{"a": {"b": 1}, "b": {"a": 1}}"#).is_ok());
    }

    /// Bytes that a value holds on the heap, counted from its lengths: less than what the allocator gives.
    fn held(value: &Value) -> usize {
        match value {
            Value::String(text) => text.len(),
            Value::Array(list) => list.iter().map(|v| size_of::<Value>() + held(v)).sum(),
            Value::Object(map) => map.iter().map(|(k, v)| 2 * size_of::<Value>() + k.len() + held(v)).sum(),
            _ => 0,
        }
    }

    #[test]
    fn a_text_weighs_at_least_what_it_takes_and_a_plain_one_little_more_than_its_bytes() {
        for text in [
            format!("[{}]", vec!["[0]"; 1000].join(",")),
            format!("[{}]", vec!["{\"a\":{}}"; 1000].join(",")),
            format!("[{}]", vec!["\"\""; 1000].join(",")),
            format!("{{\"a,b:[{{\": \"{}\"}}", "\\\"[,".repeat(1000)),
        ] {
            let value = parse(text.as_bytes()).unwrap();
            assert!(weight(text.as_bytes()) >= held(&value), "{text:.40}");
            // As the arguments of a call: each escape may hide what begins it.
            for begin in ["", " ", "\\n", "\\u0020"] {
                let inside = serde_json::to_string(&text).unwrap();
                let outer = format!("{{\"arguments\": \"{begin}{}", &inside[1..]) + "}";
                assert!(parse(outer.as_bytes()).is_ok() && weight(outer.as_bytes()) >= text.len() + held(&value));
            }
        }
        let plain = format!("{{\"content\": \"{}\"}}", "x".repeat(10_000));
        assert!(weight(plain.as_bytes()) < plain.len() + 1_000);
    }

    #[test]
    fn what_would_be_too_large_is_refused_before_it_is_made() {
        let schema = format!("{{\"a\": [{}]}}", vec!["[0]"; 1 << 19].join(","));
        let error = parse(schema.as_bytes()).unwrap_err();
        assert!(matches!(error, JsonError::TooLarge { got } if got > 64 << 20), "{error}");
        let ids = format!("[{}]", vec!["1234"; 600_000].join(","));
        assert!(parse(ids.as_bytes()).is_ok(), "as many ids as the largest prompts have");
    }
}

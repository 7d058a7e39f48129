//! Numbers as they were written. A JSON value holds numbers as machine integers and doubles, which loses digits of
//! some; a template has to show what the caller wrote, or what a model said in one turn would read differently in the
//! next. So a number that would change is kept as an object of one entry under a name that nobody else uses, from where
//! JSON is read to where the template shows it.

use super::python::float;
use crate::limits::NUMBERS_KEPT_MAX;
use minijinja::Value;
use minijinja::value::{Object, ObjectRepr};
use serde::de::IgnoredAny;
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Begins with a noncharacter, which interchanged text does not contain.
const NAME: &str = "\u{fdd1}number";
/// Decimal digits that every double keeps.
const DIGITS_KEPT: usize = 15;

/// Reads JSON so that every number keeps its digits.
pub fn parse(text: &str) -> Result<Json, serde_json::Error> {
    match kept(text, None) {
        // An error is told of the text as it came.
        Cow::Owned(kept) => serde_json::from_str(&kept).or_else(|_| serde_json::from_str(text)),
        Cow::Borrowed(same) => serde_json::from_str(same),
    }
}

/// A text of JSON that is read as an object, made so that every number in the values of these of its keys keeps its
/// digits.
pub fn kept_within<'a>(text: &'a str, keys: &[&str]) -> Cow<'a, str> {
    kept(text, Some(keys))
}

/// The number that an object stands for, if it stands for one.
pub fn number(map: &Map<String, Json>) -> Option<&str> {
    map.get(NAME).filter(|_| map.len() == 1)?.as_str()
}

/// A value in which every number is one, as near as a value can hold it.
pub fn plain(value: &Json) -> Json {
    match value {
        Json::Array(items) => items.iter().map(plain).collect(),
        Json::Object(map) => match number(map) {
            Some(number) => serde_json::from_str(number).unwrap_or(Json::Null),
            None => map.iter().map(|(key, value)| (key.clone(), plain(value))).collect(),
        },
        other => other.clone(),
    }
}

/// A text of JSON, in which numbers that a value cannot hold are the objects that stand for them.
fn kept<'a>(text: &'a str, keys: Option<&[&str]>) -> Cow<'a, str> {
    let bytes = text.as_bytes();
    let (mut out, mut copied, mut count) = (String::new(), 0, 0);
    let (mut at, mut depth, mut wanted) = (0, 0usize, keys.is_none());
    while at < bytes.len() && count < NUMBERS_KEPT_MAX {
        match bytes[at] {
            b'"' => {
                let end = string_end(bytes, at);
                if let Some(keys) = keys.filter(|_| depth == 1 && bytes[end..].trim_ascii_start().starts_with(b":")) {
                    wanted = keys.contains(&text[at..end].trim_matches('"'));
                }
                at = end;
            }
            b'-' | b'0'..=b'9' => {
                let len = bytes[at..]
                    .iter()
                    .take_while(|b| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
                    .count();
                let number = &text[at..at + len];
                if wanted && !is_held(number) && serde_json::from_str::<IgnoredAny>(number).is_ok() {
                    out.push_str(&text[copied..at]);
                    out.push_str(&format!("{{\"{NAME}\":\"{number}\"}}"));
                    (copied, count) = (at + len, count + 1);
                }
                at += len;
            }
            byte => {
                depth += usize::from(matches!(byte, b'{' | b'['));
                depth -= usize::from(matches!(byte, b'}' | b']') && depth > 0);
                at += 1;
            }
        }
    }
    if count == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Where the string that begins at `at` ends.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != b'"' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    (end + 1).min(bytes.len())
}

/// Whether a value would be shown as it was written.
fn is_held(number: &str) -> bool {
    if number.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
        let short = number.len() <= DIGITS_KEPT && number != "-0";
        return short || number.parse::<i64>().is_ok_and(|n| n.to_string() == number) || number.parse::<u64>().is_ok();
    }
    number.len() <= DIGITS_KEPT && number.parse().is_ok_and(|x| float(x) == number)
}

/// A number in a template, which shows it as it was written.
#[derive(Debug)]
pub(super) struct Written(String);

impl Written {
    /// As a template's value.
    pub(super) fn value(number: &str) -> Value {
        Value::from_object(Self(number.to_owned()))
    }

    /// Whether a value is one.
    pub(super) fn of(value: &Value) -> Option<Arc<Self>> {
        value.downcast_object::<Self>()
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Object for Written {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn numbers_that_a_value_holds_are_left_alone() {
        for text in [
            "0",
            "-7",
            "9223372036854775807",
            "18446744073709551615",
            "-9223372036854775808",
            "0.5",
            "-12.25",
            "1.0",
            "[1, 2.5]",
        ] {
            assert!(matches!(kept(text, None), Cow::Borrowed(_)), "{text}");
        }
        assert_eq!(
            kept(r#"{"a": "1e5 \" -0", "b": "c\\"}"#, None),
            r#"{"a": "1e5 \" -0", "b": "c\\"}"#,
            "strings are no numbers"
        );
    }

    #[test]
    fn numbers_that_a_value_would_change_are_kept() {
        for text in [
            "-0",
            "0.37331193139504204",
            "123456789012345678901234567890",
            "1e5",
            "1E400",
            "-0.0e-7",
            "1.50",
            "-9223372036854775809",
        ] {
            let Json::Object(map) = parse(text).unwrap() else { panic!("{text}") };
            assert_eq!(number(&map), Some(text));
        }
        for text in ["01", "1.", "-", "1e", "--1", "1e400", "[1e400"] {
            let plain = serde_json::from_str::<Json>(text).is_ok();
            assert!(parse(text).is_ok() == plain || text == "1e400", "{text}");
        }
    }

    #[test]
    fn only_the_values_of_the_given_keys_are_looked_at() {
        let text = r#"{"temperature": 1e0, "tools": [{"x": 1e0, "temperature": 1e0}], "seed": 1e0, "messages" : 1e0}"#;
        let value: Json = serde_json::from_str(&kept_within(text, &["tools", "messages"])).unwrap();
        let kept = json!({NAME: "1e0"});
        assert_eq!(value["temperature"], json!(1.0));
        assert_eq!((&value["tools"][0]["x"], &value["tools"][0]["temperature"]), (&kept, &kept));
        assert_eq!((&value["seed"], &value["messages"]), (&json!(1.0), &kept));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_as_without(text in "[\\[\\]{}:, \"\\\\a0-9.eE+-]{0,40}") {
            let plain = serde_json::from_str::<Json>(&text);
            let got = parse(&text);
            prop_assert!(got.is_ok() || plain.is_err(), "{:?}", text);
        }

        #[test]
        fn a_double_is_shown_with_all_its_digits(bits: u64) {
            let x = f64::from_bits(bits);
            prop_assume!(x.is_finite());
            let text = float(x);
            let shown = match parse(&text).unwrap() {
                Json::Object(map) => number(&map).unwrap().to_owned(),
                Json::Number(n) => n.as_i64().map_or_else(|| float(n.as_f64().unwrap()), |n| n.to_string()),
                other => panic!("{other}"),
            };
            prop_assert_eq!(shown, text);
        }
    }
}

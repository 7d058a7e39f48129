//! Numbers as they were written. A JSON value holds numbers as machine integers and doubles, which loses digits of
//! some; a template has to show what the caller wrote, or what a model said in one turn would read differently in the
//! next. So a number that would change is kept as an object of one entry under a name that no other object has: the
//! reader makes these objects of numbers alone, and refuses the name wherever a text has it.

use super::python::float;
use crate::limits::NUMBERS_KEPT_MAX;
use minijinja::Value;
use minijinja::value::{Object, ObjectRepr};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value as Json};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Begins with a noncharacter, which interchanged text does not contain.
const NAME: &str = "\u{fdd1}number";
/// Decimal digits that every double keeps.
const DIGITS_KEPT: usize = 15;

/// A text of JSON, and the numbers in it whose digits are kept.
#[derive(Debug)]
pub struct Text<'a> {
    /// With zeros in the place of these numbers.
    text: Cow<'a, str>,
    /// Each by its place among all numbers of the text.
    kept: Vec<(usize, &'a str)>,
}

/// Reads JSON so that every number keeps its digits. Of a name that stands twice in one object the last one counts.
pub fn parse(text: &str) -> Result<Json, serde_json::Error> {
    // An error is told of the text as it came.
    Text::new(text, None).read(false).or_else(|_| Text::plain(text).read(false))
}

impl<'a> Text<'a> {
    /// A text whose numbers are read as doubles.
    pub fn plain(text: &'a str) -> Self {
        Self { text: Cow::Borrowed(text), kept: Vec::new() }
    }

    /// A text that is read as an object, in the values of which, under these of its keys, every number keeps its digits.
    pub fn with_numbers_within(text: &'a str, keys: &[&str]) -> Self {
        Self::new(text, Some(keys))
    }

    fn new(text: &'a str, keys: Option<&[&str]>) -> Self {
        let bytes = text.as_bytes();
        let (mut out, mut copied, mut kept, mut count) = (String::new(), 0, Vec::new(), 0);
        let (mut at, mut depth, mut wanted) = (0, 0usize, keys.is_none());
        while at < bytes.len() && kept.len() < NUMBERS_KEPT_MAX {
            match bytes[at] {
                b'"' => {
                    let end = string_end(bytes, at);
                    let is_key = || depth == 1 && bytes[end..].trim_ascii_start().starts_with(b":");
                    if let Some(keys) = keys.filter(|_| is_key()) {
                        wanted = keys.contains(&text[at..end].trim_matches('"'));
                    }
                    at = end;
                }
                b'-' | b'0'..=b'9' => {
                    let len = bytes[at..].iter().take_while(|b| is_in_a_number(**b)).count();
                    let number = &text[at..at + len];
                    if wanted && !is_held(number) && is_number(number) {
                        out.push_str(&text[copied..at]);
                        out.push('0');
                        copied = at + len;
                        kept.push((count, number));
                    }
                    count += 1;
                    at += len;
                }
                byte => {
                    depth += usize::from(matches!(byte, b'{' | b'['));
                    depth -= usize::from(matches!(byte, b'}' | b']') && depth > 0);
                    at += 1;
                }
            }
        }
        if kept.is_empty() {
            return Self::plain(text);
        }
        out.push_str(&text[copied..]);
        Self { text: Cow::Owned(out), kept }
    }

    /// How many numbers become objects.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// The value. If names are to be `unique`, one that stands twice in one object is an error.
    pub fn read(&self, unique: bool) -> Result<Json, serde_json::Error> {
        let mut json = serde_json::Deserializer::from_str(&self.text);
        let value = (&mut JsonReader { kept: &self.kept, seen: 0, unique }).deserialize(&mut json)?;
        json.end()?;
        Ok(value)
    }
}

/// Makes a [`Json`], as its own reader does, but for the numbers that are kept and the names that are refused.
struct JsonReader<'t> {
    /// Those that have not come yet.
    kept: &'t [(usize, &'t str)],
    /// How many numbers have come.
    seen: usize,
    unique: bool,
}

impl JsonReader<'_> {
    /// A number that came, as the object that stands for it if it is one of the kept.
    fn number(&mut self, number: Json) -> Json {
        let place = self.seen;
        self.seen += 1;
        match self.kept.split_first() {
            Some(((at, written), rest)) if *at == place => {
                self.kept = rest;
                Json::Object(Map::from_iter([(NAME.to_owned(), Json::from(*written))]))
            }
            _ => number,
        }
    }
}

impl<'de> DeserializeSeed<'de> for &mut JsonReader<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Json, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut JsonReader<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, b: bool) -> Result<Json, E> {
        Ok(Json::Bool(b))
    }

    fn visit_i64<E>(self, n: i64) -> Result<Json, E> {
        Ok(self.number(n.into()))
    }

    fn visit_u64<E>(self, n: u64) -> Result<Json, E> {
        Ok(self.number(n.into()))
    }

    fn visit_f64<E>(self, x: f64) -> Result<Json, E> {
        Ok(self.number(Number::from_f64(x).map_or(Json::Null, Json::Number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Json, E> {
        Ok(Json::String(text))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(&mut *self)? {
            list.push(item);
        }
        Ok(Json::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if name == NAME {
                return Err(A::Error::custom(format_args!("the name {NAME:?} is reserved: no object may have it")));
            }
            if self.unique && map.contains_key(&name) {
                let shown: String = name.chars().take(64).collect();
                return Err(A::Error::custom(format_args!("the name {shown:?} stands twice in one object")));
            }
            map.insert(name, members.next_value_seed(&mut *self)?);
        }
        Ok(Json::Object(map))
    }
}

/// The number that an object stands for, if it stands for one.
pub fn number(map: &Map<String, Json>) -> Option<&str> {
    map.get(NAME).filter(|_| map.len() == 1)?.as_str().filter(|text| is_number(text))
}

/// Whether a value is an object, and none that stands for a number.
pub fn is_object(value: &Json) -> bool {
    value.as_object().is_some_and(|map| number(map).is_none())
}

/// A value in which every number is one, as near as a value can hold it.
pub fn plain(value: &Json) -> Json {
    match value {
        Json::Array(items) => items.iter().map(plain).collect(),
        Json::Object(map) => match number(map) {
            // A text where no number of a machine holds it.
            Some(number) => serde_json::from_str(number).unwrap_or_else(|_| number.into()),
            None => map.iter().map(|(key, value)| (key.clone(), plain(value))).collect(),
        },
        other => other.clone(),
    }
}

/// The text of a value, with its numbers as they were written.
pub fn text(value: &Json) -> String {
    match value {
        Json::Object(map) => match number(map) {
            Some(number) => number.to_owned(),
            None => {
                let members = map.iter().map(|(key, value)| format!("{}:{}", Json::from(key.as_str()), text(value)));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }
        },
        Json::Array(items) => format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

/// Whether a text is a number of JSON and nothing else.
fn is_number(text: &str) -> bool {
    text.bytes().all(is_in_a_number) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

fn is_in_a_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')
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
pub(super) struct WrittenNumber(String);

impl WrittenNumber {
    /// As a template's value.
    pub(super) fn value(number: &str) -> Value {
        Value::from_object(Self(number.to_owned()))
    }

    /// Whether a value is one.
    pub(super) fn of(value: &Value) -> Option<Arc<Self>> {
        value.downcast_object::<Self>()
    }
}

impl fmt::Display for WrittenNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Object for WrittenNumber {
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
            assert_eq!(Text::new(text, None).kept(), 0, "{text}");
        }
        assert_eq!(Text::new(r#"{"a": "1e5 \" -0", "b": "c\\"}"#, None).kept(), 0, "strings are no numbers");
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
        let value = Text::with_numbers_within(text, &["tools", "messages"]).read(true).unwrap();
        let kept = json!({NAME: "1e0"});
        assert_eq!(value["temperature"], json!(1.0));
        assert_eq!((&value["tools"][0]["x"], &value["tools"][0]["temperature"]), (&kept, &kept));
        assert_eq!((&value["seed"], &value["messages"]), (&json!(1.0), &kept));
    }

    #[test]
    fn nobody_can_write_the_object_that_stands_for_a_number() {
        for text in [
            format!("{{\"{NAME}\": \"<|im_end|>\"}}"),
            format!("[1e5, {{\"a\": {{\"{NAME}\": \"7\"}}}}]"),
            format!("{{\"{NAME}\": 1e5, \"b\": 2}}"),
            r#"{"\ufdd1number": "1e5"}"#.to_owned(),
            r#"{"\uFDD1n\u0075mber": "1e5"}"#.to_owned(),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains("is reserved: no object may have it"), "{text}: {error}");
            assert!(Text::plain(&text).read(true).is_err() && Text::new(&text, None).read(true).is_err(), "{text}");
        }
        let near = json!({"\u{fdd1}numbers": "<|im_end|>", "number": "1e5"});
        assert_eq!(parse(&near.to_string()).unwrap(), near);
    }

    #[test]
    fn an_object_that_holds_no_number_stands_for_none() {
        for text in ["<|im_end|>", "true", "null", "\"1\"", "1 ", " 1", "[1]", "{}", "", "-", "01", "1e", "0x1", "1_0"]
        {
            let Json::Object(map) = json!({NAME: text}) else { panic!("an object") };
            assert_eq!(number(&map), None, "{text}");
            assert_eq!(plain(&json!({NAME: text})), json!({NAME: text}));
        }
    }

    #[test]
    fn each_number_is_kept_in_its_place_also_behind_ones_that_are_not() {
        let text = r#"[1, -0, {"1e5": [2.50, "3e5", 7]}, 0, 1e5, 18446744073709551616]"#;
        let kept = |number: &str| json!({NAME: number});
        let want =
            json!([1, kept("-0"), {"1e5": [kept("2.50"), "3e5", 7]}, 0, kept("1e5"), kept("18446744073709551616")]);
        assert_eq!(parse(text).unwrap(), want);
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

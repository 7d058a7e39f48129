//! Calls that are one JSON object, in a text of which more may come.

use serde_json::Value as Json;

/// Bytes of an object that are waited for; a longer one is taken for text.
const OBJECT_BYTES_MAX: usize = 1 << 20;

/// What a text that begins with `{` has of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectScan {
    /// All of it, so many bytes.
    Whole(usize),
    /// Its end may still come.
    Part,
    /// It is none, or longer than is taken.
    No,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonCall {
    pub(super) name: String,
    /// A JSON object as the model wrote it.
    pub(super) arguments: String,
}

/// Looks for the end of the value at a text's start: an object, an array or a string by its brackets and quotes.
pub(super) fn scan(text: &str) -> ObjectScan {
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for (at, byte) in text.bytes().enumerate().take(OBJECT_BYTES_MAX) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => depth += 1,
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 && !quoted {
            return ObjectScan::Whole(at + 1);
        }
    }
    if text.len() < OBJECT_BYTES_MAX { ObjectScan::Part } else { ObjectScan::No }
}

impl JsonCall {
    /// From a whole object; `None` if it is no call. Arguments keep the digits of their numbers, so they are cut from
    /// the text rather than written again.
    pub(super) fn read(object: &str) -> Option<Self> {
        let call: Json = serde_json::from_str(object).ok()?;
        let name = call.get("name")?.as_str()?.to_owned();
        let key = ["arguments", "parameters"].into_iter().find(|key| call.get(key).is_some());
        let arguments = match key.map(|key| (key, &call[key])) {
            None | Some((_, Json::Null)) => "{}".to_owned(),
            Some((key, Json::Object(_))) => value_of(object, key)?.to_owned(),
            // Some models write the object as a string.
            Some((_, Json::String(text))) => {
                serde_json::from_str::<Json>(text).ok().filter(Json::is_object).map(|_| text.clone())?
            }
            Some(_) => return None,
        };
        Some(Self { name, arguments })
    }
}

/// The text of the object that `key` has in an object that was read before.
fn value_of<'a>(object: &'a str, key: &str) -> Option<&'a str> {
    let mut at = 1;
    loop {
        let name = at + object[at..].find('"')?;
        let ObjectScan::Whole(len) = scan(&object[name..]) else { return None };
        let colon = name + len + object[name + len..].find(':')? + 1;
        let value = object.len() - object[colon..].trim_start().len();
        let is_nested = object[value..].starts_with(['{', '[', '"']);
        let end = match scan(&object[value..]) {
            ObjectScan::Whole(len) if is_nested => value + len,
            // A number or a word ends where the next entry begins, or the object.
            _ => value + object[value..].find([',', '}'])?,
        };
        if serde_json::from_str::<String>(&object[name..name + len]).is_ok_and(|name| name == key) {
            return Some(&object[value..end]);
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_object_is_told_by_its_brackets_outside_of_strings() {
        assert_eq!(scan(r#"{"a": "}\"}", "b": [{}]} rest"#), ObjectScan::Whole(24));
        assert_eq!(scan(r#"{"a": "}"#), ObjectScan::Part);
        assert_eq!(scan("{"), ObjectScan::Part);
        assert_eq!(scan(&("{".to_owned() + &" ".repeat(OBJECT_BYTES_MAX))), ObjectScan::No);
    }

    #[test]
    fn arguments_are_those_that_were_written() {
        let read = |text: &str| JsonCall::read(text).map(|call| (call.name, call.arguments));
        let call = |name: &str, arguments: &str| Some((name.to_owned(), arguments.to_owned()));
        assert_eq!(
            read(r#"{"name": "f", "arguments": {"x": 123456789012345678901234567890, "s": "}"}}"#),
            call("f", r#"{"x": 123456789012345678901234567890, "s": "}"}"#)
        );
        assert_eq!(read(r#"{"id": 1, "arguments":{"a":[1,{}]}, "name":"g"}"#), call("g", r#"{"a":[1,{}]}"#));
        assert_eq!(read(r#"{"name": "f"}"#), call("f", "{}"));
        assert_eq!(read(r#"{"name": "f", "arguments": null}"#), call("f", "{}"));
        assert_eq!(read(r#"{"name": "f", "arguments": "{\"a\": 1}"}"#), call("f", r#"{"a": 1}"#));
        for none in [r#"{"arguments": {}}"#, r#"{"name": "f", "arguments": [1]}"#, "{}", "{name}"] {
            assert_eq!(read(none), None, "{none}");
        }
    }
}

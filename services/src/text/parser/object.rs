//! Calls that are one JSON object, in a text of which more may come.

use serde_json::Value as Json;

/// Bytes of an object that are waited for; a longer one is taken for text.
const OBJECT_BYTES_MAX: usize = 1 << 20;

/// What the arguments of a call are called.
const ARGUMENTS: [&str; 2] = ["arguments", "parameters"];

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
    ObjectScanner::default().scan(text)
}

/// How far a text was looked at that comes in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ObjectScanner {
    seen: usize,
    depth: usize,
    quoted: bool,
    escaped: bool,
}

impl ObjectScanner {
    /// As [`scan`], of a text that has become longer since the last time.
    pub(super) fn scan(&mut self, text: &str) -> ObjectScan {
        for byte in text.bytes().take(OBJECT_BYTES_MAX).skip(self.seen) {
            self.seen += 1;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.quoted => self.escaped = true,
                b'"' => self.quoted = !self.quoted,
                b'{' | b'[' if !self.quoted => self.depth += 1,
                b'}' | b']' if !self.quoted => self.depth = self.depth.saturating_sub(1),
                _ => continue,
            }
            if self.depth == 0 && !self.quoted {
                return ObjectScan::Whole(self.seen);
            }
        }
        if text.len() < OBJECT_BYTES_MAX { ObjectScan::Part } else { ObjectScan::No }
    }
}

impl JsonCall {
    /// From a whole object; `None` if it is no call. Arguments keep the digits of their numbers, so they are cut from
    /// the text rather than written again.
    pub(super) fn read(object: &str) -> Option<Self> {
        let call: Json = serde_json::from_str(object).ok()?;
        let name = call.get("name")?.as_str()?.to_owned();
        let key = ARGUMENTS.into_iter().find(|key| call.get(key).is_some());
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

    /// From an object whose end is missing, and whether the arguments are whole; `None` if its name is missing too.
    pub(super) fn begun(object: &str) -> Option<(Self, bool)> {
        let mut members = Members { object, at: 1 };
        let named = members.find(|member| member.key == "name" && member.is_whole)?;
        let name = serde_json::from_str(named.value).ok()?;
        let arguments = Members { object, at: 1 }
            .find(|member| ARGUMENTS.contains(&member.key.as_str()) && member.value.starts_with('{'));
        let (arguments, is_whole) = arguments.map_or(("{", false), |member| (member.value, member.is_whole));
        Some((Self { name, arguments: arguments.to_owned() }, is_whole))
    }

    /// The arguments of a call of this name that came as an object of their own, or with the name around them.
    pub(super) fn arguments_of(object: &str, name: &str) -> Option<String> {
        let whole: Json = serde_json::from_str(object).ok()?;
        let is_wrapped = whole["name"] == name && ARGUMENTS.iter().any(|key| whole.get(key).is_some());
        let wrapped = Self::read(object).filter(|_| is_wrapped);
        Some(wrapped.map_or_else(|| object.to_owned(), |call| call.arguments))
    }
}

/// The text of the object that `key` has in an object that was read before.
fn value_of<'a>(object: &'a str, key: &str) -> Option<&'a str> {
    Members { object, at: 1 }.find(|member| member.key == key).map(|member| member.value)
}

/// The members of an object, of which the last may not have ended.
struct Members<'a> {
    object: &'a str,
    at: usize,
}

struct ObjectMember<'a> {
    key: String,
    value: &'a str,
    is_whole: bool,
}

impl<'a> Iterator for Members<'a> {
    type Item = ObjectMember<'a>;

    fn next(&mut self) -> Option<ObjectMember<'a>> {
        let Self { object, at } = *self;
        let name = at + object.get(at..)?.find('"')?;
        let ObjectScan::Whole(len) = scan(&object[name..]) else { return None };
        let key = serde_json::from_str(&object[name..name + len]).ok()?;
        let colon = name + len + object[name + len..].find(':')? + 1;
        let value = object.len() - object[colon..].trim_start().len();
        let is_nested = object[value..].starts_with(['{', '[', '"']);
        let len = match scan(&object[value..]) {
            ObjectScan::Whole(len) if is_nested => Some(len),
            _ if is_nested => None,
            // A number or a word ends where the next entry begins, or the object.
            _ => object[value..].find([',', '}']),
        };
        self.at = len.map_or(object.len(), |len| value + len);
        Some(ObjectMember { key, value: &object[value..self.at], is_whole: len.is_some() })
    }
}

/// Whether a text begins with an object, as far as its first member or end; `None` when more text is needed to tell.
pub(super) fn begins_object(text: &str) -> Option<bool> {
    let Some(inside) = text.strip_prefix('{') else { return Some(false) };
    inside.trim_start().chars().next().map(|first| matches!(first, '"' | '}'))
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
    fn a_text_in_pieces_is_looked_at_once_and_ends_where_the_whole_one_does() {
        let text = r#"{"a\"\\": "}\"}", "b": [{}, "é\\"]} rest"#;
        let ObjectScan::Whole(end) = scan(text) else { panic!("an object") };
        for cuts in 1..8 {
            let mut scanner = ObjectScanner::default();
            let places =
                (0..=text.len()).filter(|at| text.is_char_boundary(*at) && (at % cuts == 0 || *at == text.len()));
            let mut found = places.map(|at| (at, scanner.scan(&text[..at]), scanner.seen));
            let first = found.find(|(at, scan, seen)| *scan != ObjectScan::Part || seen != at);
            assert_eq!(first.map(|(_, scan, _)| scan), Some(ObjectScan::Whole(end)), "pieces of {cuts}");
        }
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

//! The arguments of an earlier call, as a client sends them back. A call that was cut by a token limit has arguments
//! that are no whole JSON, and the conversation has to go on with them.

use super::template::written;
use serde_json::{Value as Json, json};

/// The argument that holds a text of which nothing can be read.
const WHOLE_TEXT: &str = "arguments";

/// Why a text holds no arguments.
#[derive(Debug)]
pub enum ArgumentsError {
    /// It is JSON, but no object.
    NotAnObject(Json),
    /// An object in it has a name that no object may have. The message names it.
    ReservedName(String),
}

/// The arguments that a text holds. A text that is cut gives the members that came before its end, the last one as far
/// as it came if it is a string; any other text that is no JSON becomes one argument.
pub fn read(text: &str) -> Result<Json, ArgumentsError> {
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    match written::parse(text) {
        Ok(value) if written::is_object(&value) => Ok(value),
        Ok(value) => Err(ArgumentsError::NotAnObject(value)),
        // Text that is no JSON, or not all of it, is a fault of syntax.
        Err(error) if error.is_data() => Err(ArgumentsError::ReservedName(error.to_string())),
        Err(_) => Ok(cut_object(text).unwrap_or_else(|| json!({WHOLE_TEXT: text}))),
    }
}

/// The object that a text begins and does not end.
fn cut_object(text: &str) -> Option<Json> {
    let place = Place::at_end_of(text);
    let candidates =
        [Some(place.closed(text)), place.last_whole.as_ref().map(|(end, open)| closed(&text[..*end], open))];
    let mut objects = candidates.into_iter().flatten().filter_map(|text| written::parse(&text).ok());
    objects.find(written::is_object)
}

/// The place in JSON at which a text ends.
#[derive(Default)]
struct Place {
    /// The closing signs of all lists and objects that are open, the innermost last.
    open: Vec<char>,
    in_string: bool,
    /// The start of an escape that has not ended.
    escape: Option<usize>,
    /// The end of the last value with another one or an end behind it, and the closing signs that were open there.
    last_whole: Option<(usize, Vec<char>)>,
}

impl Place {
    fn at_end_of(text: &str) -> Self {
        let mut place = Self::default();
        for (at, c) in text.char_indices() {
            match place.in_string {
                true => place.take_in_string(at, c),
                false => place.take(at, c),
            }
        }
        place
    }

    fn take_in_string(&mut self, at: usize, c: char) {
        let Some(start) = self.escape else {
            match c {
                '\\' => self.escape = Some(at),
                '"' => self.in_string = false,
                _ => {}
            }
            return;
        };
        // An escape is `\n` or the like, or `\u` and four digits.
        let long = c == 'u' && at == start + 1;
        if !long && (at == start + 1 || at == start + 5) {
            self.escape = None;
        }
    }

    fn take(&mut self, at: usize, c: char) {
        match c {
            '"' => self.in_string = true,
            '{' => self.open.push('}'),
            '[' => self.open.push(']'),
            ',' => self.last_whole = Some((at, self.open.clone())),
            '}' | ']' => {
                self.open.pop();
                self.last_whole = Some((at + 1, self.open.clone()));
            }
            _ => {}
        }
    }

    /// The text with an end for its string and for all that is open.
    fn closed(&self, text: &str) -> String {
        let text = &text[..self.escape.unwrap_or(text.len())];
        let quote = if self.in_string { "\"" } else { "" };
        closed(&format!("{text}{quote}"), &self.open)
    }
}

fn closed(text: &str, open: &[char]) -> String {
    text.chars().chain(open.iter().rev().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str, wanted: Json) {
        assert_eq!(written::plain(&read(text).unwrap()), wanted, "{text}");
    }

    #[test]
    fn a_call_that_was_cut_keeps_what_had_come() {
        reads(r#"{"path": "/a""#, json!({"path": "/a"}));
        reads(r#"{"path": "/a", "content": "hello wor"#, json!({"path": "/a", "content": "hello wor"}));
        reads(r#"{"path": "/a", "content": "a\"b\"#, json!({"path": "/a", "content": "a\"b"}));
        reads(r#"{"path": "/a", "content": "é\u00e"#, json!({"path": "/a", "content": "é"}));
        reads(r#"{"path": "/a", "lines": [1, {"n": 2}, 3"#, json!({"path": "/a", "lines": [1, {"n": 2}, 3]}));
        for rest in [",", ", ", ", \"b", ", \"b\"", ", \"b\":", ", \"b\": tr"] {
            reads(&format!("{{\"a\": 1{rest}"), json!({"a": 1}));
        }
        reads("{", json!({}));
        reads("  ", json!({}));
    }

    #[test]
    fn a_text_that_is_no_json_is_one_argument() {
        for text in ["ls -l", "{'a': 1}", "{\"a\" 1, \"b", "{\"a\"", "{\"a\": \"\\ud83d"] {
            let read = read(text).unwrap();
            assert!(written::is_object(&read), "{text}");
        }
        reads("ls -l", json!({"arguments": "ls -l"}));
        reads("{'a': 1}", json!({"arguments": "{'a': 1}"}));
    }

    #[test]
    fn whole_json_is_an_object_or_an_error() {
        reads(r#"{"n": 1}"#, json!({"n": 1}));
        for text in ["3", "[1]", "\"a\"", "null"] {
            assert!(matches!(read(text), Err(ArgumentsError::NotAnObject(_))), "{text}");
        }
        assert!(matches!(read("{\"a\": {\"\u{fdd1}number\": 1}}"), Err(ArgumentsError::ReservedName(_))));
    }
}

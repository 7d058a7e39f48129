//! Where the text of an answer is in its JSON, as far as keys are concerned.

use super::OpenKeys;
use crate::text::Tokenizer;
use crate::text::tokenizer::TokenKind;
use chimere_engine::ids::TokenId;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// The bytes of a line of markup that are kept: those of a tag with the longest name that a call can carry.
const LINE_BYTES_MAX: usize = 1024;

/// The arguments of calls in tags that are written in JSON, as pairs of a tool and an argument.
pub(in crate::text::grammar) type JsonArguments = HashSet<(String, String)>;

/// The key is one that its object has, or is not written plainly.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::text::grammar) struct KeyForbidden;

/// Follows a text of JSON, or calls with JSON in them, and keeps the keys of the objects that are open.
#[derive(Clone, Debug, Default)]
pub(in crate::text::grammar) struct KeyTracker {
    open: Vec<Container>,
    place: TextPlace,
    /// The key that has begun, without escapes.
    key: Vec<u8>,
    /// Keys that are only tried out, with how many containers are open around each.
    tried: Vec<(usize, Vec<u8>)>,
    trial: bool,
    keys_may_run_out: bool,
    /// The arguments in JSON, where calls are written in tags.
    tags: Option<Arc<JsonArguments>>,
    /// The line of markup that has begun.
    line: Vec<u8>,
    function: String,
}

#[derive(Clone, Debug)]
enum Container {
    List,
    Object { keys: Arc<BTreeSet<Vec<u8>>>, key_next: bool },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TextPlace {
    /// No text has come.
    #[default]
    Start,
    /// Between the tags of calls.
    Markup,
    /// In an argument that is a text as it stands.
    Verbatim,
    /// Between the tokens of JSON, or in a number or a name of it.
    Between,
    /// In a string that is no key.
    Text,
    /// Behind a backslash in such a string.
    TextEscape,
    Key,
    KeyEscape,
    /// In `\uXXXX`, with the digits that have come and their value.
    KeyDigits {
        count: u8,
        value: u16,
    },
}

impl KeyTracker {
    /// For answers of a schema with such keys.
    pub(in crate::text::grammar) fn new(keys: OpenKeys) -> Self {
        Self { keys_may_run_out: keys == OpenKeys::Matching, ..Self::default() }
    }

    /// For outputs that may have calls in tags as well, with these arguments in JSON.
    pub(in crate::text::grammar) fn with_tags(self, arguments: JsonArguments) -> Self {
        Self { tags: Some(Arc::new(arguments)), ..self }
    }

    /// Makes this a copy of another one that keeps apart which keys come now.
    pub(super) fn start_trial(&mut self, of: &Self) {
        self.open.clone_from(&of.open);
        self.key.clone_from(&of.key);
        self.tried.clone_from(&of.tried);
        self.line.clone_from(&of.line);
        self.function.clone_from(&of.function);
        self.tags.clone_from(&of.tags);
        (self.place, self.keys_may_run_out, self.trial) = (of.place, of.keys_may_run_out, true);
    }

    /// Whether the keys that an object may have can be so few that all of them are used.
    pub(super) fn keys_may_run_out(&self) -> bool {
        self.keys_may_run_out
    }

    /// Whether an escape of a key has begun, which any token may go on.
    pub(super) fn is_in_escape(&self) -> bool {
        matches!(self.place, TextPlace::KeyEscape | TextPlace::KeyDigits { .. })
    }

    /// Reads the text of a token. Control tokens and markup are no JSON.
    pub(in crate::text::grammar) fn read(&mut self, tokenizer: &Tokenizer, token: TokenId) -> Result<(), KeyForbidden> {
        match tokenizer.kind(token) {
            TokenKind::Text => tokenizer.bytes(token).iter().try_for_each(|byte| self.read_byte(*byte)),
            _ => {
                self.open.clear();
                self.tried.clear();
                self.line.clear();
                self.place = if self.tags.is_some() { TextPlace::Markup } else { TextPlace::Between };
                Ok(())
            }
        }
    }

    fn read_byte(&mut self, byte: u8) -> Result<(), KeyForbidden> {
        match (self.place, byte) {
            (TextPlace::Start, b' ' | b'\n' | b'\r' | b'\t') => {}
            (TextPlace::Start | TextPlace::Between, b'<') if self.tags.is_some() && self.open.is_empty() => {
                self.line = vec![b'<'];
                self.place = TextPlace::Markup;
            }
            (TextPlace::Markup | TextPlace::Verbatim, b'\n') => self.end_line(),
            (TextPlace::Markup | TextPlace::Verbatim, byte) => {
                if self.line.len() < LINE_BYTES_MAX {
                    self.line.push(byte);
                }
            }
            (TextPlace::Start | TextPlace::Between, byte) => self.read_between(byte),
            (TextPlace::Text, b'"') => self.place = TextPlace::Between,
            (TextPlace::Text, b'\\') => self.place = TextPlace::TextEscape,
            (TextPlace::Text, _) => {}
            (TextPlace::TextEscape, _) => self.place = TextPlace::Text,
            (TextPlace::Key, b'"') => return self.end_key(),
            (TextPlace::Key, b'\\') => self.place = TextPlace::KeyEscape,
            (TextPlace::Key, byte) => self.key.push(byte),
            (TextPlace::KeyEscape, byte) => return self.read_escape(byte),
            (TextPlace::KeyDigits { count, value }, digit) => return self.read_digit(count, value, digit),
        }
        Ok(())
    }

    /// What a line of a call's markup begins.
    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let named = |tag: &str| line.strip_prefix(tag)?.strip_suffix('>').map(str::to_owned);
        if self.place == TextPlace::Verbatim {
            self.place = if line == "</parameter>" { TextPlace::Markup } else { TextPlace::Verbatim };
        } else if let Some(function) = named("<function=") {
            self.function = function;
        } else if let Some(argument) = named("<parameter=") {
            let argument = (self.function.clone(), argument);
            let json = self.tags.as_ref().is_some_and(|arguments| arguments.contains(&argument));
            self.place = if json { TextPlace::Between } else { TextPlace::Verbatim };
        }
    }

    fn read_between(&mut self, byte: u8) {
        self.place = TextPlace::Between;
        match byte {
            b'{' => self.open.push(Container::Object { keys: Arc::default(), key_next: true }),
            b'[' => self.open.push(Container::List),
            b'}' | b']' => {
                self.open.pop();
                self.tried.retain(|(depth, _)| *depth <= self.open.len());
            }
            b',' => {
                if let Some(Container::Object { key_next, .. }) = self.open.last_mut() {
                    *key_next = true;
                }
            }
            b'"' if matches!(self.open.last(), Some(Container::Object { key_next: true, .. })) => {
                self.key.clear();
                self.place = TextPlace::Key;
            }
            b'"' => self.place = TextPlace::Text,
            _ => {}
        }
    }

    fn end_key(&mut self) -> Result<(), KeyForbidden> {
        self.place = TextPlace::Between;
        let depth = self.open.len();
        let tried = self.tried.iter().any(|(at, key)| *at == depth && *key == self.key);
        let Some(Container::Object { keys, key_next }) = self.open.last_mut() else { return Ok(()) };
        *key_next = false;
        if tried || keys.contains(&self.key) {
            return Err(KeyForbidden);
        }
        if self.trial {
            self.tried.push((depth, self.key.clone()));
        } else {
            Arc::make_mut(keys).insert(std::mem::take(&mut self.key));
        }
        Ok(())
    }

    fn read_escape(&mut self, byte: u8) -> Result<(), KeyForbidden> {
        let plain = match byte {
            b'"' | b'\\' => byte,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'f' => 12,
            b'r' => b'\r',
            b'u' => {
                self.place = TextPlace::KeyDigits { count: 0, value: 0 };
                return Ok(());
            }
            _ => return Err(KeyForbidden),
        };
        self.key.push(plain);
        self.place = TextPlace::Key;
        Ok(())
    }

    /// Digits of a control character that has no shorter escape. All other characters are written plainly.
    fn read_digit(&mut self, count: u8, value: u16, digit: u8) -> Result<(), KeyForbidden> {
        let digit = char::from(digit).to_digit(16).ok_or(KeyForbidden)? as u16;
        let value = value << 4 | digit;
        match (count, value) {
            (0 | 1, 0) | (2, 0 | 1 | 7) => self.place = TextPlace::KeyDigits { count: count + 1, value },
            (3, 0..=7 | 0x0b | 0x0e..=0x1f | 0x7f) => {
                self.key.push(value as u8);
                self.place = TextPlace::Key;
            }
            _ => return Err(KeyForbidden),
        }
        Ok(())
    }

    /// Where the next key, or the one that has begun, is how an earlier one of its object begins: how deep the object
    /// is, and the key as far as it has come.
    pub(super) fn begins_like_earlier(&self) -> Option<(usize, Option<Vec<u8>>)> {
        let (depth, key) = self.key_to_come().filter(|_| self.keys_may_run_out)?;
        let alike = self.earlier(key.unwrap_or_default()).next().is_some();
        alike.then(|| (depth, key.map(<[u8]>::to_vec)))
    }

    /// What is left of the earlier keys that begin like the one that has begun.
    pub(super) fn rests_of_earlier(&self) -> impl Iterator<Item = &[u8]> {
        let key = if self.place == TextPlace::Key { Some(&self.key[..]) } else { None };
        key.into_iter().flat_map(move |key| self.earlier(key).map(move |earlier| &earlier[key.len()..]))
    }

    /// How deep the object is whose key comes next, and the key if it has begun.
    fn key_to_come(&self) -> Option<(usize, Option<&[u8]>)> {
        match (self.place, self.open.last()?) {
            (TextPlace::Key, _) => Some((self.open.len(), Some(&self.key))),
            (TextPlace::Between, Container::Object { key_next: true, .. }) => Some((self.open.len(), None)),
            _ => None,
        }
    }

    /// The earlier keys of the innermost object that begin like this.
    fn earlier<'a>(&'a self, like: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let keys = match self.open.last() {
            Some(Container::Object { keys, .. }) => Some(keys),
            _ => None,
        };
        let keys = keys.into_iter().flat_map(move |keys| keys.range(like.to_vec()..)).map(Vec::as_slice);
        let depth = self.open.len();
        let tried = self.tried.iter().filter(move |(at, _)| *at == depth).map(|(_, key)| key.as_slice());
        keys.take_while(move |key| key.starts_with(like)).chain(tried.filter(move |key| key.starts_with(like)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(tracker: &mut KeyTracker, text: &str) -> Result<(), KeyForbidden> {
        text.bytes().try_for_each(|byte| tracker.read_byte(byte))
    }

    #[track_caller]
    fn forbidden(text: &str) {
        let mut tracker = KeyTracker::new(OpenKeys::Any);
        let (last, before) = text.as_bytes().split_last().unwrap();
        assert_eq!(reads(&mut tracker, std::str::from_utf8(before).unwrap()), Ok(()), "{text}");
        assert_eq!(tracker.read_byte(*last), Err(KeyForbidden), "{text}");
    }

    #[test]
    fn keys_of_one_object_are_distinct_and_those_of_others_are_not_looked_at() {
        let text = r#"{"a": {"a": [{"a": "a\"", "b": 1}, {"a": {}}, "a", "a"]}, "b": "a", "": 0}"#;
        assert_eq!(reads(&mut KeyTracker::new(OpenKeys::Any), text), Ok(()));
        forbidden(r#"{"a": {"a": "\"}"}, "a""#);
        forbidden(r#"[{"\"\n": 1}, {"\"\n": 1, "\"\n""#);
        forbidden(r#"{"é": 1, "é""#);
    }

    #[test]
    fn a_key_has_escapes_for_what_cannot_be_written_plainly() {
        let text = r#"{"\u0001\u001F\u007f\n\\\"": "\u0061\ud83d\ude00"}"#;
        assert_eq!(reads(&mut KeyTracker::new(OpenKeys::Any), text), Ok(()));
        for text in [r#"{"\/"#, r#"{"\u0061"#, r#"{"\u000a"#, r#"{"\ud"#, r#"{"\u01"#, r#"{"\u0022"#] {
            let end = text.char_indices().map(|(at, _)| &text[..at]).chain([text]);
            let ends: Vec<bool> = end.map(|text| reads(&mut KeyTracker::new(OpenKeys::Any), text).is_err()).collect();
            assert!(ends.contains(&true), "{text}");
        }
    }

    #[test]
    fn a_trial_leaves_the_keys_of_the_text_alone() {
        let mut tracker = KeyTracker::new(OpenKeys::Matching);
        reads(&mut tracker, r#"{"a": 1"#).unwrap();
        let mut trial = KeyTracker::default();
        trial.start_trial(&tracker);
        assert_eq!(reads(&mut trial, r#", "b": {"b": 2}, "b""#), Err(KeyForbidden));
        trial.start_trial(&tracker);
        assert_eq!(reads(&mut trial, r#", "b": [{"b": 2}, {"b""#), Ok(()));
        assert_eq!(reads(&mut tracker, r#", "b""#), Ok(()));
    }

    #[test]
    fn a_key_that_begins_like_an_earlier_one_is_told() {
        let mut tracker = KeyTracker::new(OpenKeys::Matching);
        let mut at = |text: &str| {
            reads(&mut tracker, text).unwrap();
            tracker.begins_like_earlier()
        };
        assert_eq!(at("{"), None);
        assert_eq!(at(r#""ab""#), None);
        assert_eq!(at(": 1, "), Some((1, None)));
        assert_eq!(at("\""), Some((1, Some(vec![]))));
        assert_eq!(at("a"), Some((1, Some(b"a".to_vec()))));
        assert_eq!(at("c"), None);
    }

    #[test]
    fn calls_in_tags_have_json_in_the_arguments_that_say_so() {
        let arguments = JsonArguments::from([("f".into(), "map".into())]);
        let mut tracker = KeyTracker::new(OpenKeys::Any).with_tags(arguments);
        let text = "<tool_call>\n<function=f>\n<parameter=text>\n{\"a\": 1, \"a\": \n<parameter\n</parameter>\n";
        assert_eq!(reads(&mut tracker, text), Ok(()));
        let json = "<parameter=map>\n{\"a\": 1}\n</parameter>\n<parameter=map>\n{\"a\": 1, \"a";
        assert_eq!(reads(&mut tracker, json), Ok(()));
        assert_eq!(reads(&mut tracker, "\""), Err(KeyForbidden));
        let mut answer = KeyTracker::new(OpenKeys::Any).with_tags(JsonArguments::new());
        assert_eq!(reads(&mut answer, "{\"a\": 1, \"a\""), Err(KeyForbidden));
    }
}

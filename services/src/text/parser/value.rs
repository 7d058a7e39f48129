//! Reads the values of a call's parameters.

use super::closing::TagPlace;
use super::scan::{MarkerSearch, OpeningTag, before_newline, find, newline, tag, without_newline};
use super::{CALL_END, FUNCTION_END, OutputParser, PARAMETER, PARAMETER_END, ParserState};
use crate::text::parser::call::ParameterValue;
use crate::text::tools::Reading;

impl OutputParser {
    pub(super) fn begin_value(&mut self, key: String) {
        let tools = self.tools.as_ref();
        let reading = tools.map_or(Reading::Verbatim, |tools| tools.reading(&self.call.name, &key));
        let is_repeated = self.call.is_whole || self.call.keys.contains(&key);
        self.call.value = ParameterValue { reading, is_repeated, ..ParameterValue::default() };
        // A repeated key's value is left out; its key stands for it, so that it is the last one in any case.
        self.call.keys.push(key);
        self.state = ParserState::Value;
    }

    pub(super) fn value(&mut self) -> bool {
        if self.call.value.is_fresh {
            let len = newline(&self.buf);
            if len.is_none() && !self.last {
                return false;
            }
            self.call.value.is_fresh = false;
            self.call.value.is_inline = len == Some(0);
            self.buf.drain(..len.unwrap_or(0));
        }
        let mut from = 0;
        loop {
            match find(&self.buf, from, &[PARAMETER_END, CALL_END, FUNCTION_END, PARAMETER]) {
                MarkerSearch::At(at, marker) => match self.ends_value(at, marker) {
                    Some(true) => {
                        let end = if marker == PARAMETER_END { at + marker.len() } else { at };
                        self.end_value_at(at, end);
                        return true;
                    }
                    Some(false) => from = at + marker.len(),
                    None => {
                        self.take_value(before_newline(&self.buf[..at]).len());
                        return false;
                    }
                },
                MarkerSearch::Open(at) => return self.value_goes_on(at),
            }
        }
    }

    /// Whether a marker in a value ends it. `None` when more text is needed to tell.
    fn ends_value(&self, at: usize, marker: &str) -> Option<bool> {
        let (value, before) = (&self.call.value, &self.buf[..at]);
        let is_first = at == 0 && !value.is_inline && !value.has_begun && value.text.is_empty();
        let starts_line = is_first || before.ends_with('\n');
        let place = TagPlace {
            starts_line,
            is_inline: value.is_inline,
            in_string: !starts_line && value.is_in_string(before),
            rest: &self.buf[at + marker.len()..],
            last: self.last,
        };
        match marker {
            PARAMETER_END => place.closes_parameter(),
            FUNCTION_END => place.closes_function(),
            CALL_END => place.closes_call(),
            _ if !starts_line => Some(false),
            _ => match tag(&self.buf[at..], PARAMETER) {
                // In the value of a parameter that came before, such a line can only be text.
                OpeningTag::Whole(key, len) => {
                    let may_begin = self.tools.as_ref().is_some_and(|tools| tools.declares(&self.call.name, key))
                        && !self.call.keys.iter().any(|before| before == key);
                    if may_begin { TagPlace { rest: &self.buf[at + len..], ..place }.ends_line() } else { Some(false) }
                }
                OpeningTag::Part if !self.last => None,
                _ => Some(false),
            },
        }
    }

    /// The value ends before its tag at `at`, and what is read next begins at `next`.
    fn end_value_at(&mut self, at: usize, next: usize) {
        let value = without_newline(&self.buf[..at]).len();
        self.take_value(value);
        self.end_value();
        self.buf.drain(..next - value);
    }

    /// No marker ends the value yet; one may begin at `open`.
    fn value_goes_on(&mut self, open: usize) -> bool {
        if !self.last {
            self.take_value(before_newline(&self.buf[..open]).len());
            return false;
        }
        // A tag that was cut off on a line of its own is no part of the value either.
        let half_tag = open < self.buf.len() && self.buf[..open].ends_with('\n');
        let end = if half_tag { open } else { self.buf.len() };
        self.take_value(without_newline(&self.buf[..end]).len());
        self.buf.clear();
        let value = &self.call.value;
        if value.reading != Reading::Verbatim || !value.has_begun || value.is_repeated {
            self.call.keys.pop();
        }
        self.cut_off();
        false
    }

    /// Takes the buffer's first bytes into the value.
    fn take_value(&mut self, len: usize) {
        let text: String = self.buf.drain(..len).collect();
        let value = &mut self.call.value;
        if value.is_repeated || text.is_empty() {
            value.has_begun |= !text.is_empty();
        } else if value.reading == Reading::Verbatim {
            let quoted = serde_json::Value::from(text).to_string();
            let begins = !std::mem::replace(&mut value.has_begun, true);
            let begin = if begins { self.key() + "\"" } else { String::new() };
            self.arguments(begin + &quoted[1..quoted.len() - 1]);
        } else {
            value.text.push_str(&text);
        }
    }

    fn end_value(&mut self) {
        self.state = ParserState::Function;
        let value = &self.call.value;
        if value.is_repeated {
            self.call.keys.pop();
            return;
        }
        let json = match (value.reading, value.has_begun) {
            (Reading::Verbatim, true) => "\"".to_owned(),
            (Reading::Verbatim, false) => self.key() + "\"\"",
            (reading, _) => self.key() + &reading.read(&value.text),
        };
        self.arguments(json);
    }

    /// What stands before the latest key's value.
    fn key(&self) -> String {
        let key = self.call.keys.last().map_or("", String::as_str);
        let first = if self.call.keys.len() == 1 { "{" } else { ", " };
        format!("{first}{}: ", serde_json::Value::from(key))
    }
}

impl ParameterValue {
    /// The value is JSON, and a string of it is open behind `more` text. No string has a line break in it.
    fn is_in_string(&self, more: &str) -> bool {
        let start = if self.text.trim_start().is_empty() { more } else { &self.text };
        if self.reading == Reading::Verbatim || !start.trim_start().starts_with(['{', '[', '"']) {
            return false;
        }
        let line = match more.rsplit_once('\n') {
            Some((_, line)) => ["", line],
            None => [self.text.rsplit('\n').next().unwrap_or_default(), more],
        };
        let (mut quoted, mut escaped) = (false, false);
        for byte in line.into_iter().flat_map(str::bytes) {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                _ => {}
            }
        }
        quoted
    }
}

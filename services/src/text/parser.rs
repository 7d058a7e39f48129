//! Tells reasoning, answer and tool calls apart in a stream of text. The markup itself is never passed on; text that
//! only looks like markup is. The result does not depend on how the text was cut into pieces.
//!
//! The family's calls are `<tool_call>`, `<function=NAME>`, any number of `<parameter=KEY>` VALUE `</parameter>`,
//! `</function>`,
//! `</tool_call>`; VALUE is raw text between one newline on each side. Closing tags may be missing.
//!
//! Other families write `<tool_call>`, one JSON object with `name` and `arguments`, `</tool_call>`. Such a call is
//! passed on when its object is whole.

mod object;
mod scan;

use super::prompt::Thinking;
use super::tools::{Reading, Tools};
use object::{JsonCall, ObjectScan, ObjectScanner};
use scan::{MarkerSearch, OpeningTag, before_newline, find, newline, tag, without_newline};
use std::sync::Arc;

pub(super) const THINK: &str = "<think>";
pub(super) const THINK_END: &str = "</think>";
pub(super) const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";
const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";

/// What a piece of the text stands for. The markup between the parts belongs to the one that it opens or closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextPart {
    /// What the model thinks.
    Reasoning,
    /// What the model answers.
    Content,
    /// Calls of the declared tools.
    Calls,
}

/// What the text up to a place stands for, from where the one before ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Bytes of the text up to its end.
    pub end: usize,
    /// What it stands for.
    pub part: TextPart,
}

/// A piece of a choice's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputDelta {
    /// More of what the model thinks.
    Reasoning(String),
    /// More of the answer.
    Content(String),
    /// A call begins. Its arguments follow.
    ToolCall {
        /// Number of the call, from 0.
        index: u32,
        /// Unique in the service.
        id: String,
        /// The function, a declared one.
        name: String,
    },
    /// More of a call's arguments. All pieces of a call together are one JSON object, unless it is said to be
    /// incomplete.
    Arguments {
        /// Number of the call.
        index: u32,
        /// The next piece of the arguments' JSON.
        json: String,
    },
    /// The output was cut off inside of a call. Its arguments stay as far as they came, so that nobody takes them for
    /// whole.
    Incomplete {
        /// Number of the call.
        index: u32,
    },
}

/// Parses one choice's text as it comes.
#[derive(Clone, Debug)]
pub struct OutputParser {
    state: ParserState,
    /// Text that is not decided yet.
    buf: String,
    /// No more text comes: what is undecided is decided now.
    last: bool,
    /// It was the limit of tokens or a stop string that ended the text.
    cut: bool,
    /// Something other than blanks came since the last call, or since the part began.
    said: bool,
    /// The call stands inside a thought, which goes on after it.
    within_thought: bool,
    /// Declared tools; without any, calls are text.
    tools: Option<Arc<Tools>>,
    id_prefix: String,
    calls: u32,
    call: Call,
    /// An object that is waited for: its place in the whole text, and how far it was looked at.
    object: (usize, ObjectScanner),
    out: Vec<OutputDelta>,
    /// Bytes of text that were decided.
    decided: usize,
    spans: Vec<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    /// Nothing is decided; a `<think>` may come first.
    Start {
        open: bool,
    },
    /// A newline may come first.
    ReasoningStart,
    Reasoning,
    /// Newlines may come first.
    AfterReasoning,
    Content,
    /// Between the parameters of a call.
    Function,
    /// In a parameter's value.
    Value,
    AfterFunction,
    AfterCall,
}

/// The call whose parameters are being read.
#[derive(Clone, Debug)]
struct Call {
    name: String,
    /// Arguments so far, to leave out one that comes twice.
    keys: Vec<String>,
    reading: Reading,
    /// The value's key was given before.
    repeated: bool,
    /// The newline after the parameter's tag may still come.
    fresh: bool,
    /// Text of a value that is read as a whole; of one that is passed on as it comes, whether it was begun.
    value: String,
    begun: bool,
}

impl OutputParser {
    /// `call_id_prefix` makes the ids of calls unique in the service: the request's id and the choice's number.
    pub fn new(thinking: Thinking, tools: Option<Arc<Tools>>, call_id_prefix: String) -> Self {
        let state = match thinking {
            Thinking::Open => ParserState::Start { open: true },
            Thinking::Free => ParserState::Start { open: false },
            Thinking::Closed => ParserState::Content,
        };
        let call = Call {
            name: String::new(),
            keys: Vec::new(),
            reading: Reading::Verbatim,
            repeated: false,
            fresh: false,
            value: String::new(),
            begun: false,
        };
        Self {
            state,
            buf: String::new(),
            last: false,
            cut: false,
            said: false,
            within_thought: false,
            tools,
            id_prefix: call_id_prefix,
            calls: 0,
            call,
            object: Default::default(),
            out: Vec::new(),
            decided: 0,
            spans: Vec::new(),
        }
    }

    /// Takes the next piece of text.
    pub fn push(&mut self, piece: &str) -> Vec<OutputDelta> {
        debug_assert!(!self.last, "no text comes after the end");
        self.buf.push_str(piece);
        while self.step_in_part() {}
        std::mem::take(&mut self.out)
    }

    /// The text has ended: what was held back is decided, and an open call is closed, unless the text was `cut` off:
    /// then the call is incomplete.
    pub fn finish(&mut self, cut: bool) -> Vec<OutputDelta> {
        self.last = true;
        self.cut = cut;
        while self.step_in_part() {}
        debug_assert!(self.buf.is_empty(), "{:?} left {:?}", self.state, self.buf);
        std::mem::take(&mut self.out)
    }

    /// Whether the next token belongs to the reasoning.
    pub fn in_reasoning(&self) -> bool {
        matches!(self.state, ParserState::Start { open: true } | ParserState::ReasoningStart | ParserState::Reasoning)
    }

    /// Calls begun so far.
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// What the text that was decided since the last time stands for.
    pub fn spans(&mut self) -> Vec<Span> {
        std::mem::take(&mut self.spans)
    }

    /// A step, with a note of what the text stood for that it took from the buffer and passed on to nobody.
    fn step_in_part(&mut self) -> bool {
        let (before, end, calls) = (self.state, self.decided + self.buf.len(), self.calls);
        let goes_on = self.step();
        let thought = matches!(
            before,
            ParserState::Start { .. }
                | ParserState::ReasoningStart
                | ParserState::Reasoning
                | ParserState::AfterReasoning
        );
        self.decide(
            end - self.buf.len(),
            if thought && self.calls == calls { TextPart::Reasoning } else { TextPart::Calls },
        );
        goes_on
    }

    /// The text up to `end` stands for this.
    fn decide(&mut self, end: usize, part: TextPart) {
        if end > self.decided {
            self.decided = end;
            self.spans.push(Span { end, part });
        }
    }

    /// Decides something about the buffer's start. False when more text is needed, or none is left.
    fn step(&mut self) -> bool {
        match self.state {
            ParserState::Start { open } => self.start(open),
            ParserState::ReasoningStart => self.reasoning_start(),
            ParserState::Reasoning => self.reasoning(),
            ParserState::AfterReasoning => self.after_reasoning(),
            ParserState::Content => self.content(),
            ParserState::Function => self.function(),
            ParserState::Value => self.value(),
            ParserState::AfterFunction => self.after_function(),
            ParserState::AfterCall => self.after_call(),
        }
    }

    fn start(&mut self, open: bool) -> bool {
        let text = self.buf.trim_start();
        if let Some(rest) = text.strip_prefix(THINK) {
            self.buf.drain(..self.buf.len() - rest.len());
            self.state = ParserState::ReasoningStart;
        } else if THINK.starts_with(text) && !self.last {
            return false;
        } else {
            self.state = if open { ParserState::ReasoningStart } else { ParserState::Content };
        }
        true
    }

    /// One line break may stand between the tag and the thought.
    fn reasoning_start(&mut self) -> bool {
        let len = newline(&self.buf);
        if len.is_none() && !self.last {
            return false;
        }
        self.buf.drain(..len.unwrap_or(0));
        self.state = ParserState::Reasoning;
        true
    }

    /// Any number of line breaks may stand between the thought's end and the answer.
    fn after_reasoning(&mut self) -> bool {
        let newlines = self.buf.bytes().take_while(|b| matches!(b, b'\n' | b'\r')).count();
        self.buf.drain(..newlines);
        if self.buf.is_empty() && !self.last {
            return false;
        }
        self.state = ParserState::Content;
        true
    }

    /// Nothing but blanks came up to here since the last call, or since the part began.
    fn is_blank(&self, at: usize) -> bool {
        !self.said && self.buf[..at].trim_start().is_empty()
    }

    fn reasoning(&mut self) -> bool {
        let markers: &[&str] = if self.tools.is_some() { &[THINK_END, CALL] } else { &[THINK_END] };
        match find(&self.buf, 0, markers) {
            MarkerSearch::At(at, THINK_END) => {
                let end = if self.calls > 0 && self.is_blank(at) { 0 } else { without_newline(&self.buf[..at]).len() };
                self.emit(TextPart::Reasoning, end);
                self.skip_to(THINK_END);
                (self.said, self.within_thought) = (false, false);
                self.state = ParserState::AfterReasoning;
                true
            }
            MarkerSearch::At(at, _) => {
                let end = if self.calls > 0 && self.is_blank(at) { 0 } else { without_newline(&self.buf[..at]).len() };
                self.call_in(TextPart::Reasoning, at, end)
            }
            MarkerSearch::Open(at) if self.calls > 0 && self.is_blank(at) => self.hold_blanks(),
            MarkerSearch::Open(at) => {
                let end = if self.last { self.buf.len() } else { before_newline(&self.buf[..at]).len() };
                self.emit(TextPart::Reasoning, end);
                false
            }
        }
    }

    fn content(&mut self) -> bool {
        let markers: &[&str] = if self.tools.is_some() { &[CALL] } else { &[] };
        match find(&self.buf, 0, markers) {
            // Blanks alone are no answer; those at the end of one belong to it.
            MarkerSearch::At(at, _) => self.call_in(TextPart::Content, at, if self.is_blank(at) { 0 } else { at }),
            MarkerSearch::Open(at) if self.tools.is_some() && self.is_blank(at) && (self.calls > 0 || !self.last) => {
                self.hold_blanks()
            }
            MarkerSearch::Open(at) => {
                self.emit(TextPart::Content, if self.last { self.buf.len() } else { at });
                false
            }
        }
    }

    /// Blanks after a call belong to what comes after them, if anything does.
    fn hold_blanks(&mut self) -> bool {
        if self.last && self.buf.trim_start().is_empty() {
            self.buf.clear();
        } else if self.last {
            // The start of a marker that never came.
            self.emit(if self.within_thought { TextPart::Reasoning } else { TextPart::Content }, self.buf.len());
        }
        false
    }

    /// `<tool_call>` stands at `at`, and text that certainly is text ends at `text`. If no function follows, all of it
    /// is text.
    fn call_in(&mut self, part: TextPart, at: usize, text: usize) -> bool {
        let rest = self.buf[at + CALL.len()..].trim_start();
        let begin = self.buf.len() - rest.len();
        if rest.starts_with('{') {
            return self.json_call_in(part, at, text, begin);
        }
        match tag(rest, FUNCTION) {
            // A name that nobody declared is no call that anybody could answer, so all of it is what the model wrote.
            OpeningTag::Whole(name, _) if !self.declares(name) => {
                self.emit(part, at + CALL.len());
                true
            }
            OpeningTag::Whole(name, len) => {
                let name = name.to_owned();
                self.emit(part, text);
                self.buf.drain(..begin + len - text);
                self.within_thought = part == TextPart::Reasoning;
                self.begin_call(name);
                true
            }
            _ if rest.starts_with(CALL_END) => {
                let text = if text == 0 { 0 } else { at };
                self.emit(part, text);
                self.buf.drain(..begin + CALL_END.len() - text);
                true
            }
            OpeningTag::Part => self.wait_after(part, text),
            OpeningTag::No if CALL_END.starts_with(rest) => self.wait_after(part, text),
            OpeningTag::No => {
                self.emit(part, at + CALL.len());
                true
            }
        }
    }

    /// As [`OutputParser::call_in`], where an object begins at `begin`.
    fn json_call_in(&mut self, part: TextPart, at: usize, text: usize, begin: usize) -> bool {
        let place = self.decided + begin;
        if self.object.0 != place {
            self.object = (place, ObjectScanner::default());
        }
        match self.object.1.scan(&self.buf[begin..]) {
            ObjectScan::Whole(len) => match JsonCall::read(&self.buf[begin..begin + len]) {
                Some(call) if self.declares(&call.name) => {
                    self.emit(part, text);
                    self.buf.drain(..begin + len - text);
                    self.within_thought = part == TextPart::Reasoning;
                    self.begin_call(call.name);
                    self.arguments(call.arguments);
                    self.state = ParserState::AfterCall;
                    true
                }
                _ => {
                    self.emit(part, at + CALL.len());
                    true
                }
            },
            ObjectScan::Part => self.wait_after(part, text),
            ObjectScan::No => {
                self.emit(part, at + CALL.len());
                true
            }
        }
    }

    /// Passes on what is certain and keeps the rest, which at the end is half a call and dropped.
    fn wait_after(&mut self, part: TextPart, text: usize) -> bool {
        self.emit(part, text);
        if self.last {
            self.buf.clear();
        }
        false
    }

    fn declares(&self, name: &str) -> bool {
        self.tools.as_ref().is_some_and(|tools| tools.has(name))
    }

    fn begin_call(&mut self, name: String) {
        let index = self.calls;
        self.calls += 1;
        self.said = false;
        self.call.name.clone_from(&name);
        self.call.keys.clear();
        self.out.push(OutputDelta::ToolCall { index, id: format!("call_{}{index}", self.id_prefix), name });
        self.state = ParserState::Function;
    }

    fn function(&mut self) -> bool {
        self.skip_blanks();
        let buf = self.buf.as_str();
        if let OpeningTag::Whole(key, len) = tag(buf, PARAMETER) {
            let key = key.to_owned();
            self.buf.drain(..len);
            self.begin_value(key);
        } else if let OpeningTag::Whole(name, len) = tag(buf, FUNCTION) {
            let (name, declared) = (name.to_owned(), self.declares(name));
            self.end_call(ParserState::AfterCall);
            if declared {
                self.buf.drain(..len);
                self.begin_call(name);
            }
        } else if buf.starts_with(FUNCTION_END) {
            self.skip_to(FUNCTION_END);
            self.end_call(ParserState::AfterFunction);
        } else if buf.starts_with(CALL_END) {
            self.skip_to(CALL_END);
            self.end_call(ParserState::AfterCall);
        } else if buf.starts_with(CALL) {
            self.end_call(ParserState::AfterCall);
        } else if matches!(tag(buf, PARAMETER), OpeningTag::Part)
            || matches!(tag(buf, FUNCTION), OpeningTag::Part)
            || [FUNCTION_END, CALL_END, CALL].iter().any(|m| m.starts_with(buf))
        {
            if self.last {
                self.buf.clear();
                if self.cut { self.cut_off() } else { self.end_call(ParserState::AfterCall) }
            }
            return false;
        } else {
            self.drop_stray();
        }
        true
    }

    /// Text between parameters belongs nowhere.
    fn drop_stray(&mut self) {
        let first = self.buf.chars().next().map_or(0, char::len_utf8);
        let end = self.buf[first..].find('<').map_or(self.buf.len(), |at| first + at);
        self.buf.drain(..end);
    }

    fn begin_value(&mut self, key: String) {
        let tools = self.tools.as_ref();
        self.call.reading = tools.map_or(Reading::Verbatim, |tools| tools.reading(&self.call.name, &key));
        self.call.repeated = self.call.keys.contains(&key);
        self.call.fresh = true;
        self.call.begun = false;
        self.call.value.clear();
        // A repeated key's value is left out; its key stands for it, so that it is the last one in any case.
        self.call.keys.push(key);
        self.state = ParserState::Value;
    }

    fn value(&mut self) -> bool {
        if self.call.fresh {
            let len = newline(&self.buf);
            if len.is_none() && !self.last {
                return false;
            }
            self.call.fresh = false;
            self.buf.drain(..len.unwrap_or(0));
        }
        let mut from = 0;
        loop {
            match find(&self.buf, from, &[PARAMETER_END, CALL_END, FUNCTION_END, PARAMETER]) {
                MarkerSearch::At(at, marker) => match self.ends_value(at, marker) {
                    Some(true) => {
                        self.take_value(without_newline(&self.buf[..at]).len());
                        self.end_value();
                        self.buf.drain(
                            ..self
                                .buf
                                .find(marker)
                                .map_or(0, |at| if marker == PARAMETER_END { at + marker.len() } else { at }),
                        );
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

    /// Whether a marker in a value ends it: its own closing tag and the call's do; those of others only where they
    /// cannot be part of the value. `None` when more text is needed to tell.
    fn ends_value(&self, at: usize, marker: &str) -> Option<bool> {
        match marker {
            FUNCTION_END => {
                let rest = self.buf[at + FUNCTION_END.len()..].trim_start();
                if rest.starts_with(CALL_END) {
                    return Some(true);
                }
                if !CALL_END.starts_with(rest) {
                    return Some(false);
                }
                self.last.then_some(true)
            }
            PARAMETER => {
                let starts_line = if at == 0 {
                    !self.call.begun && self.call.value.is_empty()
                } else {
                    self.buf[..at].ends_with('\n')
                };
                match tag(&self.buf[at..], PARAMETER) {
                    OpeningTag::Whole(key, _) => {
                        Some(starts_line && self.tools.as_ref().is_some_and(|t| t.declares(&self.call.name, key)))
                    }
                    OpeningTag::Part if starts_line && !self.last => None,
                    _ => Some(false),
                }
            }
            _ => Some(true),
        }
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
        if !self.cut {
            self.end_value();
            return true;
        }
        let shown = self.call.reading == Reading::Verbatim && self.call.begun && !self.call.repeated;
        if !shown {
            self.call.keys.pop();
        }
        self.cut_off();
        false
    }

    /// The text ended inside of the call.
    fn cut_off(&mut self) {
        if self.call.keys.is_empty() {
            self.arguments("{".to_owned());
        }
        self.out.push(OutputDelta::Incomplete { index: self.calls - 1 });
        self.state = ParserState::AfterCall;
    }

    /// Takes the buffer's first bytes into the value.
    fn take_value(&mut self, len: usize) {
        let text: String = self.buf.drain(..len).collect();
        if self.call.repeated || text.is_empty() {
            self.call.begun |= !text.is_empty();
        } else if self.call.reading == Reading::Verbatim {
            let quoted = serde_json::Value::from(text).to_string();
            let inner = quoted[1..quoted.len() - 1].to_owned();
            let begin = if self.call.begun { String::new() } else { self.key() + "\"" };
            self.call.begun = true;
            self.arguments(begin + &inner);
        } else {
            self.call.value.push_str(&text);
        }
    }

    fn end_value(&mut self) {
        self.state = ParserState::Function;
        if self.call.repeated {
            self.call.keys.pop();
            return;
        }
        let json = match (self.call.reading, self.call.begun) {
            (Reading::Verbatim, true) => "\"".to_owned(),
            (Reading::Verbatim, false) => self.key() + "\"\"",
            (reading, _) => self.key() + &reading.read(&self.call.value),
        };
        self.arguments(json);
    }

    /// What stands before the latest key's value.
    fn key(&self) -> String {
        let key = self.call.keys.last().map_or("", String::as_str);
        let first = if self.call.keys.len() == 1 { "{" } else { ", " };
        format!("{first}{}: ", serde_json::Value::from(key))
    }

    fn end_call(&mut self, next: ParserState) {
        self.arguments(if self.call.keys.is_empty() { "{}" } else { "}" }.to_owned());
        self.state = next;
    }

    fn after_function(&mut self) -> bool {
        let rest = self.buf.trim_start();
        if let OpeningTag::Whole(name, len) = tag(rest, FUNCTION)
            && self.declares(name)
        {
            let (name, end) = (name.to_owned(), self.buf.len() - rest.len() + len);
            self.buf.drain(..end);
            self.begin_call(name);
            return true;
        }
        if !self.last && matches!(tag(rest, FUNCTION), OpeningTag::Part) {
            return false;
        }
        self.state = ParserState::AfterCall;
        true
    }

    fn after_call(&mut self) -> bool {
        let closing = [CALL_END, FUNCTION_END];
        let rest = self.buf.trim_start();
        if let Some(marker) = closing.iter().find(|m| rest.starts_with(**m)) {
            self.skip_to(marker);
            return true;
        }
        if closing.iter().any(|m| m.starts_with(rest)) {
            if self.last {
                self.buf.clear();
            }
            return false;
        }
        self.state = if self.within_thought { ParserState::Reasoning } else { ParserState::Content };
        true
    }

    fn skip_blanks(&mut self) {
        let rest = self.buf.trim_start().len();
        self.buf.drain(..self.buf.len() - rest);
    }

    /// Drops everything up to and with a marker that is known to be there.
    fn skip_to(&mut self, marker: &str) {
        let end = self.buf.find(marker).map_or(0, |at| at + marker.len());
        self.buf.drain(..end);
    }

    /// Passes the buffer's first bytes on, as a thought or as the answer.
    fn emit(&mut self, part: TextPart, len: usize) {
        if len > 0 {
            let text: String = self.buf.drain(..len).collect();
            self.said |= !text.trim_start().is_empty();
            self.decide(self.decided + len, part);
            self.out.push(if part == TextPart::Reasoning {
                OutputDelta::Reasoning(text)
            } else {
                OutputDelta::Content(text)
            });
        }
    }

    fn arguments(&mut self, json: String) {
        let index = self.calls - 1;
        match self.out.last_mut() {
            Some(OutputDelta::Arguments { json: before, .. }) => before.push_str(&json),
            _ => self.out.push(OutputDelta::Arguments { index, json }),
        }
    }
}

#[cfg(test)]
mod tests;

//! Reads calls: where one begins, what stands between its parameters, and how it ends.

use super::closing::{ClosingTag, closing_tag};
use super::object::{JsonCall, ObjectScan, ObjectScanner, begins_object};
use super::scan::{OpeningTag, tag};
use super::{CALL, CALL_END, FUNCTION, FUNCTION_END, OutputDelta, OutputParser, PARAMETER, ParserState, TextPart};
use crate::text::tools::Reading;

/// The call that is being read.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    pub(super) name: String,
    /// Arguments so far, to leave out one that comes twice.
    pub(super) keys: Vec<String>,
    /// All of the arguments came as one object.
    pub(super) is_whole: bool,
    /// The value whose tag was read last.
    pub(super) value: ParameterValue,
    /// Text between parameters, from the first that is not blank.
    stray: String,
}

/// The value of an argument.
#[derive(Clone, Debug)]
pub(super) struct ParameterValue {
    pub(super) reading: Reading,
    /// Its key was given before.
    pub(super) is_repeated: bool,
    /// The newline after the parameter's tag may still come.
    pub(super) is_fresh: bool,
    /// No newline came after the parameter's tag, so none need stand before its closing tag.
    pub(super) is_inline: bool,
    /// Text of a value that is read as a whole.
    pub(super) text: String,
    /// Text of a value that is passed on as it comes was passed on.
    pub(super) has_begun: bool,
}

impl Default for ParameterValue {
    fn default() -> Self {
        Self {
            reading: Reading::Verbatim,
            is_repeated: false,
            is_fresh: true,
            is_inline: false,
            text: String::new(),
            has_begun: false,
        }
    }
}

impl Call {
    /// No argument has come yet.
    fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.is_whole
    }

    /// Blanks between parameters are the format's, unless they stand inside of a stray text.
    fn stray_blanks(&mut self, blanks: &str) {
        if !self.stray.is_empty() {
            self.stray.push_str(blanks);
        }
    }
}

impl OutputParser {
    /// `<tool_call>` stands at `at`, and text that certainly is text ends at `text`. If no function follows, all of it
    /// is text.
    pub(super) fn call_in(&mut self, part: TextPart, at: usize, text: usize) -> bool {
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
            ObjectScan::Part if self.last => self.half_json_call(part, text, begin),
            ObjectScan::Part => self.wait_after(part, text),
            ObjectScan::No => {
                self.emit(part, at + CALL.len());
                true
            }
        }
    }

    /// The text has ended inside of the object that begins at `begin`. Its call is incomplete if its name had come.
    fn half_json_call(&mut self, part: TextPart, text: usize, begin: usize) -> bool {
        let call = JsonCall::begun(&self.buf[begin..]).filter(|(call, _)| self.declares(&call.name));
        let Some((call, is_whole)) = call else { return self.wait_after(part, text) };
        self.emit(part, text);
        self.buf.clear();
        self.within_thought = part == TextPart::Reasoning;
        self.begin_call(call.name);
        self.arguments(call.arguments);
        if !is_whole || self.cut {
            self.out.push(OutputDelta::Incomplete { index: self.calls - 1 });
        }
        self.state = ParserState::AfterCall;
        false
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
        self.call = Call { name: name.clone(), ..Call::default() };
        self.out.push(OutputDelta::ToolCall { index, id: format!("call_{}{index}", self.id_prefix), name });
        self.state = ParserState::Function;
    }

    /// Between the parameters of a call.
    pub(super) fn function(&mut self) -> bool {
        let blanks = self.buf.len() - self.buf.trim_start().len();
        if blanks > 0 {
            let blanks: String = self.buf.drain(..blanks).collect();
            self.call.stray_blanks(&blanks);
            return true;
        }
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
        } else if self.is_half_tag() {
            if self.last {
                self.end_in_half_tag();
            }
            return false;
        } else if self.call.is_empty() && begins_object(buf).unwrap_or(true) {
            return self.json_arguments();
        } else {
            self.take_stray();
        }
        true
    }

    /// The buffer may become one of a call's tags with more text.
    fn is_half_tag(&self) -> bool {
        matches!(tag(&self.buf, PARAMETER), OpeningTag::Part)
            || matches!(tag(&self.buf, FUNCTION), OpeningTag::Part)
            || matches!(closing_tag(&self.buf), ClosingTag::Part)
            || CALL.starts_with(&self.buf)
    }

    /// The text ends behind a parameter. One whose tag was begun is missing.
    fn end_in_half_tag(&mut self) {
        let begins_parameter = self.buf.len() > 1 && matches!(tag(&self.buf, PARAMETER), OpeningTag::Part);
        self.buf.clear();
        if self.cut || begins_parameter { self.cut_off() } else { self.end_call(ParserState::AfterCall) }
    }

    /// All arguments as one object, where a parameter might stand.
    fn json_arguments(&mut self) -> bool {
        if self.object.0 != self.decided {
            self.object = (self.decided, ObjectScanner::default());
        }
        match self.object.1.scan(&self.buf) {
            ObjectScan::Whole(len) => match JsonCall::arguments_of(&self.buf[..len], &self.call.name) {
                Some(arguments) => {
                    self.buf.drain(..len);
                    self.arguments(arguments);
                    self.call.is_whole = true;
                }
                None => self.take_stray(),
            },
            ObjectScan::Part if self.last => {
                let arguments = std::mem::take(&mut self.buf);
                self.arguments(arguments);
                self.incomplete();
                return false;
            }
            ObjectScan::Part => return false,
            ObjectScan::No => self.take_stray(),
        }
        true
    }

    /// Text between parameters belongs to no argument, and comes after the call. Closing tags with nothing to close are
    /// markup.
    fn take_stray(&mut self) {
        if let ClosingTag::Whole(len) = closing_tag(&self.buf) {
            self.buf.drain(..len);
            return;
        }
        let first = self.buf.chars().next().map_or(0, char::len_utf8);
        let end = self.buf[first..].find(['<', '{']).map_or(self.buf.len(), |at| first + at);
        let text: String = self.buf.drain(..end).collect();
        self.decide(self.decided + end, self.part_around());
        self.call.stray.push_str(&text);
    }

    /// What the text around the call is.
    fn part_around(&self) -> TextPart {
        if self.within_thought { TextPart::Reasoning } else { TextPart::Content }
    }

    /// The text ended inside of the call.
    pub(super) fn cut_off(&mut self) {
        if self.call.is_whole {
            return self.end_call(ParserState::AfterCall);
        }
        if self.call.keys.is_empty() {
            self.arguments("{".to_owned());
        }
        self.incomplete();
    }

    fn incomplete(&mut self) {
        self.out.push(OutputDelta::Incomplete { index: self.calls - 1 });
        self.pass_stray();
        self.state = ParserState::AfterCall;
    }

    fn pass_stray(&mut self) {
        let stray = std::mem::take(&mut self.call.stray).trim_end().to_owned();
        if !stray.is_empty() {
            self.said = true;
            self.out.push(self.part_around().delta(stray));
        }
    }

    fn end_call(&mut self, next: ParserState) {
        if !self.call.is_whole {
            self.arguments(if self.call.keys.is_empty() { "{}" } else { "}" }.to_owned());
        }
        self.pass_stray();
        self.state = next;
    }

    pub(super) fn after_function(&mut self) -> bool {
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
        match closing_tag(rest) {
            ClosingTag::Whole(len) if !rest.starts_with(CALL_END) => {
                self.buf.drain(..self.buf.len() - rest.len() + len);
            }
            ClosingTag::Part if !self.last => return false,
            _ => self.state = ParserState::AfterCall,
        }
        true
    }

    pub(super) fn after_call(&mut self) -> bool {
        let rest = self.buf.trim_start();
        match closing_tag(rest) {
            ClosingTag::Whole(len) => {
                self.buf.drain(..self.buf.len() - rest.len() + len);
            }
            ClosingTag::Part => {
                if self.last {
                    self.buf.clear();
                }
                return false;
            }
            ClosingTag::No => {
                self.state = if self.within_thought { ParserState::Reasoning } else { ParserState::Content };
            }
        }
        true
    }
}

//! Reads what stands outside of calls: the thought, the answer and the blanks beside calls.

use super::scan::{MarkerSearch, before_newline, find, newline, without_newline};
use super::{CALL, OutputParser, ParserState, THINK, THINK_END, TextPart};

impl OutputParser {
    pub(super) fn start(&mut self, open: bool) -> bool {
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
    pub(super) fn reasoning_start(&mut self) -> bool {
        let len = newline(&self.buf);
        if len.is_none() && !self.last {
            return false;
        }
        self.buf.drain(..len.unwrap_or(0));
        self.state = ParserState::Reasoning;
        true
    }

    /// Any number of line breaks may stand between the thought's end and the answer.
    pub(super) fn after_reasoning(&mut self) -> bool {
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

    pub(super) fn reasoning(&mut self) -> bool {
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

    pub(super) fn content(&mut self) -> bool {
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
}

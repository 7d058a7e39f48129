//! Tells reasoning, answer and tool calls apart in a stream of text. The markup itself is never passed on; text that
//! only looks like markup is. The result does not depend on how the text was cut into pieces.
//!
//! The family's calls are `<tool_call>`, `<function=NAME>`, any number of `<parameter=KEY>` VALUE `</parameter>`,
//! `</function>`, `</tool_call>`; VALUE is raw text between one newline on each side. Closing tags of parameters may be
//! missing where an outer one follows. `<function=NAME>` may also hold all arguments as one JSON object.
//!
//! Other families write `<tool_call>`, one JSON object with `name` and `arguments`, `</tool_call>`. Such a call is
//! passed on when its object is whole.
//!
//! A call that is open where the text ends is passed on as incomplete.

mod call;
mod closing;
mod object;
mod prose;
mod scan;
mod value;

use super::prompt::Thinking;
use super::tools::Tools;
use call::Call;
use object::ObjectScanner;
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

impl TextPart {
    /// A text outside of calls as it is passed on.
    fn delta(self, text: String) -> OutputDelta {
        if self == Self::Reasoning { OutputDelta::Reasoning(text) } else { OutputDelta::Content(text) }
    }
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
    /// The output ended inside of a call. Its arguments stay as far as they came, so that nobody takes them for whole.
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

impl OutputParser {
    /// `call_id_prefix` makes the ids of calls unique in the service: the request's id and the choice's number.
    pub fn new(thinking: Thinking, tools: Option<Arc<Tools>>, call_id_prefix: String) -> Self {
        let state = match thinking {
            Thinking::Open => ParserState::Start { open: true },
            Thinking::Free => ParserState::Start { open: false },
            Thinking::Closed => ParserState::Content,
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
            call: Call::default(),
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

    /// The text has ended: what was held back is decided. An open call is incomplete, unless nothing but closing tags
    /// is missing and the text was not `cut` off.
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
            self.out.push(part.delta(text));
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

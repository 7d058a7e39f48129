//! How the text of a choice is understood: as it stands, or as an answer with reasoning and tool calls in it.

use super::output::{Delta, ToolCallDelta};
use crate::text::OutputParser;
use crate::text::parser::{OutputDelta as Parsed, Span};

/// Sorts the text of one choice into the parts of a [`Delta`].
pub trait Reader {
    /// Takes more text, already free of stop strings.
    fn push(&mut self, text: &str, delta: &mut Delta);

    /// No more text comes, because it was `cut` off or because it was at its end: gives what was held back.
    fn finish(&mut self, cut: bool, delta: &mut Delta);

    /// What the text that was decided since the last time stands for; `None` where all of it is the answer.
    fn spans(&mut self) -> Option<Vec<Span>> {
        None
    }

    /// The text so far ends inside reasoning.
    fn is_reasoning(&self) -> bool;

    /// There was at least one tool call, and none that was cut off.
    fn called_tools(&self) -> bool;
}

/// All text is content.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Reader for Plain {
    fn push(&mut self, text: &str, delta: &mut Delta) {
        delta.content.push_str(text);
    }

    fn finish(&mut self, _: bool, _: &mut Delta) {}

    fn is_reasoning(&self) -> bool {
        false
    }

    fn called_tools(&self) -> bool {
        false
    }
}

/// An answer in the family's format: reasoning, content, tool calls.
#[derive(Clone, Debug)]
pub struct Answer {
    parser: OutputParser,
    /// The text was cut off inside of a call.
    call_is_cut: bool,
}

impl Answer {
    /// At the start of an answer.
    pub fn new(parser: OutputParser) -> Self {
        Self { parser, call_is_cut: false }
    }
}

impl Reader for Answer {
    fn push(&mut self, text: &str, delta: &mut Delta) {
        sort(self.parser.push(text), delta);
    }

    fn finish(&mut self, cut: bool, delta: &mut Delta) {
        let rest = self.parser.finish(cut);
        self.call_is_cut = rest.iter().any(|piece| matches!(piece, Parsed::Incomplete { .. }));
        sort(rest, delta);
    }

    fn spans(&mut self) -> Option<Vec<Span>> {
        Some(self.parser.spans())
    }

    fn is_reasoning(&self) -> bool {
        self.parser.in_reasoning()
    }

    fn called_tools(&self) -> bool {
        self.parser.calls() > 0 && !self.call_is_cut
    }
}

fn sort(parsed: Vec<Parsed>, delta: &mut Delta) {
    for piece in parsed {
        match piece {
            Parsed::Reasoning(text) => delta.reasoning.push_str(&text),
            Parsed::Content(text) => delta.content.push_str(&text),
            Parsed::ToolCall { index, id, name } => {
                delta.call(ToolCallDelta { start: Some((id, name)), ..ToolCallDelta::more(index, String::new()) });
            }
            Parsed::Arguments { index, json } => delta.call(ToolCallDelta::more(index, json)),
            Parsed::Incomplete { index } => {
                delta.call(ToolCallDelta { incomplete: true, ..ToolCallDelta::more(index, String::new()) });
            }
        }
    }
}

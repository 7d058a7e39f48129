//! How the text of a choice is understood: as it stands, or as an answer with reasoning and tool calls in it.

use super::output::Delta;

/// Sorts the text of one choice into the parts of a [`Delta`].
pub trait Reader {
    /// Takes more text, already free of stop strings.
    fn push(&mut self, text: &str, delta: &mut Delta);

    /// No more text comes: gives what was held back.
    fn finish(&mut self, delta: &mut Delta);

    /// The text so far ends inside reasoning.
    fn is_reasoning(&self) -> bool;

    /// There was at least one whole tool call.
    fn called_tools(&self) -> bool;
}

/// All text is content.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Reader for Plain {
    fn push(&mut self, text: &str, delta: &mut Delta) {
        delta.content.push_str(text);
    }

    fn finish(&mut self, _: &mut Delta) {}

    fn is_reasoning(&self) -> bool {
        false
    }

    fn called_tools(&self) -> bool {
        false
    }
}

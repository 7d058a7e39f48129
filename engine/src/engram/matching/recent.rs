//! The last ids of a sequence, and which of them it said itself.

use crate::engram::context::Context;
use crate::engram::order::MATCH_MAX;
use crate::ids::TokenId;

/// A sequence's context, and how many ids of it the sequence itself has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recent {
    context: Context,
    said: usize,
    /// Ids of the answer, which begins behind the thought if there was one; counted to [`MATCH_MAX`] + 1.
    answer: usize,
    thought: bool,
}

impl Recent {
    /// After a prompt, of which only the last [`MATCH_MAX`] ids are looked at.
    pub fn new(prompt: &[TokenId]) -> Self {
        Self { context: Context::new(prompt), said: 0, answer: 0, thought: false }
    }

    /// Takes the output's next id.
    pub fn push(&mut self, id: TokenId) {
        self.context.push(id);
        self.said = MATCH_MAX.min(self.said + 1);
        self.answer = (MATCH_MAX + 1).min(self.answer + 1);
    }

    /// The id that was pushed last belongs to a thought: the answer begins behind it at the earliest.
    pub fn count_as_thought(&mut self) {
        (self.answer, self.thought) = (0, true);
    }

    /// As tables are asked.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The last ids, newest last.
    pub fn ids(&self) -> &[TokenId] {
        self.context.ids()
    }

    /// Of these, the ones that are output.
    pub fn said(&self) -> &[TokenId] {
        &self.ids()[self.ids().len() - self.said..]
    }

    /// All of the answer, while it has no more than [`MATCH_MAX`] ids.
    pub fn answer(&self) -> Option<&[TokenId]> {
        self.ids().get(self.ids().len().checked_sub(self.answer)?..).filter(|answer| answer.len() <= MATCH_MAX)
    }

    /// Whether the output began with a thought.
    pub fn after_thought(&self) -> bool {
        self.thought
    }
}

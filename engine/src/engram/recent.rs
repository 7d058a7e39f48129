//! The last ids of a sequence, and which of them it said itself.

use super::MATCH_MAX;
use super::context::Context;
use crate::ids::TokenId;

/// A sequence's context, and how many ids of it the sequence itself has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recent {
    context: Context,
    said: usize,
}

impl Recent {
    /// After a prompt, of which only the last [`MATCH_MAX`] ids are looked at.
    pub fn new(prompt: &[TokenId]) -> Self {
        Self { context: Context::new(prompt), said: 0 }
    }

    /// Takes the output's next id.
    pub fn push(&mut self, id: TokenId) {
        self.context.push(id);
        self.said = MATCH_MAX.min(self.said + 1);
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
}

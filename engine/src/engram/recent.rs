//! The last ids of a sequence, as far back as the longest match can reach.

use super::MATCH_MAX;
use crate::ids::TokenId;

/// Up to [`MATCH_MAX`] last ids, and how many of them the sequence itself has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recent {
    /// Newest last; the first `MATCH_MAX - len` are unused.
    ids: [TokenId; MATCH_MAX],
    len: usize,
    said: usize,
}

impl Recent {
    /// After a prompt, of which only the last [`MATCH_MAX`] ids are looked at.
    pub fn new(prompt: &[TokenId]) -> Self {
        let len = prompt.len().min(MATCH_MAX);
        let mut ids = [0; MATCH_MAX];
        ids[MATCH_MAX - len..].copy_from_slice(&prompt[prompt.len() - len..]);
        Self { ids, len, said: 0 }
    }

    /// Takes the output's next id.
    pub fn push(&mut self, id: TokenId) {
        self.ids.copy_within(1.., 0);
        self.ids[MATCH_MAX - 1] = id;
        self.len = MATCH_MAX.min(self.len + 1);
        self.said = MATCH_MAX.min(self.said + 1);
    }

    /// The last ids, newest last.
    pub fn ids(&self) -> &[TokenId] {
        &self.ids[MATCH_MAX - self.len..]
    }

    /// Of these, the ones that are output.
    pub fn said(&self) -> &[TokenId] {
        &self.ids[MATCH_MAX - self.said..]
    }
}

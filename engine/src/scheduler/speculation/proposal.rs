//! Tokens that a proposer offers for verification, and the chance of each to count.

use super::acceptance::Basis;
use crate::drafts::DraftKind;
use crate::ids::TokenId;

/// Tokens that could be drafted for a sequence.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::scheduler) struct Proposal {
    pub(in crate::scheduler) kind: DraftKind,
    /// What it rests on, as [`crate::drafts::Guess::strength`] tells.
    pub(super) strength: usize,
    pub(in crate::scheduler) tokens: Vec<TokenId>,
    /// Of each token the share of such tokens that are right where all before them are.
    pub(in crate::scheduler) chances: Vec<f32>,
}

impl Proposal {
    /// Whether the draft head of the model made it, and not a source on the host.
    pub(in crate::scheduler) fn is_from_head(&self) -> bool {
        self.kind.is_head()
    }

    pub(super) fn basis(&self) -> Basis {
        (self.kind, self.strength)
    }

    /// The first `n` tokens of it.
    pub(in crate::scheduler) fn cut(mut self, n: usize) -> Self {
        self.shorten(n);
        self
    }

    /// Leaves the first `n` tokens of it.
    pub(in crate::scheduler) fn shorten(&mut self, n: usize) {
        self.tokens.truncate(n);
        self.chances.truncate(n);
    }

    /// The chance of its first token, and what could be drafted if that came.
    pub(in crate::scheduler) fn without_first(mut self) -> (f32, Self) {
        self.tokens.remove(0);
        (self.chances.remove(0), self)
    }

    /// This proposal with its first chance multiplied by `chance`, that of what must come before it.
    pub(in crate::scheduler) fn behind(mut self, chance: f32) -> Self {
        self.chances.first_mut().into_iter().for_each(|first| *first *= chance);
        self
    }

    /// Tokens that should count, of those that are drafted.
    pub(in crate::scheduler) fn worth(&self) -> f64 {
        let worth = self.chances.iter().fold((0.0, 1.0), |(sum, chance), share| {
            let chance = chance * f64::from(*share);
            (sum + chance, chance)
        });
        worth.0
    }
}

#[cfg(test)]
impl Proposal {
    /// Of tokens with these chances.
    pub(in crate::scheduler) fn with_chances(chances: &[f32]) -> Self {
        Self { kind: DraftKind::Ngram, strength: 0, tokens: vec![1; chances.len()], chances: chances.to_vec() }
    }
}

//! Guesses of what a sequence says next. A guess costs time and never a byte: every drafted token is sampled as if
//! nobody had guessed, and counts only where the sample says the same (`docs/internals/drafts.md`).
//!
//! A source follows one sequence on the host. What of its guesses is worth a row, the scheduler decides
//! (`scheduler/speculation`).

mod depth;
mod prediction;
mod suffix;

pub(crate) use depth::PIECE_ROWS_MAX;
pub use depth::{ByDraftCount, ByPlace, DraftMode};
pub use prediction::PredictionSource;
pub use suffix::SuffixSource;

use crate::ids::TokenId;

/// Steps in which guesses are told apart by how much they rest on: see [`Guess::strength`].
pub(crate) const STRENGTHS: usize = 4;

/// Where guesses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DraftKind {
    /// What came the last time after the tokens that stand at the sequence's end.
    Ngram,
    /// What the request says that the answer may be.
    Prediction,
    /// The only text that a grammar allows, as the tokenizer writes it.
    Grammar,
    /// What the model's own draft head says (multi-token prediction).
    Mtp,
}

impl DraftKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Ngram, Self::Prediction, Self::Grammar, Self::Mtp];

    /// Whether the model guesses by a head of its own, and not a source on the host.
    pub fn is_head(self) -> bool {
        self == Self::Mtp
    }

    /// One word, as replies, metrics and settings call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ngram => "ngram",
            Self::Prediction => "prediction",
            Self::Grammar => "grammar",
            Self::Mtp => "mtp",
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftKinds(u8);

impl DraftKinds {
    /// All kinds there are.
    pub fn all() -> Self {
        DraftKind::ALL.into_iter().collect()
    }

    /// Whether the model's own draft head is among them.
    pub fn have_head(self) -> bool {
        self.contains(DraftKind::Mtp)
    }

    /// Is this one among them?
    pub fn contains(self, kind: DraftKind) -> bool {
        self.0 >> kind as u8 & 1 == 1
    }

    /// These kinds without `kind`.
    #[must_use]
    pub fn without(self, kind: DraftKind) -> Self {
        Self(self.0 & !(1 << kind as u8))
    }
}

impl FromIterator<DraftKind> for DraftKinds {
    fn from_iter<I: IntoIterator<Item = DraftKind>>(kinds: I) -> Self {
        Self(kinds.into_iter().fold(0, |all, kind| all | 1 << kind as u8))
    }
}

/// What may come next, the nearest token first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guess {
    /// The guessed tokens, at least one.
    pub tokens: Vec<TokenId>,
    /// Tokens before them that are as they were where the guess is taken from.
    pub matched: usize,
}

impl Guess {
    /// Without what goes beyond `max` tokens.
    pub(crate) fn within(mut self, max: usize) -> Self {
        self.tokens.truncate(max);
        self
    }

    /// How much it rests on, from 0 to [`STRENGTHS`] - 1: guesses of one kind and strength prove right about equally often.
    /// In a text that the answer is said to be like, fewer tokens say where it goes on than in all that came before.
    pub(crate) fn strength(&self, kind: DraftKind) -> usize {
        let least = if kind == DraftKind::Prediction { [1, 2, 6] } else { [3, 6, 12] };
        least.iter().filter(|least| self.matched >= **least).count()
    }
}

/// What was drafted for a choice in the step whose first token this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftReport {
    /// The kind of source that guessed.
    pub kind: DraftKind,
    /// Tokens that were drafted.
    pub drafted: u32,
    /// Of these, the ones that count: so many tokens come with this one.
    pub accepted: u32,
}

/// Follows one sequence and guesses how it goes on. One that panics is switched off, for all sequences.
pub trait DraftSource: Send {
    /// Takes tokens that the sequence has generated, each once and in order.
    fn read(&mut self, tokens: &[TokenId]);

    /// Up to `max` tokens of the vocabulary that may come after what was read. `None` if nothing suggests any.
    fn guess(&mut self, max: usize) -> Option<Guess>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_kinds_has_those_that_are_put_in() {
        let all = DraftKinds::all();
        assert!(DraftKind::ALL.into_iter().all(|kind| all.contains(kind)));
        let one = all.without(DraftKind::Ngram);
        assert!(!one.contains(DraftKind::Ngram) && one.contains(DraftKind::Prediction));
        let none =
            [DraftKind::Prediction, DraftKind::Grammar, DraftKind::Mtp].into_iter().fold(one, DraftKinds::without);
        assert_eq!(none, DraftKinds::default());
    }

    #[test]
    fn the_more_tokens_match_the_stronger_is_a_guess() {
        let of = |kind| move |matched| Guess { tokens: vec![1], matched }.strength(kind);
        assert_eq!([0, 2, 3, 5, 6, 11, 12, 999].map(of(DraftKind::Ngram)), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!([0, 1, 2, 5, 6, 999].map(of(DraftKind::Prediction)), [0, 1, 2, 2, 3, 3]);
        assert!(DraftKind::ALL.into_iter().all(|kind| of(kind)(usize::MAX) == STRENGTHS - 1));
    }
}

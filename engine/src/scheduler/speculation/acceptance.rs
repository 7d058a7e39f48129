//! How often guesses prove right: by source, by how much they rest on, and by place behind the sequence's own token.

use crate::drafts::{ByPlace, DraftKind, STRENGTHS};

/// Part of an estimate that one observation replaces: of a sequence's own, and of what all have in common.
pub(in crate::scheduler) const OF_ONE: f32 = 1.0 / 8.0;
/// Part of an estimate that one observation replaces in what all sequences have in common.
const OF_ALL: f32 = 1.0 / 64.0;
/// What is expected of guesses before any was compared, by strength.
const AT_FIRST: [f32; STRENGTHS] = [0.3, 0.5, 0.75, 0.9];
/// Expected acceptance of a draft head's guesses before any was compared, by place: each guess rests on the one before
/// it, and less on the model.
const HEAD_AT_FIRST: ByPlace<f32> = [0.85, 0.7, 0.6, 0.5, 0.4, 0.4, 0.4];
/// Expected acceptance of a draft head's guesses, by place, after some were right that nobody expected to be: it is for
/// the next ones to say how far that goes.
const HEAD_HOPED: ByPlace<f32> = [0.95, 0.95, 0.85, 0.75, 0.65, 0.55, 0.5];
/// Part of an observation that counts for the places behind those that were compared, where a draft head guesses: nobody
/// sees these before they are drafted, and they are about as good as the last that was.
const BEYOND: f32 = 1.0 / 4.0;
/// A guess's source, and how much it rests on: [`crate::drafts::Guess::strength`].
pub(in crate::scheduler) type Basis = (DraftKind, usize);
/// That of a draft head, whose guesses are all of one strength.
pub(in crate::scheduler) const HEAD: Basis = (DraftKind::Mtp, 2);

/// Shares of drafts that are right where all before them were.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::scheduler) struct Acceptance([[ByPlace<f32>; STRENGTHS]; DraftKind::ALL.len()]);

impl Default for Acceptance {
    fn default() -> Self {
        let of_strength = |share| -> ByPlace<f32> { std::array::from_fn(|_| share) };
        let mut shares = [AT_FIRST.map(of_strength); DraftKind::ALL.len()];
        shares[HEAD.0 as usize][HEAD.1] = HEAD_AT_FIRST;
        Self(shares)
    }
}

impl Acceptance {
    /// A draft head's guesses were right where nobody expected that: from now on they count as nearly always right.
    pub(in crate::scheduler) fn hope(&mut self) {
        let shares = self.0[HEAD.0 as usize][HEAD.1].iter_mut();
        shares.zip(HEAD_HOPED).for_each(|(share, hoped)| *share = share.max(hoped));
    }

    /// How often a draft head's first guess is right.
    pub(in crate::scheduler) fn of_head(&self) -> f64 {
        self.of(HEAD)[0].into()
    }

    /// For guesses of this kind and strength.
    pub(in crate::scheduler) fn of(&self, (kind, strength): Basis) -> ByPlace<f32> {
        self.0[kind as usize][strength]
    }

    /// As [`Self::observe`] for what all sequences have in common; a draft head's places beyond the compared ones count
    /// as if they had been about as right as the last.
    pub(in crate::scheduler) fn observe_for_all(&mut self, basis: Basis, compared: usize, right: usize) {
        self.observe(basis, compared, right, OF_ALL);
        let (kind, strength) = basis;
        let shares = &mut self.0[kind as usize][strength];
        if kind.is_head() && compared > 0 && right == compared {
            let last = shares[compared - 1];
            shares[compared..].iter_mut().for_each(|share| *share += BEYOND * OF_ALL * (last - *share));
        }
    }

    /// Of the first `compared` tokens of such a guess so many were right before one was not.
    pub(in crate::scheduler) fn observe(&mut self, (kind, strength): Basis, compared: usize, right: usize, part: f32) {
        let shares = &mut self.0[kind as usize][strength];
        for (at, share) in shares.iter_mut().enumerate().take(compared.min(right + 1)) {
            let was = if at < right { 1.0 } else { 0.0 };
            *share += part * (was - *share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_draft_head_that_nobody_drafts_go_where_the_last_is_and_back_once_they_are_seen() {
        let (mut all, head) = (Acceptance::default(), HEAD);
        (0..2_000).for_each(|_| all.observe_for_all(head, 3, 3));
        assert!(all.of(head).iter().all(|share| *share > 0.97), "{:?}", all.of(head));
        (0..100).for_each(|_| all.observe_for_all(head, 5, 3));
        let got = all.of(head);
        assert!(got[2] > 0.97 && got[3] < 0.25 && got[4] > 0.97, "{got:?}");
        (0..2_000).for_each(|_| all.observe_for_all((DraftKind::Ngram, 1), 3, 3));
        assert_eq!(all.of((DraftKind::Ngram, 1))[3..], [AT_FIRST[1]; 4], "other sources' places stand for themselves");
    }

    #[test]
    fn shares_go_to_what_is_observed_up_to_the_first_wrong_token() {
        let mut all = Acceptance::default();
        let before = all;
        (0..400).for_each(|i| all.observe((DraftKind::Ngram, 1), 4, if i % 2 == 0 { 4 } else { 1 }, OF_ALL));
        let got = all.of((DraftKind::Ngram, 1));
        assert!(got[0] > 0.99 && (got[1] - 0.5).abs() < 0.1 && got[2] > 0.95, "{got:?}");
        assert_eq!(got[4], AT_FIRST[1], "nobody looked so far");
        assert_eq!(all.of((DraftKind::Ngram, 2)), before.of((DraftKind::Ngram, 2)));
        assert_eq!(all.of((DraftKind::Prediction, 1)), before.of((DraftKind::Prediction, 1)));
    }
}

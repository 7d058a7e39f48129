//! Guesses from a text that a request says its answer will be like: what stands in it behind the place that the output
//! has reached. Where the output parts from the text, the place is found again by the output's last tokens.

use super::{DraftSource, Guess};
use crate::ids::TokenId;
use std::collections::VecDeque;
use std::sync::Arc;

/// Tokens of the output that are compared.
const MATCH_MAX: usize = 32;
/// The output begins like the text: that is what the request says.
const MATCHED_AT_FIRST: usize = 12;
/// Tokens behind the place where output and text parted, and before it, in which it is sought with one token.
const NEAR: (usize, usize) = (8, 64);
/// Further away so many must be alike.
const MATCHED_FAR_MIN: usize = 4;
/// So many tokens of the output are taken for others in the place of as many of the text, until the place is found.
const REPLACED_MAX: usize = 4;

/// See the file's head.
pub struct PredictionSource {
    text: Arc<[TokenId]>,
    /// The token of the text that should come next, if the place is known.
    next: Option<usize>,
    /// The last place that was known.
    parted: usize,
    /// Tokens of the output since then.
    since: usize,
    matched: usize,
    /// The output's last tokens.
    tail: VecDeque<TokenId>,
}

impl PredictionSource {
    /// Of an output that has no token yet.
    pub fn new(text: Arc<[TokenId]>) -> Self {
        Self {
            text,
            next: Some(0),
            parted: 0,
            since: 0,
            matched: MATCHED_AT_FIRST,
            tail: VecDeque::with_capacity(MATCH_MAX),
        }
    }

    fn push(&mut self, token: TokenId) {
        if self.tail.len() == MATCH_MAX {
            self.tail.pop_front();
        }
        self.tail.push_back(token);
        match self.next.filter(|at| self.text.get(*at) == Some(&token)) {
            Some(at) => {
                (self.next, self.parted, self.since) = (Some(at + 1), at + 1, 0);
                self.matched += 1;
            }
            None => {
                self.since += 1;
                self.find_again();
            }
        }
    }

    /// Tokens of the text before `next` that are those at the output's end.
    fn matched_before(&self, next: usize) -> usize {
        self.text[..next].iter().rev().zip(self.tail.iter().rev()).take_while(|(a, b)| a == b).count()
    }

    /// The place with the longest match; of equal ones the nearest to where output and text parted. Where there is none
    /// the output has, for some tokens, others in the place of the text's.
    fn find_again(&mut self) {
        let near = self.parted.saturating_sub(NEAR.0)..=self.parted + NEAR.1;
        let places = 1..self.text.len();
        let matches = places.map(|next| (self.matched_before(next), next));
        let found = matches
            .filter(|(matched, next)| *matched >= MATCHED_FAR_MIN || *matched > 0 && near.contains(next))
            .max_by_key(|(matched, next)| (*matched, std::cmp::Reverse(next.abs_diff(self.parted + 1))));
        let replaced = (self.since <= REPLACED_MAX).then_some(self.parted + self.since);
        self.next = found.map(|(_, next)| next).or(replaced);
        self.matched = found.map_or(0, |(matched, _)| matched);
    }
}

impl DraftSource for PredictionSource {
    fn read(&mut self, tokens: &[TokenId]) {
        tokens.iter().for_each(|token| self.push(*token));
    }

    fn guess(&mut self, max: usize) -> Option<Guess> {
        let rest = self.text.get(self.next?..)?;
        let tokens = rest[..max.min(rest.len())].to_vec();
        (!tokens.is_empty()).then_some(Guess { tokens, matched: self.matched })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(text: &[TokenId], output: &[TokenId]) -> Option<Vec<TokenId>> {
        let mut source = PredictionSource::new(text.into());
        source.read(output);
        source.guess(2).map(|guess| guess.tokens)
    }

    #[test]
    fn the_text_is_guessed_from_its_beginning_on() {
        assert_eq!(after(&[1, 2, 3], &[]), Some(vec![1, 2]));
        assert_eq!(after(&[1, 2, 3], &[1, 2]), Some(vec![3]));
        assert_eq!(after(&[1, 2, 3], &[1, 2, 3]), None);
        assert_eq!(after(&[], &[]), None);
    }

    #[test]
    fn the_place_is_found_again_behind_what_was_changed_put_in_or_left_out() {
        let text = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!(after(&text, &[1, 2, 77]), Some(vec![4, 5]), "supposed to be changed");
        assert_eq!(after(&text, &[1, 2, 77, 78]), Some(vec![5, 6]), "twice");
        assert_eq!(after(&text, &[1, 2, 77, 77, 77, 77, 77]), None, "and no more");
        assert_eq!(after(&text, &[1, 2, 77, 4]), Some(vec![5, 6]), "changed");
        assert_eq!(after(&text, &[1, 2, 77, 78, 79, 3]), Some(vec![4, 5]), "put in");
        assert_eq!(after(&text, &[1, 2, 6]), Some(vec![7, 8]), "left out");
    }

    #[test]
    fn far_from_where_they_parted_one_token_is_no_place() {
        let text: Vec<TokenId> = (0..500).collect();
        assert_eq!(after(&text, &[0, 1, 400]), Some(vec![3, 4]));
        assert_eq!(after(&text, &[0, 1, 400, 401, 402, 403]), Some(vec![404, 405]));
    }

    #[test]
    fn a_place_found_again_counts_for_as_much_as_matches() {
        let mut source = PredictionSource::new([1, 2, 3, 4, 5, 6].into());
        assert_eq!(source.guess(9).unwrap().matched, MATCHED_AT_FIRST);
        source.read(&[1, 77]);
        assert_eq!(source.guess(9), Some(Guess { tokens: vec![3, 4, 5, 6], matched: 0 }), "nothing speaks for it yet");
        source.read(&[3]);
        assert_eq!(source.guess(9), Some(Guess { tokens: vec![4, 5, 6], matched: 1 }));
        source.read(&[4]);
        assert_eq!(source.guess(9), Some(Guess { tokens: vec![5, 6], matched: 2 }));
    }
}

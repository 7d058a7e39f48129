//! Guesses from the sequence itself: the longest run of tokens at its end that stood in prompt or output before, and
//! what came then.
//!
//! Every pair of neighbours is chained to the place where it stood last, so a guess looks at a few places instead of
//! the whole text: 12 bytes a token beside the tokens.

use super::{DraftSource, Guess};
use crate::ids::TokenId;
use std::collections::HashMap;

/// Places that a guess looks at, the latest first.
const PLACES_MAX: usize = 32;
/// Tokens that are compared; what is alike for so long is no better known by more.
const MATCH_MAX: usize = 32;
/// The end of a chain.
const NONE: u32 = u32::MAX;

/// See the file's head.
pub struct SuffixSource {
    tokens: Vec<TokenId>,
    /// Where a pair of neighbours stood last: the place of its second token.
    last: HashMap<(TokenId, TokenId), u32>,
    /// Of each place, where its pair stood before.
    before: Vec<u32>,
}

impl SuffixSource {
    /// Of a sequence with this prompt.
    pub fn new(prompt: &[TokenId]) -> Self {
        let mut source = Self { tokens: Vec::new(), last: HashMap::with_capacity(prompt.len()), before: Vec::new() };
        source.read(prompt);
        source
    }

    fn push(&mut self, token: TokenId) {
        let place = self.tokens.len() as u32;
        let before = self.tokens.last().and_then(|previous| self.last.insert((*previous, token), place));
        self.before.push(before.unwrap_or(NONE));
        self.tokens.push(token);
    }

    /// How many tokens up to `place` are those at the end.
    fn matched(&self, place: usize) -> usize {
        let end = self.tokens.iter().rev();
        let here = self.tokens[..=place].iter().rev();
        end.zip(here).take(MATCH_MAX).take_while(|(a, b)| a == b).count()
    }

    /// The place whose past is most like that of the end; of equal ones the latest.
    fn best_place(&self) -> Option<(usize, usize)> {
        let before = |place: &u32| self.before.get(*place as usize).copied();
        let places = std::iter::successors(self.before.last().copied(), before);
        let places = places.take_while(|place| *place != NONE).take(PLACES_MAX);
        let mut best: Option<(usize, usize)> = None;
        for place in places {
            let matched = self.matched(place as usize);
            if best.is_none_or(|(_, most)| matched > most) {
                best = Some((place as usize, matched));
            }
            if matched == MATCH_MAX {
                break;
            }
        }
        best
    }
}

impl DraftSource for SuffixSource {
    fn read(&mut self, tokens: &[TokenId]) {
        tokens.iter().for_each(|token| self.push(*token));
    }

    fn guess(&mut self, max: usize) -> Option<Guess> {
        let (place, matched) = self.best_place()?;
        // What came then; where that reaches the end, it repeats itself.
        let period = self.tokens.len() - 1 - place;
        let tokens = (0..max).map(|i| self.tokens[place + 1 + i % period]).collect();
        Some(Guess { tokens, matched })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(tokens: &[TokenId], max: usize) -> Option<(Vec<TokenId>, usize)> {
        SuffixSource::new(tokens).guess(max).map(|guess| (guess.tokens, guess.matched))
    }

    #[test]
    fn what_followed_the_same_tokens_is_guessed() {
        assert_eq!(guess(&[1, 2, 3, 4, 5, 9, 1, 2, 3], 2), Some((vec![4, 5], 3)));
        assert_eq!(guess(&[1, 2, 3, 4], 2), None);
        assert_eq!(guess(&[], 2), None);
        assert_eq!(guess(&[7], 2), None);
    }

    #[test]
    fn the_longest_match_wins_and_of_equal_ones_the_latest() {
        assert_eq!(guess(&[8, 1, 2, 30, 9, 1, 2, 40, 8, 1, 2], 1), Some((vec![30], 3)));
        assert_eq!(guess(&[8, 1, 2, 30, 9, 1, 2, 40, 7, 1, 2], 1), Some((vec![40], 2)));
    }

    #[test]
    fn what_repeats_itself_goes_on_to_do_so() {
        assert_eq!(guess(&[5, 6, 5, 6], 5), Some((vec![5, 6, 5, 6, 5], 2)));
        assert_eq!(guess(&[4, 4, 4], 3), Some((vec![4, 4, 4], 2)));
    }

    #[test]
    fn what_was_generated_is_searched_too() {
        let mut source = SuffixSource::new(&[1, 2]);
        source.read(&[3, 4, 1, 2]);
        assert_eq!(source.guess(3), Some(Guess { tokens: vec![3, 4, 1], matched: 2 }));
    }
}

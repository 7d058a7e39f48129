//! What engrams know of spelling: which tokens begin a word. The engine knows no text, so whoever does says it once.

use crate::ids::TokenId;

/// Most frequent pieces of a vocabulary, by id: what joins words rather than names something.
pub const COMMON_IDS: TokenId = 1024;

/// One bit a token: a word, a sign or a space begins with it. Pieces inside words do not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WordStarts(Box<[u64]>);

impl WordStarts {
    /// Of the ids below `vocab`.
    pub fn new(vocab: u32, begins: impl Fn(TokenId) -> bool) -> Self {
        let word =
            |i: u32| (0..64).filter(|bit| 64 * i + bit < vocab && begins(64 * i + bit)).fold(0, |w, bit| w | 1 << bit);
        Self((0..vocab.div_ceil(64)).map(word).collect())
    }

    /// Ids that nobody spoke of begin none.
    pub fn begins(&self, id: TokenId) -> bool {
        self.0.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }

    /// Words that begin in a context.
    pub fn count(&self, context: &[TokenId]) -> u32 {
        context.iter().filter(|&&id| self.begins(id)).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_that_begin_are_counted() {
        let words = WordStarts::new(130, |id| id % 3 == 0);
        assert_eq!(words.count(&[0, 1, 2, 3, 63, 64, 129, 130, 132, 9999]), 4);
        assert!(!WordStarts::default().begins(0));
    }
}

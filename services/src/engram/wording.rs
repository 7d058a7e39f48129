//! Texts as words and sentences, and how words are written in ids.

use crate::text::Tokenizer;
use chimere_engine::engram::COMMON_IDS;
use chimere_engine::ids::TokenId;
use std::collections::{BTreeSet, HashMap};

/// Words of one sentence; what stands farther from its beginning is another one.
pub(super) const SENTENCE_WORDS_MAX: usize = 64;

/// A document as a request brings it.
pub struct DocumentText<'a> {
    /// Its words count as said in each of its sentences.
    pub title: &'a str,
    /// The document itself, from which sentences are matched.
    pub text: &'a str,
}

/// Letters and digits in a row.
#[derive(Clone, Copy)]
pub(super) struct Word<'a> {
    /// As it is written.
    pub(super) text: &'a str,
    /// Byte at which it begins.
    pub(super) at: usize,
}

impl Word<'_> {
    /// The word in lower case, so that every casing of it has one key.
    pub(super) fn key(&self) -> String {
        self.text.to_lowercase()
    }

    pub(super) fn end(&self) -> usize {
        self.at + self.text.len()
    }

    /// A capital or a digit.
    pub(super) fn is_capital(&self) -> bool {
        self.text.chars().next().is_some_and(|c| c.is_uppercase() || c.is_numeric())
    }

    pub(super) fn is_number(&self) -> bool {
        is_number(self.text)
    }

    /// One character lies between them.
    pub(super) fn touches(&self, next: &Word<'_>) -> bool {
        next.at == self.end() + 1
    }
}

pub(super) fn is_number(word: &str) -> bool {
    word.chars().all(char::is_numeric)
}

/// Letters and digits in a row.
pub(super) fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    let mut rest = text.char_indices().peekable();
    std::iter::from_fn(move || {
        let (at, _) = rest.find(|(_, c)| c.is_alphanumeric())?;
        let mut end = text.len();
        while let Some(&(i, c)) = rest.peek() {
            if !c.is_alphanumeric() {
                end = i;
                break;
            }
            rest.next();
        }
        Some(Word { text: &text[at..end], at })
    })
}

/// The words of each sentence of a text.
pub(super) fn sentences(text: &str) -> impl Iterator<Item = impl Iterator<Item = Word<'_>>> {
    let ends = move |(i, c): (usize, char)| {
        let after = text[i + c.len_utf8()..].chars().next();
        let stop = matches!(c, '.' | '!' | '?' | ';') && after.is_none_or(char::is_whitespace);
        (stop || matches!(c, '\n' | '。' | '！' | '？')).then_some(i)
    };
    let mut start = 0;
    text.char_indices().filter_map(ends).chain([text.len()]).map(move |end| {
        let from = std::mem::replace(&mut start, end).min(end);
        words(&text[from..end]).take(SENTENCE_WORDS_MAX).map(move |word| Word { at: from + word.at, ..word })
    })
}

/// How words are written in ids.
pub(super) struct WordTokens<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    /// Ids of words that were asked for, as they stand behind a space.
    pieces: HashMap<String, Vec<TokenId>>,
}

impl<'a> WordTokens<'a> {
    /// Of no word so far.
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, pieces: HashMap::new() }
    }

    pub(super) fn ids(&mut self, word: &str) -> &[TokenId] {
        let tokenizer = self.tokenizer;
        self.pieces.entry(word.to_owned()).or_insert_with(|| tokenizer.encode_plain(&format!(" {word}")))
    }

    pub(super) fn pieces(&mut self, word: &str) -> usize {
        self.ids(word).len()
    }

    /// A word that joins others rather than means something. Digits are frequent pieces and no such words.
    pub(super) fn is_common(&mut self, key: &str) -> bool {
        matches!(self.ids(key), [id] if *id < COMMON_IDS)
    }

    /// How an answer may write it: behind a space or at a beginning, in small letters or with a capital.
    pub(super) fn ways(&mut self, word: &str) -> Vec<Vec<TokenId>> {
        let small = word.to_lowercase();
        let mut letters = small.chars();
        let large: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
        let cased = BTreeSet::from([word.to_owned(), small, large]);
        let both = cased
            .iter()
            .flat_map(|word| [self.tokenizer.encode_plain(&format!(" {word}")), self.tokenizer.encode_plain(word)]);
        both.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_at_stops_before_spaces_and_at_line_ends() {
        let all: Vec<Vec<&str>> =
            sentences("It is 3.5 long. Très bon!\nNext").map(|s| s.map(|w| w.text).collect()).collect();
        assert_eq!(
            all.into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>(),
            [vec!["It", "is", "3", "5", "long"], vec!["Très", "bon"], vec!["Next"]]
        );
    }
}

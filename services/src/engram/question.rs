//! What a prompt asks, as words.

use super::wording::words;
use crate::text::Tokenizer;
use crate::text::tokenizer::TokenKind;
use chimere_engine::ids::TokenId;
use std::collections::BTreeSet;

/// Tokens before an answer in which a question is looked for.
const QUESTION_TOKENS: usize = 192;

/// What a user asked: the words that count as asked for, and those of them that no answer has to bring.
pub struct Question {
    /// Keys of all words shortly before the answer.
    pub(super) around: BTreeSet<String>,
    /// Keys of the last turn's.
    pub(super) asked: BTreeSet<String>,
    /// Those of the last turn without whose it is, if an answer to it is what comes and all of it was looked at.
    pub(super) whole: Option<BTreeSet<String>>,
}

impl Question {
    /// Of what stands shortly before an answer.
    pub fn of_prompt(tokenizer: &Tokenizer, prompt: &[TokenId]) -> Self {
        let tail = &prompt[prompt.len().saturating_sub(QUESTION_TOKENS)..];
        let segments = tail.split(|&id| tokenizer.kind(id) != TokenKind::Text).map(|ids| tokenizer.decode(ids, false));
        let segments: Vec<String> = segments.collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        Self::new(&segments, tail.len() < prompt.len())
    }

    /// Of the segments between a prompt's control tokens, in their order; `cut`: of the first the end alone.
    pub(super) fn new(segments: &[&str], cut: bool) -> Self {
        // A turn begins with whose it is, so one of a single word says nothing.
        let turn = segments.iter().rposition(|segment| keys(segment).len() > 1);
        let whole = turn.filter(|&at| at + 1 < segments.len() && (at > 0 || !cut));
        Self {
            around: segments.iter().flat_map(|segment| keys(segment)).collect(),
            asked: turn.map(|at| keys(segments[at])).unwrap_or_default(),
            whole: whole.map(|at| keys(said_in(segments[at]))),
        }
    }
}

fn keys(text: &str) -> BTreeSet<String> {
    words(text).map(|word| word.key()).collect()
}

/// A turn without the line of a single word that says whose it is.
fn said_in(turn: &str) -> &str {
    turn.split_once('\n').filter(|(first, _)| keys(first).len() == 1).map_or(turn, |(_, said)| said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_known_whole_where_all_of_it_was_looked_at_and_something_comes_behind() {
        let whole = |segments: &[&str], cut| Question::new(segments, cut).whole.map(Vec::from_iter);
        let said = |words: &[&str]| Some(words.iter().map(|word| word.to_string()).collect::<Vec<_>>());
        assert_eq!(whole(&["", "user\nWho is it?", "\n", "assistant\n"], true), said(&["is", "it", "who"]));
        assert_eq!(whole(&["user\nWho is it?", "assistant\n"], true), None);
        assert_eq!(whole(&["user\nWho is it?", "assistant\n"], false), said(&["is", "it", "who"]));
        assert_eq!(whole(&["Who is it?", ""], false), said(&["is", "it", "who"]), "a role may be a token");
        assert_eq!(whole(&["The king is"], false), None, "a text that goes on");
        assert_eq!(whole(&["", "user\nWho is it?", "assistant\nIt is"], false), None, "an answer that goes on");
    }
}

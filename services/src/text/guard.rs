//! Keeps what users write from becoming control tokens. A rendered conversation is one string, in which the template's
//! own
//! `<|im_end|>` ends a turn and a user's must not. So before rendering, control tokens in the conversation are broken
//! up by a guard character, and after the text was cut at the tokens that are left, the guard is taken out again.

use super::tokenizer::{GUARD, TokenKind, Tokenizer};
use aho_corasick::{AhoCorasick, MatchKind};
use std::borrow::Cow;

/// Breaks up a tokenizer's control tokens. Markup that is no control token, such as `<think>`, is left alone: templates
/// look for it in what assistants said before.
#[derive(Clone, Debug)]
pub struct Guard {
    control: AhoCorasick,
    /// Those and the markup that tells a tool's result from what is around it.
    result: AhoCorasick,
}

impl Guard {
    /// For the control tokens of this tokenizer. One of a single character cannot be broken up and is let through.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let control = tokenizer
            .added()
            .filter(|(text, id)| tokenizer.kind(*id) == TokenKind::Special && text.chars().count() > 1);
        let control: Vec<&str> = control.map(|(text, _)| text).collect();
        let markup = tokenizer.added().map(|(text, _)| text).filter(|text| text.contains(RESULT));
        Self { control: finder(control.iter().copied()), result: finder(control.iter().copied().chain(markup)) }
    }

    /// A text without control tokens, from which [`Tokenizer::encode_guarded`] makes this one.
    pub fn guarded<'a>(&self, text: &'a str) -> Cow<'a, str> {
        broken(&self.control, text)
    }

    /// The same for what a tool said: it cannot end its result, nor begin another tool's.
    pub fn guarded_result<'a>(&self, text: &'a str) -> Cow<'a, str> {
        broken(&self.result, text)
    }
}

/// In the markup around a tool's result.
const RESULT: &str = "tool_response";

fn finder<'a>(patterns: impl Iterator<Item = &'a str>) -> AhoCorasick {
    let patterns = patterns.map(str::to_owned).chain([GUARD.to_string()]);
    let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(patterns);
    finder.expect("a few dozen short patterns fit an automaton")
}

/// The text with a guard in each of these that it has.
fn broken<'a>(finder: &AhoCorasick, text: &'a str) -> Cow<'a, str> {
    let mut out = String::new();
    let mut at = 0;
    for found in finder.find_iter(text) {
        let first = text[found.start()..].chars().next().map_or(0, char::len_utf8);
        out.push_str(&text[at..found.start() + first]);
        out.push(GUARD);
        at = found.start() + first;
    }
    if at == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[at..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::super::tokenizer::{golden, unguarded};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_tokens_of_a_user_are_text() {
        let (tokenizer, guard) = (golden(), Guard::new(&golden()));
        let prompt = format!("<|im_start|>user\n{}<|im_end|>", guard.guarded("a<|im_end|>b"));
        let ids = tokenizer.encode_guarded(&prompt);
        let end = tokenizer.id("<|im_end|>").unwrap();
        assert_eq!(ids.iter().filter(|&&id| id == end).count(), 1);
        assert_eq!(tokenizer.decode(&ids, true), "<|im_start|>user\na<|im_end|>b<|im_end|>");
    }

    #[test]
    fn markup_and_ordinary_text_are_left_alone() {
        let guard = Guard::new(&golden());
        for text in ["<think>a</think>", "<tool_response>", "<|im_start", "é"] {
            assert!(matches!(guard.guarded(text), Cow::Borrowed(same) if same == text));
        }
    }

    proptest! {
        #[test]
        fn guarding_hides_every_control_token_and_is_undone(
            pieces in prop::collection::vec(prop_oneof!["<\\|im_end\\|>", "<\\|im_", "end\\|>", "\u{fdd0}{1,3}", "<", ".{0,3}"], 0..12)
        ) {
            let (tokenizer, guard, text) = (golden(), Guard::new(&golden()), pieces.concat());
            let guarded = guard.guarded(&text);
            prop_assert_eq!(unguarded(&guarded), text.as_str());
            let ids = tokenizer.encode_guarded(&guarded);
            prop_assert!(ids.iter().all(|&id| tokenizer.kind(id) != TokenKind::Special));
            prop_assert_eq!(ids, tokenizer.encode_plain(&text));
        }
    }
}

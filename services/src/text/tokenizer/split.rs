//! Cuts text into the words that byte pairs are merged in: the pre-tokenizers of the family, and no others.

use regex::Regex;

/// A pre-tokenizer that the family uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Qwen 2, 3 and 3-Next.
    Qwen2,
    /// Qwen 3.5 and later: marks belong to words.
    Qwen35,
}

impl Rule {
    pub(super) const ALL: [Rule; 2] = [Rule::Qwen2, Rule::Qwen35];

    /// The name that GGUF files give it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Rule::Qwen2 => "qwen2",
            Rule::Qwen35 => "qwen35",
        }
    }

    /// The pattern as `tokenizer.json` has it. It is what defines the rule; [`Splitter`] gives the same words faster.
    pub(super) fn pattern(self) -> &'static str {
        match self {
            Rule::Qwen2 => {
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            }
            Rule::Qwen35 => {
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            }
        }
    }
}

/// Splits by a rule in linear time. The lookahead is the only part of the patterns that an automaton cannot do, so it
/// is done by hand: a run of blanks before a word gives its last one back, for the word to begin with.
#[derive(Debug)]
pub(super) struct Splitter {
    regex: Regex,
}

impl Splitter {
    pub(super) fn new(rule: Rule) -> Self {
        let pattern = rule.pattern().replace(r"|\s+(?!\S)", "");
        Self { regex: Regex::new(&pattern).expect("both patterns are constant and valid without their lookahead") }
    }

    /// The words of `text`, in order, which together are `text`.
    pub(super) fn words<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a str> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let found = self.regex.find_at(text, at)?;
            debug_assert_eq!(found.start(), at, "the alternatives cover every character");
            let word = &text[at..found.end() - given_back(text, at, found.end())];
            at += word.len();
            Some(word)
        })
    }
}

/// Bytes that the lookahead leaves to the next word: a blank word longer than one character gives back its last one,
/// unless the text ends there. Only the last alternative yields blank words that do not end a line.
fn given_back(text: &str, start: usize, end: usize) -> usize {
    let word = &text[start..end];
    match word.chars().next_back() {
        Some(last)
            if end < text.len()
                && last.is_whitespace()
                && !matches!(last, '\r' | '\n')
                && word.len() > last.len_utf8() =>
        {
            last.len_utf8()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokenizers::utils::SysRegex;

    /// What the pattern itself says, lookahead and all.
    fn by_pattern(rule: Rule, text: &str) -> Vec<&str> {
        SysRegex::new(rule.pattern()).unwrap().find_iter(text).map(|(a, b)| &text[a..b]).collect()
    }

    fn check(rule: Rule, text: &str, words: &[&str]) {
        assert_eq!(Splitter::new(rule).words(text).collect::<Vec<_>>(), words);
        assert_eq!(by_pattern(rule, text), words);
    }

    #[test]
    fn the_last_blank_goes_to_the_next_word() {
        check(Rule::Qwen35, "a   b", &["a", "  ", " b"]);
        check(Rule::Qwen35, "a   ", &["a", "   "]);
        check(Rule::Qwen35, "a 1", &["a", " ", "1"]);
        check(Rule::Qwen35, " \n \n  x", &[" \n \n", " ", " x"]);
    }

    #[test]
    fn digits_stand_alone_and_contractions_split() {
        check(Rule::Qwen2, "don't 42!?\n\n", &["don", "'t", " ", "4", "2", "!?\n\n"]);
    }

    #[test]
    fn marks_belong_to_words_in_qwen35_only() {
        check(Rule::Qwen35, "नमस्ते", &["नमस्ते"]);
        check(Rule::Qwen2, "नमस्ते", &["नमस", "्त", "े"]);
    }

    proptest! {
        #[test]
        fn words_are_those_of_the_pattern(text in r"(\PC|[ \t\r\n\u{a0}\u{3000}\u{2028}\u{301}]|'[sStTrReEvVmMlLdD\u{17f}]{1,2}| {1,4}|[a-z]{1,3}|[0-9]){0,40}") {
            for rule in Rule::ALL {
                let splitter = Splitter::new(rule);
                prop_assert_eq!(splitter.words(&text).collect::<Vec<_>>(), by_pattern(rule, &text));
            }
        }
    }
}

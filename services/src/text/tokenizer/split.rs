//! Cuts text into the words that byte pairs are merged in: the pre-tokenizers of the families, and no others.

use regex::Regex;

/// A pre-tokenizer that a family uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SplitRule {
    /// Qwen 2, 3 and 3-Next.
    Qwen2,
    /// Qwen 3.5 and later: marks belong to words.
    Qwen35,
    /// Granite 4, Falcon-H1 and LFM2: up to three digits stand together.
    Llama3,
    /// Nemotron 3: words also end where small letters go over into capitals.
    Tekken,
    /// What Mamba-2 has of GPT-NeoX: line breaks are blanks like others.
    Gpt2,
}

/// What GGUF files leave to a pre-tokenizer's name.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedRule {
    pub(super) name: &'static str,
    pub(super) rule: SplitRule,
    /// Texts are normalised to NFC before.
    pub(super) nfc: bool,
    /// A word that is a token as a whole is not merged.
    pub(super) ignore_merges: bool,
}

/// The names that GGUF files have. Converters drop the normalizer and the word's own look-up, so both come with the
/// name: as the release has them, or where several do, as all of them.
pub(super) const NAMED: [NamedRule; 10] = [
    named("qwen2", SplitRule::Qwen2, true, false),
    named("qwen35", SplitRule::Qwen35, true, false),
    named("dbrx", SplitRule::Llama3, false, false),
    named("falcon-h1", SplitRule::Llama3, false, true),
    named("lfm2", SplitRule::Llama3, false, true),
    named("llama-bpe", SplitRule::Llama3, false, true),
    named("pixtral", SplitRule::Tekken, false, true),
    named("tekken", SplitRule::Tekken, false, true),
    named("mpt", SplitRule::Gpt2, true, false),
    named("olmo", SplitRule::Gpt2, true, false),
];

const fn named(name: &'static str, rule: SplitRule, nfc: bool, ignore_merges: bool) -> NamedRule {
    NamedRule { name, rule, nfc, ignore_merges }
}

impl SplitRule {
    pub(super) const ALL: [SplitRule; 5] =
        [SplitRule::Qwen2, SplitRule::Qwen35, SplitRule::Llama3, SplitRule::Tekken, SplitRule::Gpt2];

    /// Whether a line break ends a run of blanks.
    fn breaks_end_blanks(self) -> bool {
        self != SplitRule::Gpt2
    }

    /// The pattern as `tokenizer.json` has it. It is what defines the rule; [`Splitter`] gives the same words faster.
    pub(super) fn pattern(self) -> &'static str {
        match self {
            SplitRule::Qwen2 => {
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            }
            SplitRule::Qwen35 => {
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            }
            SplitRule::Llama3 => {
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            }
            SplitRule::Tekken => {
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            }
            SplitRule::Gpt2 => r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        }
    }
}

/// Splits by a rule in linear time. The lookahead is the only part of the patterns that an automaton cannot do, so it
/// is done by hand: a run of blanks before a word gives its last one back, for the word to begin with.
#[derive(Debug)]
pub(super) struct Splitter {
    rule: SplitRule,
    regex: Regex,
}

impl Splitter {
    pub(super) fn new(rule: SplitRule) -> Self {
        let pattern = rule.pattern().replace(r"|\s+(?!\S)", "");
        let regex = Regex::new(&pattern).expect("the patterns are constant and valid without their lookahead");
        Self { rule, regex }
    }

    /// The words of `text`, in order, which together are `text`.
    pub(super) fn words<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a str> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let found = self.regex.find_at(text, at)?;
            debug_assert_eq!(found.start(), at, "the alternatives cover every character");
            let word = &text[at..found.end() - given_back(self.rule, text, at, found.end())];
            at += word.len();
            Some(word)
        })
    }
}

/// Bytes that the lookahead leaves to the next word: a blank word longer than one character gives back its last one,
/// unless the text ends there. Only the last alternative yields blank words that do not end a line, or any at all where
/// line breaks are nothing special.
fn given_back(rule: SplitRule, text: &str, start: usize, end: usize) -> usize {
    let word = &text[start..end];
    match word.chars().next_back() {
        Some(last)
            if end < text.len()
                && last.is_whitespace()
                && !(rule.breaks_end_blanks() && matches!(last, '\r' | '\n'))
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
    fn by_pattern(rule: SplitRule, text: &str) -> Vec<&str> {
        SysRegex::new(rule.pattern()).unwrap().find_iter(text).map(|(a, b)| &text[a..b]).collect()
    }

    fn check(rule: SplitRule, text: &str, words: &[&str]) {
        assert_eq!(Splitter::new(rule).words(text).collect::<Vec<_>>(), words);
        assert_eq!(by_pattern(rule, text), words);
    }

    #[test]
    fn the_last_blank_goes_to_the_next_word() {
        check(SplitRule::Qwen35, "a   b", &["a", "  ", " b"]);
        check(SplitRule::Qwen35, "a   ", &["a", "   "]);
        check(SplitRule::Qwen35, "a 1", &["a", " ", "1"]);
        check(SplitRule::Qwen35, " \n \n  x", &[" \n \n", " ", " x"]);
    }

    #[test]
    fn digits_stand_alone_and_contractions_split() {
        check(SplitRule::Qwen2, "don't 42!?\n\n", &["don", "'t", " ", "4", "2", "!?\n\n"]);
    }

    #[test]
    fn marks_belong_to_words_in_qwen35_only() {
        check(SplitRule::Qwen35, "नमस्ते", &["नमस्ते"]);
        check(SplitRule::Qwen2, "नमस्ते", &["नमस", "्त", "े"]);
    }

    #[test]
    fn digits_capitals_and_line_breaks_are_cut_as_each_family_does() {
        check(SplitRule::Llama3, "a1234 b\n\nc", &["a", "123", "4", " b", "\n\n", "c"]);
        check(SplitRule::Tekken, "camelCaseABCd 12/\n", &["camel", "Case", "ABCd", " ", "1", "2", "/\n"]);
        check(SplitRule::Gpt2, "a\n\nb 12 I'LL don't", &["a", "\n", "\n", "b", " 12", " I", "'", "LL", " don", "'t"]);
    }

    proptest! {
        #[test]
        fn words_are_those_of_the_pattern(text in r"(\PC|[ \t\r\n\u{a0}\u{3000}\u{2028}\u{301}]|'[sStTrReEvVmMlLdD\u{17f}]{1,2}| {1,4}|[a-z]{1,3}|[0-9]){0,40}") {
            for rule in SplitRule::ALL {
                let splitter = Splitter::new(rule);
                prop_assert_eq!(splitter.words(&text).collect::<Vec<_>>(), by_pattern(rule, &text));
            }
        }
    }
}

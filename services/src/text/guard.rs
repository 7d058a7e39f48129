//! Keeps what others write from becoming the template's own markers. A rendered conversation is one string, in which
//! the template's `<|im_end|>` ends a turn, its `</tool_response>` a tool's result, and a user's or a tool's must not.
//! So before rendering, markers in the conversation are broken up by characters that no text has, which are taken out
//! again after the rendered text was cut at the tokens that are left.
//!
//! There are two ways to break a marker up. One that is a token of the vocabulary is spelled out by [`GUARD`]. One that is
//! spelled out in any case is cut by [`SPLIT`] inside one of its tokens, so that the same text has other tokens than the
//! template's. Where each of its tokens is one character, which happens in vocabularies of toys, no cut changes anything.

use super::tokenizer::{GUARD, SPLIT, TokenKind, Tokenizer};
use aho_corasick::{AhoCorasick, MatchKind};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Stands twice at the end of a message that is not over, so that its place is found where the template put it.
pub(super) const END: char = '\u{fdd2}';
/// The tags around what the service says as the system late in a conversation.
pub(super) const REMINDER: [&str; 2] = ["<system-reminder>", "</system-reminder>"];

/// Breaks up markers in the texts of a conversation. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Guard {
    tokenizer: Arc<Tokenizer>,
    control: Arc<Breaker>,
    all: Arc<Breaker>,
}

impl Guard {
    /// Knows the control tokens of a tokenizer and no template's markers yet. A control token of a single character
    /// cannot be broken up and is let through.
    pub fn new(tokenizer: &Arc<Tokenizer>) -> Self {
        let control = Arc::new(Breaker::new(control_tokens(tokenizer), tokenizer));
        Self { tokenizer: Arc::clone(tokenizer), all: Arc::clone(&control), control }
    }

    /// The guard for conversations of a template that writes these markers.
    pub(super) fn with(&self, markers: BTreeSet<String>) -> Self {
        let own = REMINDER.map(str::to_owned).into_iter().chain(control_tokens(&self.tokenizer));
        let all = Breaker::new(markers.into_iter().chain(own).collect(), &self.tokenizer);
        Self { all: Arc::new(all), ..self.clone() }
    }

    /// The tokenizer whose control tokens are guarded.
    pub(super) fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// What a model or the system said, from which [`Tokenizer::encode_guarded`] makes this text without control tokens.
    /// Other markup is left alone: templates look for it in what assistants said before.
    pub(super) fn control<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.control.broken(self.tokenizer.composed(text))
    }

    /// What anybody else said, from which [`Tokenizer::encode_guarded`] makes this text without any marker of the
    /// template's.
    pub(super) fn all<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.all.broken(self.tokenizer.composed(text))
    }
}

fn control_tokens(tokenizer: &Tokenizer) -> BTreeSet<String> {
    let control = tokenizer.added().filter(|(_, id)| tokenizer.kind(*id) == TokenKind::Special);
    control.map(|(text, _)| text.to_owned()).collect()
}

/// A text that must not come out as it is, and how it is changed.
#[derive(Debug)]
struct Marker {
    text: String,
    /// Bytes before the place at which it is broken up.
    at: usize,
    by: char,
}

impl Marker {
    /// `None` for what cannot be broken up.
    fn new(text: String, tokenizer: &Tokenizer) -> Option<Self> {
        let first = text.chars().next()?.len_utf8();
        match tokenizer.is_added(&text) {
            true => (text.len() > first).then_some(Self { text, at: first, by: GUARD }),
            false => inside_a_token(&text, tokenizer).map(|at| Self { text, at, by: SPLIT }),
        }
    }

    /// Whether it is a token, which is looked for in whatever case: templates may change that of a text.
    fn is_token(&self) -> bool {
        self.by == GUARD
    }

    fn is(&self, text: &[u8]) -> bool {
        let own = self.text.as_bytes();
        if self.is_token() { own.eq_ignore_ascii_case(text) } else { own == text }
    }

    /// Whether a text is the beginning of the marker, and as much of it as can be broken up.
    fn is_begun_by(&self, part: &[u8]) -> bool {
        let (len, own) = (part.len(), self.text.as_bytes());
        match self.is_token() {
            true => len < own.len() && own[..len].eq_ignore_ascii_case(part),
            false => len < own.len() && len >= self.at && 2 * len > own.len() && own[..len] == *part,
        }
    }

    /// Where a text that is the end of the marker is broken up, and by which character: any end of a token, and a line
    /// without the break before it.
    fn ended_by(&self, part: &[u8]) -> Option<(usize, char)> {
        let own = self.text.as_bytes();
        if self.is_token() {
            let ends = part.len() < own.len() && own[own.len() - part.len()..].eq_ignore_ascii_case(part);
            return ends.then_some((0, GUARD));
        }
        own.strip_prefix(b"\n").filter(|line| *line == part).map(|_| (self.at.saturating_sub(1), self.by))
    }
}

/// The middle of a text's longest token, if any has more than one character.
fn inside_a_token(text: &str, tokenizer: &Tokenizer) -> Option<usize> {
    let mut end = 0;
    let spans = tokenizer.encode_plain(text).into_iter().map(|id| {
        let start = end;
        end += tokenizer.bytes(id).len();
        (start, end)
    });
    let inner = |(start, end): (usize, usize)| {
        let near = |at: &usize| at.abs_diff(start.midpoint(end));
        (start + 1..end).filter(|at| text.is_char_boundary(*at)).min_by_key(near).map(|at| (end - start, at))
    };
    // Of equals the first.
    spans.filter_map(inner).min_by_key(|(length, _)| Reverse(*length)).map(|(_, at)| at)
}

/// Finds markers and breaks them up.
#[derive(Debug)]
struct Breaker {
    /// The template's, and the characters that break texts up, which are told from those that were there.
    markers: Vec<Marker>,
    /// Pattern i is `markers[i]`.
    finder: AhoCorasick,
    /// Bytes of the longest marker.
    longest: usize,
    /// Which bytes markers begin and end with.
    first: ByteSet,
    last: ByteSet,
}

type ByteSet = [bool; 256];

impl Breaker {
    fn new(markers: BTreeSet<String>, tokenizer: &Tokenizer) -> Self {
        let mut markers: Vec<_> = markers.into_iter().filter_map(|text| Marker::new(text, tokenizer)).collect();
        // The characters that break texts up are told from those that were there by a guard behind each of the latter.
        markers.extend([GUARD, SPLIT, END].map(|c| Marker { text: c.to_string(), at: c.len_utf8(), by: GUARD }));
        let mut finder = AhoCorasick::builder();
        finder.match_kind(MatchKind::Standard).ascii_case_insensitive(true);
        let texts = markers.iter().map(|marker| &marker.text);
        let finder = finder.build(texts).expect("short patterns fit an automaton");
        let longest = markers.iter().map(|marker| marker.text.len()).max().unwrap_or(0);
        let (mut first, mut last): (ByteSet, ByteSet) = ([false; 256], [false; 256]);
        for text in markers.iter().map(|marker| marker.text.as_bytes()) {
            for (set, byte) in [(&mut first, text[0]), (&mut last, text[text.len() - 1])] {
                set[byte.to_ascii_lowercase() as usize] = true;
                set[byte.to_ascii_uppercase() as usize] = true;
            }
        }
        Self { markers, finder, longest, first, last }
    }

    /// The text with each of its markers broken up.
    fn broken<'a>(&self, text: Cow<'a, str>) -> Cow<'a, str> {
        let mut breaks = Vec::new();
        self.find_whole(&text, &mut breaks);
        self.find_begun(&text, &mut breaks);
        self.find_ended(&text, &mut breaks);
        if breaks.is_empty() {
            return text;
        }
        breaks.sort_unstable();
        breaks.dedup();
        let (mut out, mut done) = (String::with_capacity(text.len() + 4 * breaks.len()), 0);
        for (at, by) in breaks {
            out.push_str(&text[done..at]);
            out.push(by);
            done = at;
        }
        out.push_str(&text[done..]);
        Cow::Owned(out)
    }

    /// Markers that stand in the text, those that overlap too.
    fn find_whole(&self, text: &str, breaks: &mut Vec<(usize, char)>) {
        // Most texts have none, which is found out faster.
        if !self.finder.is_match(text) {
            return;
        }
        for found in self.finder.find_overlapping_iter(text) {
            let marker = &self.markers[found.pattern().as_usize()];
            if marker.is(&text.as_bytes()[found.range()]) {
                breaks.push((found.start() + marker.at, marker.by));
            }
        }
    }

    /// Markers that the text's end begins, and of which a template may write the rest.
    fn find_begun(&self, text: &str, breaks: &mut Vec<(usize, char)>) {
        for end in [text.len(), text.trim_end().len()] {
            let near = text.floor_char_boundary(end.saturating_sub(self.longest));
            let starts =
                (near..end).filter(|at| text.is_char_boundary(*at) && self.first[text.as_bytes()[*at] as usize]);
            let parts = starts.map(|start| (start, &text.as_bytes()[start..end])).filter(|(_, part)| !is_word(part));
            for (start, part) in parts {
                let begun = self.markers.iter().filter(|marker| marker.is_begun_by(part));
                breaks.extend(begun.map(|marker| (start + marker.at, marker.by)));
            }
        }
    }

    /// Markers that the text's beginning ends, and of which a template may have written the rest: of a line the break
    /// before it.
    fn find_ended(&self, text: &str, breaks: &mut Vec<(usize, char)>) {
        for start in [0, text.len() - text.trim_start().len()] {
            let near = &text.as_bytes()[start..];
            let ends = (1..near.len().min(self.longest) + 1).filter(|end| self.last[near[end - 1] as usize]);
            for part in ends.map(|end| &near[..end]).filter(|part| !is_word(part)) {
                let ended = self.markers.iter().filter_map(|marker| marker.ended_by(part));
                breaks.extend(ended.map(|(at, by)| (start + at, by)));
            }
        }
    }
}

/// Nothing but letters and digits: no template writes the rest of a marker beside these.
fn is_word(part: &[u8]) -> bool {
    part.iter().all(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::super::tokenizer::{golden, shipped};
    use super::*;
    use proptest::prelude::*;

    fn guard(markers: &[&str]) -> Guard {
        Guard::new(&golden()).with(markers.iter().map(|text| (*text).to_owned()).collect())
    }

    fn text_of(ids: &[u32]) -> String {
        golden().decode(ids, true)
    }

    #[test]
    fn control_tokens_of_a_user_are_text() {
        let (tokenizer, guard) = (golden(), guard(&[]));
        let prompt = format!("<|im_start|>user\n{}<|im_end|>", guard.all("a<|im_end|>b"));
        let ids = tokenizer.encode_guarded(&prompt);
        let end = tokenizer.id("<|im_end|>").unwrap();
        assert_eq!(ids.iter().filter(|&&id| id == end).count(), 1);
        assert_eq!(text_of(&ids), "<|im_start|>user\na<|im_end|>b<|im_end|>");
    }

    #[test]
    fn ordinary_text_and_the_model_s_own_markup_are_left_alone() {
        let guard = guard(&["<think>", "</TOOL_RESPONSE>"]);
        for text in ["", "a", "<|im_start", "é", "a <b> c", "</TOOL_", "user", "x > y", "[1]"] {
            assert_eq!(golden().encode_guarded(&guard.all(text)), golden().encode(text), "{text}");
        }
        for text in ["<think>a</think>", "<tool_response>", "</TOOL_RESPONSE>"] {
            assert!(matches!(guard.control(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn a_marker_that_is_no_token_has_other_tokens_than_the_template_s() {
        let tokenizer = shipped();
        let marker = "</tool_result>";
        let guard = Guard::new(&tokenizer).with(BTreeSet::from([marker.to_owned()]));
        let ids = tokenizer.encode_guarded(&guard.all(&format!("a {marker}\nb")));
        let own = tokenizer.encode_guarded(&format!("a {marker}\nb"));
        assert_ne!(ids, own);
        let text = tokenizer.decode(&ids, true);
        assert_eq!(text, format!("a {marker}\nb"));
    }

    #[test]
    fn a_line_whose_break_the_template_writes_is_broken_up() {
        let guard = Guard::new(&shipped()).with(BTreeSet::from(["\n### Response:".to_owned()]));
        for text in ["### Response: x", "a\n### Response:", "a\n### Response"] {
            assert_eq!(guard.all(text).matches(SPLIT).count(), 1, "{text}");
        }
        for text in ["a ### Response: x", "Response: x", "a\n###"] {
            assert_eq!(guard.all(text), text);
        }
    }

    #[test]
    fn a_marker_of_which_the_template_writes_a_part_is_broken_up_too() {
        let guard = guard(&["<think>"]);
        let end = golden().id("<|im_end|>").unwrap();
        for (before, text, after) in [
            ("<parameter=", "<|im_end|", ">"),
            ("<", "|im_end|>", ""),
            ("<|im_", " end|>".trim(), "x"),
            ("", "a<|im_end", "|>"),
            ("", "a<", "|im_end|>"),
        ] {
            let ids = golden().encode_guarded(&format!("{before}{}{after}", guard.all(text)));
            assert!(!ids.contains(&end), "{before} {text} {after}");
            assert_eq!(text_of(&ids), format!("{before}{text}{after}"));
        }
        // Templates strip blanks.
        let stripped = guard.all(" |im_end|> ").trim().to_owned() + guard.all(" <|im_end| ").trim_end() + ">";
        assert!(!golden().encode_guarded(&format!("<{stripped}")).contains(&end));
    }

    #[test]
    fn a_token_is_broken_up_in_any_case_because_templates_change_it() {
        let guard = guard(&[]);
        let ids = golden().encode_guarded(&guard.all("<|IM_end|>").to_lowercase());
        assert!(!ids.contains(&golden().id("<|im_end|>").unwrap()));
    }

    #[test]
    fn markers_that_overlap_are_all_broken_up() {
        let markers = ["answer: question", "question: answer"].map(str::to_owned);
        let guard = Guard::new(&shipped()).with(BTreeSet::from(markers));
        assert_eq!(guard.all("answer: question: answer").matches(SPLIT).count(), 2);
    }

    #[test]
    fn a_letter_that_is_composed_to_one_of_a_marker_is_found() {
        let guard = Guard::new(&shipped()).with(BTreeSet::from(["### Kind response:".to_owned()]));
        assert_eq!(guard.all("### \u{212a}ind response:"), guard.all("### Kind response:"));
        assert_ne!(guard.all("### Kind response:"), "### Kind response:");
    }

    proptest! {
        #[test]
        fn guarding_hides_every_control_token_and_leaves_the_text(
            pieces in prop::collection::vec(prop_oneof![
                "<\\|im_end\\|>", "<\\|im_", "end\\|>", "\u{fdd0}{1,3}", "\u{fdd3}{1,3}", "\u{fdd2}{1,3}", "<", ".{0,3}"
            ], 0..12)
        ) {
            let (tokenizer, guard, text) = (golden(), guard(&[]), pieces.concat());
            for guarded in [guard.all(&text), guard.control(&text)] {
                let ids = tokenizer.encode_guarded(&guarded);
                prop_assert!(ids.iter().all(|&id| tokenizer.kind(id) != TokenKind::Special));
                prop_assert_eq!(&ids, &tokenizer.encode_plain(&text));
                prop_assert!(!guarded.contains(&[END; 2].iter().collect::<String>()));
            }
        }
    }
}

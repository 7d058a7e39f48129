//! The marks by which an answer names its sources: `[2]`, and `[1, 3]` for several.

use std::ops::Range;

/// Bytes of the longest mark.
pub(super) const MARK_BYTES_MAX: usize = 40;

/// A mark in a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CitationMark {
    /// Its bytes, both brackets included.
    pub(super) range: Range<usize>,
    /// The numbers in it.
    pub(super) numbers: Vec<usize>,
}

/// The mark that the bracket at `close` ends, if it ends one.
pub(super) fn ending_at(text: &str, close: usize) -> Option<CitationMark> {
    let open = text[..close].bytes().rev().take(MARK_BYTES_MAX).position(|byte| byte == b'[')?;
    let open = close - 1 - open;
    let numbers = text[open + 1..close].split([',', ';']).map(|number| number.trim().parse().ok());
    Some(CitationMark { range: open..close + 1, numbers: numbers.collect::<Option<_>>()? })
}

/// How many sources all marks of a text name.
pub fn named(text: &str) -> usize {
    let marks = text.match_indices(']').filter_map(|(close, _)| ending_at(text, close));
    marks.map(|mark| mark.numbers.len()).sum()
}

/// A text without its marks.
pub(super) fn without(text: &str) -> String {
    let (mut rest, mut last) = (String::with_capacity(text.len()), 0);
    for (close, _) in text.match_indices(']') {
        if let Some(mark) = ending_at(text, close).filter(|mark| mark.range.start >= last) {
            rest.push_str(&text[last..mark.range.start]);
            last = mark.range.end;
        }
    }
    rest + &text[last..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_brackets_are_marks_and_nothing_else_is() {
        let mark = |text: &str| ending_at(text, text.len() - 1).map(|mark| (mark.range.start, mark.numbers));
        assert_eq!(mark("so [2]"), Some((3, vec![2])));
        assert_eq!(mark("so [1, 3;12]"), Some((3, vec![1, 3, 12])));
        for text in ["a[i]", "[]", "[-1]", "[1.5]", "1]", "é]", "[2, ]", "[99999999999999999999999]"] {
            assert_eq!(mark(text), None, "{text}");
        }
        assert_eq!(mark(&format!("[{}1]", " ".repeat(MARK_BYTES_MAX))), None, "too far");
        assert_eq!(without("It is [1] so[2][3], a[i]."), "It is  so, a[i].");
    }
}

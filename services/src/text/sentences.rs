//! Where the sentences of a text lie.

use std::ops::Range;

/// The sentences of a text as ranges of its bytes, without the blanks around them. A line's end is no end of a
/// sentence, because most texts are broken into lines; an empty line is one, because a heading has no full stop.
pub fn sentences(text: &str) -> Vec<Range<usize>> {
    let (mut ends, mut characters) = (Vec::new(), text.char_indices().peekable());
    while let Some((at, c)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        let stops = matches!(c, '。' | '！' | '？')
            || (matches!(c, '.' | '!' | '?') && next.is_none_or(char::is_whitespace))
            || (c == '\n' && next == Some('\n'));
        ends.extend(stops.then_some(at + c.len_utf8()));
    }
    ends.push(text.len());
    let begins = std::iter::once(0).chain(ends.iter().copied());
    begins.zip(&ends).filter_map(|(begin, end)| trimmed(text, begin..*end)).collect()
}

/// A range without the blanks at its ends; none where nothing is left.
fn trimmed(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let part = &text[range.clone()];
    let begin = range.start + (part.len() - part.trim_start().len());
    let end = range.start + part.trim_end().len();
    (begin < end).then_some(begin..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_at_marks_before_blanks_and_at_empty_lines() {
        let text = "Heading\n\nThe port is old. Is it\nlarge? It has 3.5 masts";
        let got: Vec<&str> = sentences(text).into_iter().map(|range| &text[range]).collect();
        assert_eq!(got, ["Heading", "The port is old.", "Is it\nlarge?", "It has 3.5 masts"]);
        assert_eq!(sentences("港口在北方。它很古老！v1.2").len(), 3);
        assert!(sentences(" \n\n ").is_empty() && sentences("").is_empty());
    }
}

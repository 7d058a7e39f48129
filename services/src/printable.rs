//! Text of elsewhere, such as a name in a model's file, as it may stand on a terminal.

use std::borrow::Cow;

/// The text with what would move a cursor, colour a line or turn its direction written out. Lines end as they do.
pub fn printable(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| (c.is_control() && !"\n\r\t".contains(c)) || is_direction(c);
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| if harmful(c) { c.escape_unicode().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(shown).collect())
}

/// A name on a line of its own: it has no second line.
pub fn one_line(text: &str) -> String {
    printable(text).replace('\n', "\\n").replace('\r', "\\r")
}

/// Marks that let text be read in another order than it has.
pub(crate) fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The first line of a text behind the white space that it begins with; empty if there is nothing else.
pub fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out_and_the_rest_is_left() {
        assert!(matches!(printable("Chimère 7B\n\té"), Cow::Borrowed(_)));
        assert_eq!(printable("a\u{1b}[2Jb\u{7}\u{9b}c\u{202e}d"), "a\\u{1b}[2Jb\\u{7}\\u{9b}c\\u{202e}d");
        assert_eq!(one_line("a\r\nready on http://elsewhere"), "a\\r\\nready on http://elsewhere");
    }
}

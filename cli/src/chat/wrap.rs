//! Breaks lines between words, for a width in columns that may change from one line to the next.
//!
//! Text comes in pieces that end anywhere, so a word is held until the character behind it has come; between ideographs
//! and emoji a line may end as well. Everything before the word that is held has gone out.

use super::glyphs::{Glyph, Style, columns};
use unicode_width::UnicodeWidthChar;

const ZERO_WIDTH_JOINER: char = '\u{200d}';
/// No line begins with these.
const CLOSING: &str = "、。，．！？：；）」』】》〉…)]}.,!?:;'\"";
/// No line ends with these.
const OPENING: &str = "（「『【《〈([{";

/// The line that is being written, and what its next rows begin with.
#[derive(Debug, Default)]
pub(super) struct Wrap {
    /// Columns of a row; `None` breaks nothing, and holds nothing.
    width: Option<usize>,
    /// The beginning of each row of this line but the first.
    hanging: Vec<Glyph>,
    column: usize,
    /// Something stands in this row beside its beginning.
    begun: bool,
    word: Vec<Glyph>,
    /// Blanks before the word.
    blanks: Vec<Glyph>,
}

impl Wrap {
    /// From the next word on.
    pub(super) fn set_width(&mut self, width: Option<usize>) {
        self.width = width.map(|width| width.max(1));
    }

    pub(super) fn width(&self) -> Option<usize> {
        self.width
    }

    /// Takes the next character of a line, which is no line feed.
    pub(super) fn push(&mut self, glyph: Glyph, out: &mut Vec<Glyph>) {
        let (c, style) = glyph;
        let Some(width) = self.width else { return out.push(glyph) };
        if c == ' ' || c == '\t' {
            self.end_word(out);
            // More blanks than a row has columns are as good as a row of them.
            if self.blanks.len() < width {
                self.blanks.push((' ', style));
            }
            return;
        }
        if self.may_break_before(c) {
            self.end_word(out);
        }
        self.word.push(glyph);
        let room = width.saturating_sub(columns(&self.hanging)).max(1);
        if self.word.len() > 1 && columns(&self.word) > room {
            // A word that is longer than a row is cut where the row ends.
            let last = self.word.pop();
            self.end_word(out);
            self.word.extend(last);
        }
    }

    /// Writes a mark such as a bullet, below which the rows of its line do not begin.
    pub(super) fn mark(&mut self, mark: &[Glyph], hanging: &[Glyph], out: &mut Vec<Glyph>) {
        out.extend_from_slice(mark);
        self.column += columns(mark);
        self.hang(hanging);
        self.begun = self.column > columns(&self.hanging);
    }

    /// Lets the rows of this line begin so, unless too little of them would be left.
    pub(super) fn hang(&mut self, more: &[Glyph]) {
        let both = columns(&self.hanging) + columns(more);
        if self.width.is_some_and(|width| both * 2 <= width) {
            self.hanging.extend_from_slice(more);
        }
    }

    /// Writes what is held of the line, and its line feed.
    pub(super) fn new_line(&mut self, out: &mut Vec<Glyph>) {
        self.end(out);
        out.push(('\n', Style::PLAIN));
    }

    /// Writes what is held. Blanks at the end of a line are not seen.
    pub(super) fn end(&mut self, out: &mut Vec<Glyph>) {
        self.end_word(out);
        self.blanks.clear();
        self.hanging.clear();
        (self.column, self.begun) = (0, false);
    }

    fn may_break_before(&self, c: char) -> bool {
        let wide = |c: char| c.width() == Some(2);
        let joins = c.width().unwrap_or(0) == 0 || ('\u{1f3fb}'..='\u{1f3ff}').contains(&c) || CLOSING.contains(c);
        let Some((last, _)) = self.word.iter().rev().find(|(c, _)| c.width() != Some(0) || *c == ZERO_WIDTH_JOINER)
        else {
            return false;
        };
        !joins && *last != ZERO_WIDTH_JOINER && !OPENING.contains(*last) && (wide(c) || wide(*last))
    }

    fn end_word(&mut self, out: &mut Vec<Glyph>) {
        let Some(width) = self.width else { return };
        if self.word.is_empty() {
            return;
        }
        let (word, blanks) = (columns(&self.word), self.blanks.len());
        if self.column + blanks + word > width {
            if self.begun {
                out.push(('\n', Style::PLAIN));
                out.extend_from_slice(&self.hanging);
                self.column = columns(&self.hanging);
            }
        } else {
            out.extend_from_slice(&self.blanks);
            self.column += blanks;
        }
        self.blanks.clear();
        out.append(&mut self.word);
        self.column += word;
        self.begun = true;
    }
}

/// The rows that a line takes in this many columns.
pub(super) fn fold(line: &[Glyph], width: usize) -> Vec<Vec<Glyph>> {
    let (mut wrap, mut out) = (Wrap::default(), Vec::new());
    wrap.set_width(Some(width));
    line.iter().for_each(|glyph| wrap.push(*glyph, &mut out));
    wrap.end(&mut out);
    out.split(|(c, _)| *c == '\n').map(<[Glyph]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::super::glyphs::glyphs;
    use super::*;

    fn rows(text: &str, width: usize) -> Vec<String> {
        let line: Vec<Glyph> = glyphs(text, Style::PLAIN).collect();
        fold(&line, width).iter().map(|row| row.iter().map(|(c, _)| *c).collect()).collect()
    }

    #[test]
    fn lines_break_between_words_and_long_words_where_the_row_ends() {
        assert_eq!(rows("one two three", 7), ["one two", "three"]);
        assert_eq!(rows("one  two", 5), ["one", "two"]);
        assert_eq!(rows("a abcdefghij b", 4), ["a", "abcd", "efgh", "ij b"]);
        assert_eq!(rows("  indented text", 10), ["  indented", "text"]);
        assert_eq!(rows("", 3), [""]);
    }

    #[test]
    fn wide_characters_count_two_columns_and_marks_none() {
        assert_eq!(rows("中文字符测试", 5), ["中文", "字符", "测试"]);
        assert_eq!(rows("中文字，符", 6), ["中文", "字，符"], "no row begins with a comma");
        assert_eq!(rows("e\u{301}e\u{301}e\u{301} x", 3), ["e\u{301}e\u{301}e\u{301}", "x"]);
        assert_eq!(
            rows("ab 👨\u{200d}👩\u{200d}👧 c", 5),
            ["ab 👨\u{200d}👩\u{200d}👧", "c"],
            "one emoji is not taken apart"
        );
        assert_eq!(rows("👍🏽👍🏽👍🏽", 4), ["👍🏽👍🏽", "👍🏽"]);
    }

    #[test]
    fn no_row_is_wider_than_the_terminal_and_no_character_is_lost() {
        let text = "The quick 中文字符 fox_jumps_over_everything, e\u{301}tude 👍🏽 (and) [more]: 12,345.";
        for width in 2..100 {
            let rows = rows(text, width);
            for row in &rows {
                let line: Vec<Glyph> = glyphs(row, Style::PLAIN).collect();
                assert!(columns(&line) <= width, "{row:?} in {width}");
            }
            assert_eq!(rows.concat().replace(' ', ""), text.replace(' ', ""), "in {width}");
        }
        assert_eq!(rows("中文", 1), ["中", "文"], "what fits nowhere is written all the same");
    }
}

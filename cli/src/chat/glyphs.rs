//! Characters with the style they are drawn in, and the escape sequences that draw them.

use unicode_width::UnicodeWidthStr;

const PLAIN: &str = "\x1b[0m";

/// A set of attributes of a character.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style(u8);

impl Style {
    pub(super) const PLAIN: Self = Self(0);
    pub(super) const BOLD: Self = Self(1);
    pub(super) const DIM: Self = Self(2);
    pub(super) const ITALIC: Self = Self(4);
    pub(super) const UNDERLINED: Self = Self(8);
    pub(super) const STRUCK: Self = Self(16);
    pub(super) const CODE: Self = Self(32);
    /// Each attribute with the sequences that begin and end it. Bold and dim share the latter.
    const CODES: [(Self, &str, &str); 6] = [
        (Self::BOLD, "\x1b[1m", "\x1b[22m"),
        (Self::DIM, "\x1b[2m", "\x1b[22m"),
        (Self::ITALIC, "\x1b[3m", "\x1b[23m"),
        (Self::UNDERLINED, "\x1b[4m", "\x1b[24m"),
        (Self::STRUCK, "\x1b[9m", "\x1b[29m"),
        (Self::CODE, "\x1b[36m", "\x1b[39m"),
    ];

    pub(super) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn toggled(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
}

/// A character and its style.
pub(super) type Glyph = (char, Style);

/// A text in one style.
pub(super) fn glyphs(text: &str, style: Style) -> impl Iterator<Item = Glyph> + '_ {
    text.chars().map(move |c| (c, style))
}

/// Columns of a terminal that the characters take together: a combining mark none, an ideograph two.
pub(super) fn columns(line: &[Glyph]) -> usize {
    line.iter().map(|(c, _)| *c).collect::<String>().width()
}

/// Turns characters into what is written to a terminal. No style lasts beyond the end of a line.
#[derive(Debug, Default)]
pub(super) struct Renderer {
    shown: Style,
}

impl Renderer {
    pub(super) fn render(&mut self, line: &[Glyph]) -> String {
        let mut out = String::with_capacity(line.len());
        for (c, style) in line {
            self.change(if *c == '\n' { Style::PLAIN } else { *style }, &mut out);
            out.push(*c);
        }
        out
    }

    /// Ends the style that is open.
    pub(super) fn end(&mut self) -> String {
        let mut out = String::new();
        self.change(Style::PLAIN, &mut out);
        out
    }

    fn change(&mut self, style: Style, out: &mut String) {
        let shown = std::mem::replace(&mut self.shown, style);
        if shown == style {
            return;
        }
        if style == Style::PLAIN {
            return out.push_str(PLAIN);
        }
        // What ends bold ends dim as well, so the one that stays is begun again.
        let weight = Style::BOLD.with(Style::DIM).0;
        let again = shown.0 & !style.0 & weight != 0;
        for (each, _, off) in Style::CODES {
            if shown.has(each) && !style.has(each) {
                out.push_str(off);
            }
        }
        for (each, on, _) in Style::CODES {
            if style.has(each) && (!shown.has(each) || (again && each.0 & weight != 0)) {
                out.push_str(on);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_change_by_as_little_as_can_be_and_end_with_the_line() {
        let both = Style::BOLD.with(Style::DIM);
        let line = [('a', both), ('b', Style::DIM), ('c', Style::STRUCK), ('\n', Style::STRUCK), ('d', Style::STRUCK)];
        let mut renderer = Renderer::default();
        let shown = renderer.render(&line) + &renderer.end();
        assert_eq!(shown, "\x1b[1m\x1b[2ma\x1b[22m\x1b[2mb\x1b[22m\x1b[9mc\x1b[0m\n\x1b[9md\x1b[0m");
    }

    #[test]
    fn characters_take_the_columns_that_a_terminal_gives_them() {
        for (text, want) in [("abc", 3), ("中文", 4), ("e\u{301}", 1), ("👍🏽", 2), ("", 0)] {
            assert_eq!(columns(&glyphs(text, Style::PLAIN).collect::<Vec<_>>()), want, "{text}");
        }
    }
}

//! Markdown drawn as it comes: headings, lists, quotes, code and emphasis of a terminal that has colours.
//!
//! Text arrives in pieces that end anywhere, and what was written cannot be taken back. So a mark is held until the
//! next character says what it is, a few bytes at most; everything else goes out at once. The same text gives the same
//! bytes however it is cut.

const BOLD: &str = "\x1b[1m";
const NOT_BOLD: &str = "\x1b[22m";
const ITALIC: &str = "\x1b[3m";
const NOT_ITALIC: &str = "\x1b[23m";
const CODE: &str = "\x1b[36m";
const NOT_CODE: &str = "\x1b[39m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// Longer beginnings of a line than this are no mark.
const MARK_BYTES_MAX: usize = 40;

/// Draws the Markdown of one answer as its pieces come.
#[derive(Debug, Default)]
pub(super) struct Painter {
    /// What of the line has come while it may still be a mark, or a star that may be half of two.
    held: String,
    line: LineKind,
    fence: bool,
    bold: bool,
    italic: bool,
    code: bool,
    /// The last character that was drawn of the line.
    last: Option<char>,
}

/// The kind of the line that is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum LineKind {
    /// The line has just begun, and its kind is not known yet.
    #[default]
    Begins,
    Heading,
    /// The line of a fence.
    Fence,
    Text,
}

impl Painter {
    /// The text to write for the next piece.
    pub(super) fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        text.chars().for_each(|c| self.take(c, &mut out));
        out
    }

    /// The text that was held, and an end to all styles that are open.
    pub(super) fn end(mut self) -> String {
        let mut out = String::new();
        self.release(&mut out);
        if self.fence || self.bold || self.italic || self.code || self.line != LineKind::Begins {
            out.push_str(PLAIN);
        }
        out
    }

    fn take(&mut self, c: char, out: &mut String) {
        if c == '\n' {
            return self.new_line(out);
        }
        match self.line {
            LineKind::Begins => {
                self.held.push(c);
                self.begin(out);
            }
            LineKind::Text if !self.fence => self.inline(c, out),
            LineKind::Heading | LineKind::Fence | LineKind::Text => out.push(c),
        }
    }

    fn new_line(&mut self, out: &mut String) {
        if self.line == LineKind::Begins && is_fence(&self.held) {
            self.toggle_fence(out);
        }
        self.release(out);
        if self.bold || self.italic || self.code || self.line == LineKind::Heading || self.line == LineKind::Fence {
            out.push_str(PLAIN);
        }
        (self.bold, self.italic, self.code, self.last) = (false, false, false, None);
        self.line = LineKind::Begins;
        out.push('\n');
        if self.fence {
            out.push_str(CODE);
        }
    }

    /// Decides what the line is, once its beginning says so.
    fn begin(&mut self, out: &mut String) {
        let indent = self.held.len() - self.held.trim_start_matches(' ').len();
        let (spaces, mark) = self.held.split_at(indent);
        if self.held.len() >= MARK_BYTES_MAX {
            return self.plain(out);
        }
        if mark.is_empty() {
            return;
        }
        if is_fence(&self.held) {
            return self.toggle_fence(out);
        }
        let may_be_fence = "```".starts_with(mark);
        if self.fence {
            if !may_be_fence {
                self.plain(out);
            }
            return;
        }
        let drawn = match mark {
            "- " | "* " | "+ " => format!("{spaces}• "),
            "> " => format!("{spaces}{DIM}│{PLAIN} "),
            _ if mark.ends_with(' ') && (2..=7).contains(&mark.len()) && mark.trim_end().chars().all(|c| c == '#') => {
                (self.line, self.held) = (LineKind::Heading, String::new());
                return out.push_str(BOLD);
            }
            _ if may_be_fence || matches!(mark, "-" | "*" | "+" | ">") || is_part_of_heading(mark) => return,
            _ => return self.plain(out),
        };
        self.held.clear();
        self.line = LineKind::Text;
        out.push_str(&drawn);
    }

    /// It is text like any other.
    fn plain(&mut self, out: &mut String) {
        self.line = LineKind::Text;
        let held = std::mem::take(&mut self.held);
        held.chars().for_each(|c| self.take(c, out));
    }

    fn toggle_fence(&mut self, out: &mut String) {
        self.fence = !self.fence;
        self.line = LineKind::Fence;
        out.push_str(PLAIN);
        out.push_str(DIM);
        out.push_str(&std::mem::take(&mut self.held));
    }

    fn inline(&mut self, c: char, out: &mut String) {
        if self.held == "*" {
            self.held.clear();
            if c == '*' && !self.code {
                return self.toggle_bold(out);
            }
            self.star(c, out);
        }
        match c {
            '`' => {
                self.code = !self.code;
                out.push_str(if self.code { CODE } else { NOT_CODE });
                self.last = Some(c);
            }
            '*' if !self.code => self.held.push(c),
            _ => {
                self.last = Some(c);
                out.push(c);
            }
        }
    }

    fn toggle_bold(&mut self, out: &mut String) {
        self.bold = !self.bold;
        out.push_str(if self.bold { BOLD } else { NOT_BOLD });
    }

    /// One star before `next`: emphasis begins before a word and ends behind one; between blanks it is a product.
    fn star(&mut self, next: char, out: &mut String) {
        let word_before = self.last.is_some_and(|last| !last.is_whitespace());
        if self.italic && word_before {
            self.italic = false;
            out.push_str(NOT_ITALIC);
        } else if !self.italic && !next.is_whitespace() && !self.last.is_some_and(char::is_alphanumeric) {
            self.italic = true;
            out.push_str(ITALIC);
        } else {
            self.last = Some('*');
            out.push('*');
        }
    }

    /// What is held will not become a mark any more.
    fn release(&mut self, out: &mut String) {
        if self.line == LineKind::Text && self.held == "*" {
            self.held.clear();
            return self.star(' ', out);
        }
        out.push_str(&std::mem::take(&mut self.held));
    }
}

fn is_fence(held: &str) -> bool {
    held.trim_start_matches(' ') == "```"
}

fn is_part_of_heading(mark: &str) -> bool {
    mark.len() <= 6 && mark.chars().all(|c| c == '#')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Title\nSome **bold** and *slanted* words, `code * 2`, 2 * 3 and a*b*c.\n\n- one\n* two\n> said\n\
                        ```rust\nlet x = *y; // **not**\n```\n#hash 3 ** 4\n**open\nnext *";

    fn painted(pieces: &[&str]) -> String {
        let mut painter = Painter::default();
        let mut out: String = pieces.iter().map(|piece| painter.push(piece)).collect();
        out.push_str(&painter.end());
        out
    }

    #[test]
    fn marks_become_colours_and_text_stays() {
        let shown = painted(&[TEXT]).replace('\x1b', "");
        for part in [
            "[1mTitle[0m\n",
            "[1mbold[22m and [3mslanted[23m words, [36mcode * 2[39m, 2 * 3 and a*b*c.",
            "• one\n• two\n[2m│[0m said",
            "[0m[2m```rust[0m\n[36mlet x = *y; // **not**\n",
            "[36m[0m[2m```[0m\n#hash",
            "[1mopen[0m\nnext *[0m",
        ] {
            assert!(shown.contains(part), "{part:?} in {shown:?}");
        }
    }

    #[test]
    fn it_looks_the_same_however_it_is_cut() {
        let whole = painted(&[TEXT]);
        for cut in (0..=TEXT.len()).filter(|cut| TEXT.is_char_boundary(*cut)) {
            assert_eq!(painted(&[&TEXT[..cut], &TEXT[cut..]]), whole, "cut at {cut}");
        }
        let letters: Vec<String> = TEXT.chars().map(String::from).collect();
        assert_eq!(painted(&letters.iter().map(String::as_str).collect::<Vec<_>>()), whole);
    }

    #[test]
    fn nothing_is_held_for_long() {
        let mut painter = Painter::default();
        let blanks = " ".repeat(100);
        assert!(painter.push(&blanks).len() > 50, "a line of blanks is no mark");
        assert_eq!(painted(&["no marks"]), "no marks\x1b[0m");
        assert_eq!(painted(&[""]), "");
    }
}

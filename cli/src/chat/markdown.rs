//! Markdown drawn as it comes: headings, lists, quotes, rules, tables, code and what stands within lines, for a
//! terminal of some width.
//!
//! Text arrives in pieces that end anywhere, and what was written cannot be taken back. So the beginning of a line is
//! held until it says what the line is, a mark until the next character says what it is, and a word until its end, if
//! lines are broken; a table is drawn when all of it has come. Everything else goes out at once. A text gives the same
//! bytes however it is cut.

use super::glyphs::{Glyph, Renderer, Style, glyphs};
use super::inline::Inline;
use super::table::{Table, is_delimiter};
use super::wrap::Wrap;

/// A longer line is no rule, no fence and no row of a table.
const MARK_BYTES_MAX: usize = 2000;
/// Longer indentations are text.
const INDENT_BYTES_MAX: usize = 40;
/// Rows of one table. Those behind it are text.
const TABLE_LINES_MAX: usize = 500;
/// Columns of a rule where the terminal has more, or a width that is not known.
const RULE_COLUMNS_MAX: usize = 80;

/// Draws the Markdown of one answer as its pieces come.
#[derive(Debug, Default)]
pub(super) struct Painter {
    /// The beginning of a line while it may still be a mark.
    held: String,
    line: LineKind,
    /// The mark that opened the block of code that this line is part of.
    fence: Option<String>,
    /// The line is part of a quote, in which there are neither tables nor blocks of code.
    quoted: bool,
    /// Lines that may become a table.
    table: Vec<String>,
    inline: Inline,
    wrap: Wrap,
    renderer: Renderer,
}

/// The kind of the line that is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum LineKind {
    /// The line has just begun, and its kind is not known yet.
    #[default]
    Begins,
    Text,
    /// A line of a block of code.
    Code,
}

/// What the beginning of a line says of it.
enum Mark {
    /// Not known before more of it has come.
    Unknown,
    Text,
    Heading,
    Quote,
    /// A bullet or a number: as it is drawn, and the bytes of the line that it takes.
    Item(String, usize),
}

impl Painter {
    /// Columns of the terminal, if it has some: for the words that come from now on.
    pub(super) fn set_width(&mut self, width: Option<usize>) {
        self.wrap.set_width(width);
    }

    /// The text to write for the next piece.
    pub(super) fn push(&mut self, text: &str) -> String {
        let mut out = Vec::with_capacity(text.len());
        // A carriage return would let a line overwrite itself.
        text.chars().filter(|c| *c != '\r').for_each(|c| self.take(c, &mut out));
        self.renderer.render(&out)
    }

    /// The text that was held, and an end to all styles that are open.
    pub(super) fn end(mut self) -> String {
        let mut out = Vec::new();
        self.end_line(&mut out);
        self.end_table(&mut out);
        // A table brings its own line feed, which an answer has not at its end.
        if out.last().is_some_and(|(c, _)| *c == '\n') {
            out.pop();
        }
        self.wrap.end(&mut out);
        self.renderer.render(&out) + &self.renderer.end()
    }

    fn take(&mut self, c: char, out: &mut Vec<Glyph>) {
        if c == '\n' {
            let drawn = self.end_line(out);
            if drawn {
                self.wrap.new_line(out);
            }
            return;
        }
        match self.line {
            LineKind::Begins => {
                self.held.push(c);
                self.begin(out);
            }
            LineKind::Text => self.inline(c, out),
            LineKind::Code => out.push((c, Style::CODE)),
        }
    }

    fn inline(&mut self, c: char, out: &mut Vec<Glyph>) {
        let mut drawn = Vec::new();
        self.inline.push(c, &mut drawn);
        drawn.into_iter().for_each(|glyph| self.wrap.push(glyph, out));
    }

    /// Ends a line. Says whether there is something to end with a line feed: not what is held of a table.
    fn end_line(&mut self, out: &mut Vec<Glyph>) -> bool {
        let drawn = self.line != LineKind::Begins || self.whole_line(out);
        let mut rest = Vec::new();
        self.inline.end(&mut rest);
        rest.into_iter().for_each(|glyph| self.wrap.push(glyph, out));
        self.inline = Inline::default();
        (self.line, self.quoted) = (LineKind::Begins, false);
        drawn
    }

    /// Draws a line of which all was held, unless it may be part of a table.
    fn whole_line(&mut self, out: &mut Vec<Glyph>) -> bool {
        let line = self.held.clone();
        let mark = line.trim();
        if self.fence.is_some() || (is_fence(mark) && !self.quoted) {
            self.fence_line(out);
        } else if is_row(mark) && !self.quoted && self.table.len() < TABLE_LINES_MAX {
            return self.table_line(out);
        } else {
            self.end_table(out);
            match mark {
                _ if is_rule(mark) => {
                    self.held.clear();
                    let width = self.wrap.width().unwrap_or(RULE_COLUMNS_MAX).min(RULE_COLUMNS_MAX);
                    out.extend(glyphs(&"─".repeat(width), Style::DIM));
                }
                ">" => self.quote(out),
                _ => self.plain(out),
            }
        }
        true
    }

    /// Decides what the line is, once its beginning says so.
    fn begin(&mut self, out: &mut Vec<Glyph>) {
        let indent = self.held.len() - self.held.trim_start_matches(' ').len();
        let mark = &self.held[indent..];
        if let Some(fence) = &self.fence {
            let may_end = fence.starts_with(mark) || (mark.starts_with(fence) && is_run(mark.trim_end()));
            if !may_end || self.held.len() > MARK_BYTES_MAX {
                self.line = LineKind::Code;
                out.extend(glyphs(&std::mem::take(&mut self.held), Style::CODE));
            }
            return;
        }
        if mark.is_empty() && indent < INDENT_BYTES_MAX {
            return;
        }
        match mark_of(mark, self.quoted) {
            Mark::Unknown if self.held.len() <= MARK_BYTES_MAX => {}
            known => {
                self.end_table(out);
                self.begin_as(known, indent, out);
            }
        }
    }

    fn begin_as(&mut self, mark: Mark, indent: usize, out: &mut Vec<Glyph>) {
        match mark {
            Mark::Heading => {
                self.held.clear();
                (self.line, self.inline) = (LineKind::Text, Inline::new(Style::BOLD));
            }
            Mark::Quote => self.quote(out),
            Mark::Item(drawn, bytes) => {
                let shown: Vec<_> = glyphs(&(" ".repeat(indent) + &drawn), Style::PLAIN).collect();
                let below = vec![(' ', Style::PLAIN); shown.len()];
                self.wrap.mark(&shown, &below, out);
                self.held.drain(..indent + bytes);
                self.text(out);
            }
            Mark::Unknown | Mark::Text => self.plain(out),
        }
    }

    /// A bar for the mark of a quote; what stands behind it begins as a line does.
    fn quote(&mut self, out: &mut Vec<Glyph>) {
        let bar: Vec<_> = glyphs("│ ", Style::DIM).collect();
        self.wrap.mark(&bar, &bar, out);
        self.quoted = true;
        let held = std::mem::take(&mut self.held);
        let rest = held.trim_start_matches(' ');
        let rest = rest.strip_prefix('>').unwrap_or(rest);
        rest.strip_prefix(' ').unwrap_or(rest).chars().for_each(|c| self.take(c, out));
    }

    /// The line is text, which goes on below its own beginning.
    fn plain(&mut self, out: &mut Vec<Glyph>) {
        let indent = self.held.len() - self.held.trim_start_matches(' ').len();
        self.wrap.hang(&vec![(' ', Style::PLAIN); indent]);
        self.text(out);
    }

    fn text(&mut self, out: &mut Vec<Glyph>) {
        self.line = LineKind::Text;
        std::mem::take(&mut self.held).chars().for_each(|c| self.inline(c, out));
    }

    /// The line that begins or ends a block of code, or a short one within it.
    fn fence_line(&mut self, out: &mut Vec<Glyph>) {
        self.end_table(out);
        let line = std::mem::take(&mut self.held);
        let mark = line.trim();
        let is_end = |fence: &String| mark.starts_with(fence.as_str()) && is_run(mark);
        let style = match &self.fence {
            Some(fence) if !is_end(fence) => Style::CODE,
            Some(_) => {
                self.fence = None;
                Style::DIM
            }
            None => {
                let first = mark.chars().next().unwrap_or('`');
                self.fence = Some(mark.chars().take_while(|c| *c == first).collect());
                Style::DIM
            }
        };
        out.extend(glyphs(&line, style));
    }

    /// Holds a line that may be part of a table. Says whether it is drawn already, because it is none.
    fn table_line(&mut self, out: &mut Vec<Glyph>) -> bool {
        self.table.push(std::mem::take(&mut self.held));
        if self.table.len() == 2 && !is_delimiter(&self.table[1]) {
            let second = self.table.pop();
            self.end_table(out);
            self.table.extend(second);
        }
        false
    }

    /// Draws the table whose last line has come, or its only line as text. Each line ends with a line feed.
    fn end_table(&mut self, out: &mut Vec<Glyph>) {
        let lines = std::mem::take(&mut self.table);
        if lines.len() > 1 {
            return out.extend(Table::new(&lines).draw(self.wrap.width()));
        }
        // What is held and what was said of the line that comes now is kept for it.
        for line in lines {
            Inline::whole(&line, Style::PLAIN).into_iter().for_each(|glyph| self.wrap.push(glyph, out));
            self.wrap.new_line(out);
        }
    }
}

/// What the beginning of a line is, which does not begin with a blank.
fn mark_of(mark: &str, quoted: bool) -> Mark {
    let (Some(first), Some(last)) = (mark.chars().next(), mark.chars().next_back()) else { return Mark::Text };
    let all_but_last = &mark[..mark.len() - last.len_utf8()];
    let digits = mark.len() - mark.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    match first {
        '#' if is_run(all_but_last) && all_but_last.len() <= 6 && last == ' ' => Mark::Heading,
        '#' if is_run(mark) && mark.len() <= 6 => Mark::Unknown,
        '>' if mark == ">" => Mark::Unknown,
        '>' => Mark::Quote,
        '`' | '~' if !quoted && (is_fence(mark) || "```".starts_with(mark) || "~~~".starts_with(mark)) => Mark::Unknown,
        '|' if !quoted => Mark::Unknown,
        '-' | '*' | '_' | '+' if mark.chars().all(|c| c == first || c == ' ') => Mark::Unknown,
        '-' | '*' | '+' if mark[1..].starts_with(' ') => Mark::Item("• ".into(), 2),
        '0'..='9' if digits <= 3 => match &mark[digits..] {
            "" | "." | ")" => Mark::Unknown,
            ". " | ") " => Mark::Item(mark.into(), mark.len()),
            _ => Mark::Text,
        },
        _ => Mark::Text,
    }
}

/// One character, as often as may be.
fn is_run(text: &str) -> bool {
    let first = text.chars().next();
    text.chars().all(|c| Some(c) == first)
}

/// The line begins a block of code: three marks or more, and no further ones, which would end it in its own line.
fn is_fence(line: &str) -> bool {
    ['`', '~'].into_iter().any(|mark| {
        let rest = line.trim_start_matches(mark);
        line.len() - rest.len() >= 3 && !rest.contains('`')
    })
}

fn is_rule(line: &str) -> bool {
    let marks: String = line.chars().filter(|c| *c != ' ').collect();
    marks.len() >= 3 && is_run(&marks) && marks.starts_with(['-', '*', '_'])
}

/// The line may be one of a table.
fn is_row(line: &str) -> bool {
    line.starts_with('|') && line.len() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Title\nSome **bold** and *slanted* words, `code * 2`, 2 * 3 and a*b*c.\n\n- one\n* two\n> said\n\
                        ```rust\nlet x = *y; // **not**\n```\n#hash 3 ** 4\n**open\nnext *";

    const MORE: &str = "One [page here](http://a.b) and ~~struck~~ words.\n\n***\n|a|b|\n|-|-|\n|1|two|\n\n\
                        1. a number whose line is long\n  - below a list's item, too\n> a quote that goes on and on\n\
                        > - and a list\nx | y\n|z|\na line\n~~~~\n~~~\n| no | table |\n~~~~\n\
                        ------- not a rule\n`\n中文字符中文字符中文字符中文";

    fn plain(width: Option<usize>, text: &str) -> String {
        let (shown, mut escaped) = (painted_in(width, &[text]), false);
        let visible = |c: &char| {
            let was = escaped;
            escaped = if was { *c != 'm' } else { *c == '\x1b' };
            !was && !escaped
        };
        shown.chars().filter(visible).collect()
    }

    fn painted(pieces: &[&str]) -> String {
        painted_in(None, pieces)
    }

    fn painted_in(width: Option<usize>, pieces: &[&str]) -> String {
        let mut painter = Painter::default();
        painter.set_width(width);
        let mut out: String = pieces.iter().map(|piece| painter.push(piece)).collect();
        out.push_str(&painter.end());
        out
    }

    #[test]
    fn marks_become_colours_and_text_stays() {
        let shown = painted(&[TEXT]).replace('\x1b', "");
        for part in [
            "[1mTitle[0m\n",
            "[1mbold[0m and [3mslanted[0m words, [36mcode * 2[0m, 2 * 3 and a*b*c.",
            "• one\n• two\n[2m│ [0msaid",
            "[2m```rust[0m\n[36mlet x = *y; // **not**[0m\n",
            "[2m```[0m\n#hash 3 ** 4\n",
            "[1mopen[0m\nnext *",
        ] {
            assert!(shown.contains(part), "{part:?} in {shown:?}");
        }
    }

    #[test]
    fn it_looks_the_same_however_it_is_cut() {
        let text = &format!("{TEXT}\n\n{MORE}");
        for width in [None, Some(80), Some(20), Some(3)] {
            let painted = |pieces: &[&str]| painted_in(width, pieces);
            let whole = painted(&[text]);
            for cut in (0..=text.len()).filter(|cut| text.is_char_boundary(*cut)) {
                assert_eq!(painted(&[&text[..cut], &text[cut..]]), whole, "cut at {cut}");
            }
            let letters: Vec<String> = text.chars().map(String::from).collect();
            assert_eq!(painted(&letters.iter().map(String::as_str).collect::<Vec<_>>()), whole);
        }
    }

    #[test]
    fn rules_tables_quotes_and_lists_are_drawn_as_wide_as_the_terminal_is() {
        let shown = plain(Some(24), MORE);
        let want = [
            "One page here",
            "(http://a.b) and struck",
            "words.",
            "",
            "────────────────────────",
            "a │ b",
            "──┼────",
            "1 │ two",
            "",
            "1. a number whose line",
            "   is long",
            "  • below a list's item,",
            "    too",
            "│ a quote that goes on",
            "│ and on",
            "│ • and a list",
            "x | y",
            "|z|",
            "a line",
            "~~~~",
            "~~~",
            "| no | table |",
            "~~~~",
            "------- not a rule",
            "",
            "中文字符中文字符中文字符",
            "中文",
        ];
        assert_eq!(shown.lines().collect::<Vec<_>>(), want);
    }

    #[test]
    fn no_drawn_line_is_wider_than_the_terminal_but_in_a_block_of_code() {
        let text =
            format!("{TEXT}\n\n{MORE}").replace("let x = *y; // **not**", "let x").replace("| no | table |", "|");
        for width in 8..120 {
            for line in plain(Some(width), &text).lines() {
                let columns = super::super::glyphs::columns(&glyphs(line, Style::PLAIN).collect::<Vec<_>>());
                assert!(columns <= width, "{line:?} in {width}");
            }
        }
    }

    #[test]
    fn a_line_never_overwrites_itself() {
        assert_eq!(painted(&["Yes\rNo\r\n"]), "YesNo\n");
    }

    #[test]
    fn words_go_out_as_they_end_and_tables_when_they_do() {
        let mut painter = Painter::default();
        painter.set_width(Some(40));
        assert_eq!(painter.push("Some wor"), "Some");
        assert_eq!(painter.push("ds of "), " words of");
        assert_eq!(painter.push("it\n| a |\n|-|\n| b |\n"), " it\n");
        assert!(painter.push("n").contains("b\n"));
    }

    #[test]
    fn nothing_is_held_for_long() {
        let mut painter = Painter::default();
        let blanks = " ".repeat(100);
        assert!(painter.push(&blanks).len() > 50, "a line of blanks is no mark");
        assert_eq!(painted(&["no marks"]), "no marks");
        assert_eq!(painted(&[""]), "");
    }
}

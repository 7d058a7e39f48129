//! Text that is no Markdown, or is not drawn as such, in one style and broken between words.

use super::glyphs::{Renderer, Style};
use super::wrap::Wrap;

/// Draws a text as its pieces come.
#[derive(Debug, Default)]
pub(super) struct Prose {
    style: Style,
    wrap: Wrap,
    renderer: Renderer,
}

impl Prose {
    pub(super) fn new(style: Style) -> Self {
        Self { style, ..Self::default() }
    }

    /// The text to write for the next piece at a terminal that is this wide now.
    pub(super) fn push(&mut self, text: &str, width: Option<usize>) -> String {
        let mut out = Vec::new();
        self.wrap.set_width(width);
        for c in text.chars().filter(|c| *c != '\r') {
            match c {
                '\n' => self.wrap.new_line(&mut out),
                c => self.wrap.push((c, self.style), &mut out),
            }
        }
        self.renderer.render(&out)
    }

    /// The text that was held, and an end to the style. What comes then is another text.
    pub(super) fn end(&mut self) -> String {
        let mut out = Vec::new();
        self.wrap.end(&mut out);
        self.renderer.render(&out) + &self.renderer.end()
    }
}

/// Whole lines, each with its line feed. The rows of a line begin below its second column, if it has two.
pub(super) fn lines(text: &str, style: Style, width: Option<usize>) -> String {
    let (mut wrap, mut out) = (Wrap::default(), Vec::new());
    wrap.set_width(width);
    for line in text.lines() {
        wrap.hang(&vec![(' ', style); second_column(line)]);
        line.chars().for_each(|c| wrap.push((c, style), &mut out));
        wrap.new_line(&mut out);
    }
    Renderer::default().render(&out)
}

/// Characters before what stands behind two blanks.
fn second_column(line: &str) -> usize {
    line.find("  ").map_or(0, |at| {
        let behind = line[at..].trim_start_matches(' ');
        line.chars().count() - behind.chars().count()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_line_begin_below_its_second_column_where_there_is_room() {
        let text = "/think   let it think first\none line";
        assert_eq!(lines(text, Style::PLAIN, Some(20)), "/think   let it\n         think first\none line\n");
        assert_eq!(lines(text, Style::PLAIN, Some(12)), "/think   let\nit think\nfirst\none line\n");
        assert_eq!(lines("a", Style::DIM, None), "\x1b[2ma\x1b[0m\n");
    }

    #[test]
    fn words_go_out_as_they_end() {
        let mut prose = Prose::new(Style::DIM);
        let width = Some(6);
        assert_eq!(prose.push("one tw", width), "\x1b[2mone");
        assert_eq!(prose.push("o\r\nthree", width), "\x1b[0m\n\x1b[2mtwo\x1b[0m\n");
        assert_eq!(prose.end(), "\x1b[2mthree\x1b[0m");
    }
}

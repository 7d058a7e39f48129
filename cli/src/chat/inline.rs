//! Marks within a line: emphasis, code, strike-through, links. A mark is held until what follows says what it is.

use super::glyphs::{Glyph, Style, glyphs};

/// A link longer than this is no link, so that nothing is held for ever.
const LINK_BYTES_MAX: usize = 1000;

/// The state of the line that is read.
#[derive(Debug, Default)]
pub(super) struct Inline {
    /// The style of the line itself.
    base: Style,
    /// The style that marks have added to it.
    style: Style,
    /// Characters that may become a mark.
    held: String,
    /// The last character that was drawn.
    last: Option<char>,
    /// Brackets are text, as they are within the text of a link.
    no_links: bool,
}

impl Inline {
    pub(super) fn new(base: Style) -> Self {
        Self { base, ..Self::default() }
    }

    /// All of a text without line feeds.
    pub(super) fn whole(text: &str, base: Style) -> Vec<Glyph> {
        Self::new(base).all(text)
    }

    fn all(mut self, text: &str) -> Vec<Glyph> {
        let mut out = Vec::new();
        text.chars().for_each(|c| self.push(c, &mut out));
        self.end(&mut out);
        out
    }

    pub(super) fn push(&mut self, c: char, out: &mut Vec<Glyph>) {
        match (self.held.as_str(), c) {
            ("", _) => self.first(c, out),
            ("*", '*') | ("~", '~') => self.held.push(c),
            ("*", _) => {
                self.held.clear();
                self.star(c, out);
                self.first(c, out);
            }
            ("~" | "**" | "~~", _) => {
                self.pair(c, out);
                self.first(c, out);
            }
            _ => self.link(c, out),
        }
    }

    /// The line is over: what is held will not become a mark any more.
    pub(super) fn end(&mut self, out: &mut Vec<Glyph>) {
        if self.held.starts_with('[') {
            self.no_link(out);
        }
        match self.held.as_str() {
            "*" => {
                self.held.clear();
                self.star(' ', out);
            }
            _ => self.pair(' ', out),
        }
    }

    fn put(&mut self, c: char, out: &mut Vec<Glyph>) {
        self.last = Some(c);
        out.push((c, self.base.with(self.style)));
    }

    fn first(&mut self, c: char, out: &mut Vec<Glyph>) {
        let code = self.style.has(Style::CODE);
        match c {
            '`' => {
                self.style = self.style.toggled(Style::CODE);
                self.last = Some(c);
            }
            '*' | '~' if !code => self.held.push(c),
            '[' if !code && !self.no_links => self.held.push(c),
            _ => self.put(c, out),
        }
    }

    /// One star before `next`: emphasis begins before a word and ends behind one; between blanks it is a product.
    fn star(&mut self, next: char, out: &mut Vec<Glyph>) {
        let (italic, word_before) =
            (self.style.has(Style::ITALIC), self.last.is_some_and(|last| !last.is_whitespace()));
        let begins = !italic && !next.is_whitespace() && !self.last.is_some_and(char::is_alphanumeric);
        if (italic && word_before) || begins {
            self.style = self.style.toggled(Style::ITALIC);
        } else {
            self.put('*', out);
        }
    }

    /// Two stars or tildes before `next`: a style begins before a word and ends anywhere. One tilde is text.
    fn pair(&mut self, next: char, out: &mut Vec<Glyph>) {
        let held = std::mem::take(&mut self.held);
        let style = match held.as_str() {
            "**" => Style::BOLD,
            "~~" => Style::STRUCK,
            _ => return held.chars().for_each(|c| self.put(c, out)),
        };
        if next.is_whitespace() && !self.style.has(style) {
            return held.chars().for_each(|c| self.put(c, out));
        }
        self.style = self.style.toggled(style);
    }

    /// The next character of what may be a link, `[text](address)`.
    fn link(&mut self, c: char, out: &mut Vec<Glyph>) {
        self.held.push(c);
        let behind = self.held.split_once(']').map(|(_, behind)| behind);
        match behind {
            None | Some("") if self.held.len() <= LINK_BYTES_MAX => {}
            Some(address) if address.starts_with('(') && self.held.len() <= LINK_BYTES_MAX => {
                if address.matches('(').count() == address.matches(')').count() {
                    self.draw_link(out);
                }
            }
            _ => self.no_link(out),
        }
    }

    fn draw_link(&mut self, out: &mut Vec<Glyph>) {
        let held = std::mem::take(&mut self.held);
        let (text, address) = held[1..held.len() - 1].split_once("](").unwrap_or((&held, ""));
        let address = address.split_whitespace().next().unwrap_or("");
        let shown = if text.is_empty() { address } else { text };
        let base = self.base.with(self.style).with(Style::UNDERLINED);
        out.extend(Self { no_links: true, ..Self::new(base) }.all(shown));
        if !address.is_empty() && address != shown {
            out.push((' ', self.base));
            out.extend(glyphs(&format!("({address})"), self.base.with(Style::DIM)));
        }
        self.last = Some(')');
    }

    fn no_link(&mut self, out: &mut Vec<Glyph>) {
        let held = std::mem::take(&mut self.held);
        let before = std::mem::replace(&mut self.no_links, true);
        held.chars().for_each(|c| self.push(c, out));
        self.no_links = before;
    }
}

#[cfg(test)]
mod tests {
    use super::super::glyphs::Renderer;
    use super::*;

    fn drawn(text: &str) -> String {
        let mut renderer = Renderer::default();
        let shown = renderer.render(&Inline::whole(text, Style::PLAIN)) + &renderer.end();
        shown.replace('\x1b', "")
    }

    #[test]
    fn marks_become_styles_and_text_stays() {
        for (text, want) in [
            ("**bold** and *slanted*", "[1mbold[0m and [3mslanted[0m"),
            ("~~struck~~ out", "[9mstruck[0m out"),
            ("***both*** x", "[1m[3mboth[0m x"),
            ("`a * b` 2 * 3, a*b*c, 2 ** 3, ~5 ~~ 6", "[36ma * b[0m 2 * 3, a*b*c, 2 ** 3, ~5 ~~ 6"),
            ("ends *", "ends *"),
        ] {
            assert_eq!(drawn(text), want, "{text}");
        }
    }

    #[test]
    fn links_show_their_text_and_their_address() {
        for (text, want) in [
            ("see [the **page**](http://a.b/c_(d) \"title\").", "see [4mthe [1mpage[0m [2m(http://a.b/c_(d))[0m."),
            ("[http://a](http://a)", "[4mhttp://a[0m"),
            ("[](http://a)", "[4mhttp://a[0m"),
            ("a[0] and [x] *y* [z", "a[0] and [x] [3my[0m [z"),
            ("[*a*] b", "[[3ma[0m] b"),
            ("`[a](b)`", "[36m[a](b)[0m"),
        ] {
            assert_eq!(drawn(text), want, "{text}");
        }
        let long = format!("[{}", "x".repeat(LINK_BYTES_MAX));
        let (mut inline, mut out) = (Inline::default(), Vec::new());
        long.chars().for_each(|c| inline.push(c, &mut out));
        assert!(out.len() > LINK_BYTES_MAX, "nothing is held for ever");
    }
}

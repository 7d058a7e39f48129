//! Pages of the web: the text between the tags, parted at headings. Nothing is loaded and nothing is run.

use super::lines::{HeadingPath, ParseFault, SectionSink};
use std::io::Write;

/// Elements whose text nobody reads.
const UNREAD: [&str; 7] = ["script", "style", "template", "noscript", "svg", "iframe", "head"];
/// Elements around the text of a page, which nobody reads who looks for that.
pub(super) const AROUND: [&str; 6] = ["nav", "footer", "aside", "form", "button", "select"];
/// Elements that begin and end a line.
const BLOCKS: [&str; 24] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "br",
    "dd",
    "div",
    "dl",
    "dt",
    "figcaption",
    "footer",
    "form",
    "header",
    "hr",
    "li",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "tr",
    "ul",
];
/// Characters by name; others are written as numbers or as themselves.
const NAMED: [(&str, &str); 22] = [
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("nbsp", " "),
    ("ndash", "–"),
    ("mdash", "—"),
    ("hellip", "…"),
    ("auml", "ä"),
    ("ouml", "ö"),
    ("uuml", "ü"),
    ("Auml", "Ä"),
    ("Ouml", "Ö"),
    ("Uuml", "Ü"),
    ("szlig", "ß"),
    ("eacute", "é"),
    ("egrave", "è"),
    ("agrave", "à"),
    ("ccedil", "ç"),
    ("euro", "€"),
    ("copy", "©"),
];
/// Bytes of the name of a character, at most.
const NAME_BYTES: usize = 12;

/// Finds the sections of a page, without the text of elements that are to be passed over.
pub(super) fn read(page: &str, passed: &'static [&str], sink: &mut SectionSink<impl Write>) -> Result<(), ParseFault> {
    let mut reader = HtmlReader { passed, ..HtmlReader::default() };
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        reader.text(&rest[..at]);
        rest = reader.tag(&rest[at..], sink)?;
    }
    reader.text(rest);
    reader.end_section(sink)
}

#[derive(Default)]
struct HtmlReader {
    path: HeadingPath,
    /// The section's text until now.
    text: String,
    /// The level of the heading that is being read, and where it began in `text`.
    heading: Option<(u8, usize)>,
    /// Blanks and line ends count.
    preformatted: bool,
    /// More elements whose text is passed over.
    passed: &'static [&'static str],
}

impl HtmlReader {
    /// Text between two tags.
    fn text(&mut self, raw: &str) {
        if self.preformatted {
            return push_decoded(&mut self.text, raw);
        }
        let mut plain = String::new();
        push_decoded(&mut plain, raw);
        let ends_line = self.text.is_empty() || self.text.ends_with(['\n', ' ']);
        if plain.starts_with(char::is_whitespace) && !ends_line {
            self.text.push(' ');
        }
        let mut words = plain.split_whitespace().peekable();
        let any = words.peek().is_some();
        while let Some(word) = words.next() {
            self.text += word;
            if words.peek().is_some() {
                self.text.push(' ');
            }
        }
        if any && plain.ends_with(char::is_whitespace) {
            self.text.push(' ');
        }
    }

    /// What begins with `<`: a comment, a tag, or a lonely sign. Returns what comes after.
    fn tag<'a>(&mut self, rest: &'a str, sink: &mut SectionSink<impl Write>) -> Result<&'a str, ParseFault> {
        if let Some(comment) = rest.strip_prefix("<!--") {
            return Ok(comment.find("-->").map_or("", |at| &comment[at + 3..]));
        }
        let inner = rest[1..].trim_start_matches('/');
        if !inner.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '!' | '?')) {
            self.text.push('<');
            return Ok(&rest[1..]);
        }
        let end = end_of_tag(rest);
        let name: String = inner.chars().take_while(char::is_ascii_alphanumeric).collect();
        let (name, closes) = (name.to_ascii_lowercase(), rest[1..].starts_with('/'));
        if !closes && (UNREAD.contains(&name.as_str()) || self.passed.contains(&name.as_str())) {
            return Ok(after_element(&rest[end..], &name));
        }
        self.element(&name, closes, sink)?;
        Ok(&rest[end..])
    }

    fn element(&mut self, name: &str, closes: bool, sink: &mut SectionSink<impl Write>) -> Result<(), ParseFault> {
        match name {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                let level = name.as_bytes()[1] - b'0';
                match self.heading.take() {
                    Some((level, begin)) if closes => {
                        let title = self.text[begin..].to_owned();
                        self.path.enter(level, &title);
                        self.text += "\n\n";
                    }
                    _ if !closes => {
                        self.end_section(sink)?;
                        self.heading = Some((level, 0));
                    }
                    _ => {}
                }
            }
            "td" | "th" if closes => self.text += " | ",
            "pre" => {
                self.preformatted = !closes;
                self.new_line();
            }
            "p" | "table" | "ul" | "ol" | "section" | "article" => {
                self.new_line();
                if closes && !self.text.is_empty() {
                    self.text.push('\n');
                }
            }
            block if BLOCKS.contains(&block) => self.new_line(),
            _ => {}
        }
        Ok(())
    }

    fn new_line(&mut self) {
        let kept = self.text.trim_end_matches(' ').len();
        self.text.truncate(kept);
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }

    fn end_section(&mut self, sink: &mut SectionSink<impl Write>) -> Result<(), ParseFault> {
        sink.section(None, &self.path.titles(), &self.text)?;
        self.text.clear();
        self.heading = None;
        Ok(())
    }
}

/// Where a tag ends; a `>` in quotes is none of its end.
fn end_of_tag(rest: &str) -> usize {
    let mut quote = None;
    for (at, c) in rest.char_indices() {
        match (quote, c) {
            (None, '>') => return at + 1,
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
    }
    rest.len()
}

/// What comes after the end of an element whose text is passed over.
fn after_element<'a>(rest: &'a str, name: &str) -> &'a str {
    let mut at = 0;
    while let Some(found) = rest[at..].find("</") {
        let begin = at + found + 2;
        if rest.as_bytes()[begin..].get(..name.len()).is_some_and(|got| got.eq_ignore_ascii_case(name.as_bytes())) {
            return &rest[begin + end_of_tag(&rest[begin..])..];
        }
        at = begin;
    }
    ""
}

/// A text whose characters may stand there by name or by number.
fn push_decoded(out: &mut String, raw: &str) {
    let mut rest = raw;
    while let Some(at) = rest.find('&') {
        *out += &rest[..at];
        rest = &rest[at..];
        let end = rest.bytes().take(NAME_BYTES).position(|byte| byte == b';');
        match end.and_then(|end| Some((end, character(&rest[1..end])?))) {
            Some((end, decoded)) => {
                *out += &decoded;
                rest = &rest[end + 1..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    *out += rest;
}

/// The character of a name or a number.
fn character(name: &str) -> Option<String> {
    let Some(number) = name.strip_prefix('#') else {
        return NAMED.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
    };
    let code = match number.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => number.parse().ok()?,
    };
    char::from_u32(code).filter(|c| *c != '\0').map(String::from)
}

#[cfg(test)]
mod tests {
    use super::super::lines::tests::sections;
    use super::*;

    #[test]
    fn a_page_is_its_text_parted_at_headings() {
        let page = "<!DOCTYPE html><head><title>x</title><style>p > a {}</style></head><body>before\
            <h1>One &amp; <b>all</b></h1>\
            <p class='a>b'>Gr&uuml;&#223;e  an\n Kelm</p><script>if (a < b) { '</p>' }</script><h2>Two</h2>\
            <ul><li>a<li>b</ul>\
            <pre>x\n  y</pre><table><tr><td>1</td><td>2</td></tr></table>3 < 4 &unknown; <!-- no -->";
        assert_eq!(
            sections(|sink| read(page, &[], sink)).unwrap(),
            [
                "||before",
                "|One & all|One & all\n\nGrüße an Kelm",
                "|One & all > Two|Two\n\na\nb\n\nx\n  y\n1 | 2 |\n\n3 < 4 &unknown;"
            ]
        );
    }

    #[test]
    fn what_stands_around_the_text_of_a_page_is_passed_over_where_that_is_asked() {
        let page =
            "<nav>Home | <ul><li>News</ul></nav><h1>Kelm</h1><p>A port.</p><aside>Buy!</aside><footer>(c)</footer>";
        assert_eq!(sections(|sink| read(page, &AROUND, sink)).unwrap(), ["|Kelm|Kelm\n\nA port."]);
    }

    #[test]
    fn what_never_ends_is_read_to_its_end() {
        for page in ["<", "<p", "<p a=\"", "<!--", "<script>", "&#xffffffff;", "a<script", "</", "<h1>t", "</h1>"] {
            assert!(sections(|sink| read(page, &[], sink)).is_ok(), "{page}");
        }
    }
}

//! What passes from the child to its parent: a line of JSON for each section, and one more that says how it ended.

use crate::limits::{
    DOCUMENT_HEADING_CHARS_MAX, DOCUMENT_HEADINGS_MAX, DOCUMENT_SECTIONS_MAX, DOCUMENT_TEXT_BYTES_MAX,
};
use serde::{Deserialize, Serialize};
use std::io::Write;

/// Bytes of a section, so that nobody needs the memory of a whole file.
const SECTION_BYTES: usize = 1 << 20;

/// A line of the child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ParsedLine {
    /// A piece of the text under one path of headings, on one page.
    Section {
        /// From 1, where the format has pages.
        page: Option<u32>,
        /// The outermost comes first.
        headings: Vec<String>,
        /// It is never empty.
        text: String,
    },
    /// All sections have come.
    End,
    /// The file is of a kind that cannot be read.
    Unsupported(String),
    /// The file is damaged.
    Invalid(String),
}

/// Why a file has no text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ParseFault {
    /// The file is of a kind that cannot be read.
    Unsupported(String),
    /// The file is damaged, or larger than is read.
    Invalid(String),
}

impl ParseFault {
    /// The file is damaged.
    pub(super) fn invalid(why: impl std::fmt::Display) -> Self {
        Self::Invalid(why.to_string())
    }
}

impl From<ParseFault> for ParsedLine {
    fn from(fault: ParseFault) -> Self {
        match fault {
            ParseFault::Unsupported(why) => Self::Unsupported(why),
            ParseFault::Invalid(why) => Self::Invalid(why),
        }
    }
}

/// Takes sections as they are read, and writes each down at once.
pub(crate) struct SectionSink<W> {
    out: W,
    sections: usize,
    bytes: usize,
}

impl<W: Write> SectionSink<W> {
    /// Writes sections to a stream.
    pub(crate) fn new(out: W) -> Self {
        Self { out, sections: 0, bytes: 0 }
    }

    /// A section; one without a word is none, and a very long one becomes several.
    pub(crate) fn section(&mut self, page: Option<u32>, headings: &[String], text: &str) -> Result<(), ParseFault> {
        let mut rest = text;
        while rest.len() > SECTION_BYTES {
            let (head, tail) = rest.split_at(end_within(rest, SECTION_BYTES));
            self.one_section(page, headings, head)?;
            rest = tail;
        }
        self.one_section(page, headings, rest)
    }

    fn one_section(&mut self, page: Option<u32>, headings: &[String], text: &str) -> Result<(), ParseFault> {
        let text = text.trim_matches(['\n', '\r']).trim_end();
        if text.trim().is_empty() {
            return Ok(());
        }
        self.sections += 1;
        self.bytes += text.len();
        if self.sections > DOCUMENT_SECTIONS_MAX {
            return Err(ParseFault::Invalid(format!("it has more than {DOCUMENT_SECTIONS_MAX} sections")));
        }
        if self.bytes > DOCUMENT_TEXT_BYTES_MAX {
            return Err(ParseFault::Invalid(format!("its text has more than {DOCUMENT_TEXT_BYTES_MAX} bytes")));
        }
        let cut = |heading: &String| heading.chars().take(DOCUMENT_HEADING_CHARS_MAX).collect();
        let headings = headings.iter().take(DOCUMENT_HEADINGS_MAX).map(cut).collect();
        self.line(&ParsedLine::Section { page, headings, text: text.to_owned() })
    }

    /// Whether any section had a word.
    pub(crate) fn is_empty(&self) -> bool {
        self.sections == 0
    }

    /// Writes a line. That nobody reads it is an error as every other.
    pub(crate) fn line(&mut self, line: &ParsedLine) -> Result<(), ParseFault> {
        let mut text = serde_json::to_vec(line).map_err(ParseFault::invalid)?;
        text.push(b'\n');
        self.out.write_all(&text).and_then(|()| self.out.flush()).map_err(ParseFault::invalid)
    }
}

/// Where a piece of at most this many bytes ends: at the end of a line if there is one, else of a character.
fn end_within(text: &str, bytes_max: usize) -> usize {
    let end = text.floor_char_boundary(bytes_max);
    text[..end].rfind('\n').map_or(end, |at| at + 1)
}

/// The headings that a reader stands under: a heading of a level ends those of its level and below.
#[derive(Debug, Default)]
pub(super) struct HeadingPath {
    levels: Vec<(u8, String)>,
}

impl HeadingPath {
    /// Goes under a heading of this level; 1 is the outermost.
    pub(super) fn enter(&mut self, level: u8, title: &str) {
        self.levels.retain(|(above, _)| *above < level);
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        if !title.is_empty() {
            self.levels.push((level, title));
        }
    }

    /// Their titles, outermost first.
    pub(super) fn titles(&self) -> Vec<String> {
        self.levels.iter().map(|(_, title)| title.clone()).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The sections that a reader finds, as `page|headings|text`.
    pub(in crate::documents) fn sections(
        read: impl FnOnce(&mut SectionSink<&mut Vec<u8>>) -> Result<(), ParseFault>,
    ) -> Result<Vec<String>, ParseFault> {
        let mut out = Vec::new();
        read(&mut SectionSink::new(&mut out))?;
        let lines = out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let shown = |line: &[u8]| match serde_json::from_slice(line).unwrap() {
            ParsedLine::Section { page, headings, text } => {
                format!("{}|{}|{text}", page.map_or_else(String::new, |page| page.to_string()), headings.join(" > "))
            }
            other => format!("{other:?}"),
        };
        Ok(lines.map(shown).collect())
    }

    #[test]
    fn a_heading_ends_those_of_its_level_and_below() {
        let mut path = HeadingPath::default();
        for (level, title, wanted) in
            [(1, "A", "A"), (3, "B", "A B"), (2, " C  c ", "A C c"), (2, "D", "A D"), (2, "", "A"), (1, "E", "E")]
        {
            path.enter(level, title);
            assert_eq!(path.titles().join(" "), wanted);
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_refused_with_the_bound_and_a_section_without_a_word_is_none() {
        assert_eq!(sections(|sink| sink.section(None, &[], " \n ")), Ok(vec![]));
        let lines = "a line\n".repeat(SECTION_BYTES / 3);
        let parts = sections(|sink| sink.section(None, &[], &lines)).unwrap();
        assert!(
            parts.len() == 3 && parts.iter().all(|part| part.starts_with("||a line\n") && part.ends_with("a line"))
        );
        let long = "a".repeat(DOCUMENT_TEXT_BYTES_MAX / 2 + 1);
        let refused = sections(|sink| sink.section(None, &[], &long).and_then(|()| sink.section(None, &[], &long)));
        assert!(matches!(refused, Err(ParseFault::Invalid(why)) if why.contains("more than")));
    }
}

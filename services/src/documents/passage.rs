//! A piece of a document: the text that a search found and where it stands in its file, and the text around it.

use crate::limits::DOCUMENT_HEADING_CHARS_MAX;
use std::sync::Arc;

/// A piece of a document that a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Passage {
    /// The file that it comes from.
    pub file_id: String,
    /// The name under which the file was uploaded; only ever a label.
    pub filename: String,
    /// Page of the file, from 1, where its format has pages.
    pub page: Option<u32>,
    /// Titles of the sections that it stands in, outermost first.
    pub headings: Vec<String>,
    /// Where it begins in the file's parsed text, in bytes: `text` is exactly `parsed[start..end]`.
    pub start: usize,
    /// Where it ends there.
    pub end: usize,
    /// Its words as they stand in the parsed text.
    pub text: Arc<str>,
    /// How well it answers the query: 1 is the best of words, and a blend of words and vectors is at most 1.
    pub score: f32,
    /// What each leg of the search says of it.
    pub legs: LegScores,
}

/// What words and vectors each say of a passage; its score is made of both.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LegScores {
    /// BM25 as a share of the best passage's.
    pub words: f32,
    /// The cosine between the vectors of the passage and of the query; none where vectors do not count, or the passage
    /// has none yet.
    pub vectors: Option<f32>,
}

impl LegScores {
    /// The better of each leg, where a passage is found by several queries.
    pub(super) fn best(self, other: Self) -> Self {
        let vectors = [self.vectors, other.vectors].into_iter().flatten().reduce(f32::max);
        Self { words: self.words.max(other.words), vectors }
    }
}

/// Where a passage goes on behind its own title, which its text may begin with: who shows titles above texts shows it
/// once. 0 where the text does not begin so, or is nothing else.
pub fn after_own_title(headings: &[String], text: &str) -> usize {
    let (Some(own), Some(line)) = (headings.last(), text.split_inclusive('\n').next()) else { return 0 };
    let said = line.trim().trim_matches('#').split_whitespace().collect::<Vec<_>>().join(" ");
    // A long title was cut.
    let is_title = said == *own || own.chars().count() >= DOCUMENT_HEADING_CHARS_MAX && said.starts_with(own.as_str());
    let rest = text[line.len()..].trim_start_matches(['\r', '\n']);
    if is_title && !rest.trim().is_empty() { text.len() - rest.len() } else { 0 }
}

/// The text of a passage as an encoder reads it: the titles above it say what it is about.
pub(super) fn text_for_vector(headings: &[String], text: &str) -> String {
    let own = &text[after_own_title(headings, text)..];
    headings.iter().map(String::as_str).chain([own]).collect::<Vec<_>>().join("\n")
}

/// Part of a file's parsed text.
#[derive(Clone, Debug, PartialEq)]
pub struct Excerpt {
    /// The file that it comes from.
    pub file_id: String,
    /// The name under which the file was uploaded; only ever a label.
    pub filename: String,
    /// Page on which the passage begins, from 1, where the format has pages.
    pub page: Option<u32>,
    /// Titles of the sections in which the passage begins, outermost first.
    pub headings: Vec<String>,
    /// Where the excerpt begins in the parsed text, in bytes.
    pub start: usize,
    /// Where it ends there.
    pub end: usize,
    /// Its words as they stand in the parsed text.
    pub text: String,
    /// Bytes of the whole parsed text.
    pub text_bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passage_goes_on_behind_its_own_title_and_behind_no_other_line() {
        let headings = ["Ports".to_owned(), "Tides of Kelm".to_owned()];
        let after = |text| &text[after_own_title(&headings, text)..];
        assert_eq!(after("## Tides  of Kelm ##\n\n  High water."), "  High water.");
        assert_eq!(after("Tides of Kelm\r\n\r\nHigh water."), "High water.");
        for text in
            ["# Ports\n\nHigh water.", "## Tides of Kelm\n \n", "High water.", "", "Tides of Kelm are high.\nAnd"]
        {
            assert_eq!(after(text), text);
        }
        assert_eq!(after_own_title(&[], "## Tides\n\nHigh"), 0);
        assert_eq!(text_for_vector(&headings, "## Tides of Kelm\n\nHigh."), "Ports\nTides of Kelm\nHigh.");
        let long = ["a".repeat(DOCUMENT_HEADING_CHARS_MAX)];
        let text = format!("# {}\nb", "a".repeat(DOCUMENT_HEADING_CHARS_MAX + 9));
        assert_eq!(&text[after_own_title(&long, &text)..], "b");
    }
}

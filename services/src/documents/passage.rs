//! A piece of a document that a search found: its text, and where it stands in its file.

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
}

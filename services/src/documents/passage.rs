//! A piece of a document: the text that a search found and where it stands in its file, and the text around it.

use super::error::DocumentError;
use super::library::Library;
use chimere_engine::ids::KeyId;
use std::io;
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

impl Library {
    /// Reads what [`super::Documents::excerpt`] says.
    pub(super) fn excerpt(
        &self,
        owner: KeyId,
        file: &str,
        (start, end): (usize, usize),
        around: usize,
    ) -> Result<Excerpt, DocumentError> {
        let file = self.file(owner, file)?;
        if !self.texts.has(&file.sha256) {
            return Err(DocumentError::NoText { file: file.id.clone(), state: "not read" });
        }
        let broke = |e: io::Error| self.broke(&self.texts.text_path(&file.sha256), e);
        let outline = self.texts.outline(&file.sha256).map_err(broke)?;
        let text_bytes = outline.last().map_or(0, |section| section.end);
        if start >= text_bytes {
            return Err(DocumentError::BeyondText { file: file.id.clone(), start, bytes: text_bytes });
        }
        let section = outline.into_iter().find(|section| start < section.end);
        let (page, headings) = section.map_or_else(Default::default, |section| (section.page, section.headings));
        let (from, to) = (start.saturating_sub(around), end.saturating_add(around).min(text_bytes));
        let text = self.texts.open(&file.sha256).and_then(|text| text.read_within(from, to));
        let (start, text) = text.map_err(broke)?;
        Ok(Excerpt {
            file_id: file.id.clone(),
            filename: file.filename.clone(),
            page,
            headings,
            start,
            end: start + text.len(),
            text,
            text_bytes,
        })
    }
}

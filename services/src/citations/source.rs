//! The numbered texts that an answer may cite.

use super::sentence_index::SentenceIndex;
use std::ops::Range;
use std::sync::Arc;

/// A text that an answer may cite. Its number in the prompt is its place among all sources, from 1.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberedSource {
    /// The text as it stands in the prompt. Every citation is a part of it.
    pub text: Arc<str>,
    /// Title under which the prompt shows it.
    pub title: Option<String>,
    /// Where the text comes from.
    pub place: SourcePlace,
}

/// Where a source comes from, as a reply tells it.
#[derive(Clone, Debug, PartialEq)]
pub enum SourcePlace {
    /// A part of a file that a search found.
    File {
        /// Id of the file.
        file_id: String,
        /// Name under which the file was uploaded.
        filename: String,
        /// Page of the file, from 1, where its format has pages.
        page: Option<u32>,
        /// Byte of the file's parsed text at which the source begins.
        start: usize,
        /// How well the part fits the query.
        score: f32,
    },
    /// A page of the web.
    Web {
        /// Address of the page.
        url: String,
        /// Its title, or else its address.
        title: String,
    },
    /// A document of the request.
    Document {
        /// Place among all documents of the request, from 0.
        index: usize,
        /// Bytes at which its blocks begin, if it came as blocks.
        blocks: Option<Vec<usize>>,
    },
    /// A search result of the request.
    SearchResult {
        /// Place among all search results of the request, from 0.
        index: usize,
        /// Where the client found it.
        source: String,
        /// Bytes at which its blocks begin.
        blocks: Vec<usize>,
    },
}

/// All sources of a request, prepared for looking up what they say.
#[derive(Debug, Default)]
pub struct NumberedSources {
    all: Vec<NumberedSource>,
    index: SentenceIndex,
}

impl NumberedSources {
    /// Prepares texts. Takes time in proportion to their length.
    pub fn new(all: Vec<NumberedSource>) -> Self {
        let index = SentenceIndex::new(all.iter().map(|source| &*source.text));
        Self { all, index }
    }

    /// The sources in the order of their numbers.
    pub fn all(&self) -> &[NumberedSource] {
        &self.all
    }

    /// The part of a source, by its place, that says what a sentence claims; none where the source does not say it.
    pub(super) fn support(&self, source: usize, claim: &str) -> Option<Range<usize>> {
        self.index.support(source, claim)
    }
}

impl PartialEq for NumberedSources {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

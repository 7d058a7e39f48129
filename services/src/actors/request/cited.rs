//! Answers that cite numbered sources: their text is read once more for its marks.

use super::output::Delta;
use super::reader::Reader;
use crate::citations::{CitationReader, NumberedSources};
use crate::metrics;
use crate::text::parser::Span;
use std::sync::Arc;

/// Reads an answer for another reader, and its citations.
pub struct Cited {
    inner: Box<dyn Reader>,
    citations: CitationReader,
}

impl Cited {
    /// At the start of an answer from these sources.
    pub fn new(inner: Box<dyn Reader>, sources: Arc<NumberedSources>) -> Self {
        Self { inner, citations: CitationReader::new(sources) }
    }
}

impl Reader for Cited {
    fn push(&mut self, text: &str, delta: &mut Delta) {
        let before = delta.content.len();
        self.inner.push(text, delta);
        delta.citations.extend(self.citations.push(&delta.content[before..]));
    }

    fn finish(&mut self, cut: bool, delta: &mut Delta) {
        let before = delta.content.len();
        self.inner.finish(cut, delta);
        delta.citations.extend(self.citations.push(&delta.content[before..]));
        delta.citations.extend(self.citations.finish());
        let counts = self.citations.counts();
        for (verified, count) in [("true", counts.verified), ("false", counts.dropped)] {
            ::metrics::counter!(metrics::CITATIONS, "verified" => verified).increment(u64::from(count));
        }
    }

    fn spans(&mut self) -> Option<Vec<Span>> {
        self.inner.spans()
    }

    fn is_reasoning(&self) -> bool {
        self.inner.is_reasoning()
    }

    fn called_tools(&self) -> bool {
        self.inner.called_tools()
    }
}

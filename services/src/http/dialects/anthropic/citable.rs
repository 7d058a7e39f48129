//! Documents and search results of a request that its answer may cite, numbered as they come.

use crate::citations::{CITE, NumberedSource, SourcePlace, numbered};
use crate::http::body::turns::BETWEEN;
use crate::http::wire::error::ApiError;
use crate::limits::CITED_SOURCES_MAX;

/// The citable texts so far.
#[derive(Debug, Default)]
pub(super) struct Citable {
    sources: Vec<NumberedSource>,
    /// Documents so far, citable or not.
    documents: usize,
    /// Search results so far, citable or not.
    searches: usize,
}

impl Citable {
    /// A document's text for the prompt. `blocks` are the bytes at which its blocks begin, if it came as blocks.
    pub(super) fn document(
        &mut self,
        cites: bool,
        [title, context]: [Option<String>; 2],
        text: String,
        blocks: Option<Vec<usize>>,
    ) -> String {
        self.documents += 1;
        let place = SourcePlace::Document { index: self.documents - 1, blocks };
        self.shown(cites, title, context, text, place)
    }

    /// A search result's text for the prompt, under its title and the place where it was found.
    pub(super) fn search_result(
        &mut self,
        cites: bool,
        [title, source]: [Option<String>; 2],
        texts: &[String],
    ) -> String {
        self.searches += 1;
        let (found_at, blocks) = (source.clone().unwrap_or_default(), begins(texts));
        let place = SourcePlace::SearchResult { index: self.searches - 1, source: found_at, blocks };
        self.shown(cites, title, source, texts.join(BETWEEN), place)
    }

    fn shown(
        &mut self,
        cites: bool,
        title: Option<String>,
        below: Option<String>,
        text: String,
        place: SourcePlace,
    ) -> String {
        let headings = [title.clone(), below].into_iter().flatten().filter(|heading| !heading.is_empty());
        let whole = headings.chain([text.clone()]).collect::<Vec<_>>().join("\n");
        if !cites {
            return whole;
        }
        self.sources.push(NumberedSource { text: text.into(), title, place });
        let shown = numbered(self.sources.len(), &whole);
        if self.sources.len() == 1 { format!("{CITE}{BETWEEN}{shown}") } else { shown }
    }

    /// All sources in the order of their numbers.
    pub(super) fn sources(self) -> Result<Vec<NumberedSource>, ApiError> {
        let got = self.sources.len();
        if got > CITED_SOURCES_MAX {
            let message = format!("`messages` has {got} documents to cite, at most {CITED_SOURCES_MAX} are taken");
            return Err(ApiError::invalid("messages", message));
        }
        Ok(self.sources)
    }
}

/// The bytes at which texts begin that are joined to one.
pub(super) fn begins(texts: &[String]) -> Vec<usize> {
    let ends = texts.iter().scan(0, |end, text| {
        let begin = *end;
        *end += text.len() + BETWEEN.len();
        Some(begin)
    });
    ends.collect()
}

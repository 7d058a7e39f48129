//! Pages that belong to no store: they are read by the child that reads files, cut as files are, and ranked by words.

use super::super::cut::{Cut, passages};
use super::super::members::Chunking;
use super::super::outline::TextSection;
use super::super::parse::{ChildBounds, ChildFault, DocumentFormat, ParsedLine, read_with_child};
use super::super::tables::PassageSpan;
use super::{FileSegment, PassageHit, PassageQuery, StoreIndex};
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// How pages are read, and what passages are measured in.
#[derive(Clone)]
pub struct PageReader {
    /// The program whose command `parse` reads pages.
    pub program: PathBuf,
    /// Bytes of memory that reading one page may take.
    pub memory_bytes: u64,
    /// Seconds that it may take.
    pub seconds: u64,
    /// Tokens of a passage.
    pub chunk_tokens: u32,
    /// Tokens of a text.
    pub count: Arc<dyn Fn(&str) -> usize + Send + Sync>,
}

/// The text of a page.
#[derive(Clone, Debug, Default)]
pub struct ReadPage {
    /// Address of the page.
    pub url: String,
    /// Its title; the first heading where nobody knows another.
    pub title: String,
    text: String,
    outline: Vec<TextSection>,
}

/// A passage of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct PagePassage {
    /// The page's place among those that were ranked.
    pub page: usize,
    /// Words of the passage.
    pub text: String,
}

impl ReadPage {
    /// A page of which this text is known.
    pub fn of_text(url: &str, title: &str, text: &str) -> Self {
        let mut page = Self { url: url.to_owned(), title: title.to_owned(), ..Self::default() };
        page.push(Vec::new(), text);
        page
    }

    /// The page under a title that somebody else knows.
    pub fn titled(self, title: &str) -> Self {
        Self { title: title.to_owned(), ..self }
    }

    fn push(&mut self, headings: Vec<String>, text: &str) {
        if self.title.is_empty() {
            self.title = headings.first().cloned().unwrap_or_default();
        }
        let start = self.text.len();
        self.text.push_str(text);
        self.outline.push(TextSection { start, end: self.text.len(), page: None, headings });
    }
}

impl PageReader {
    /// Reads a page with a child, or says in words why that cannot be. It waits.
    pub fn read(&self, url: &str, format: DocumentFormat, bytes: &[u8]) -> Result<ReadPage, String> {
        let bounds = ChildBounds { program: &self.program, memory_bytes: self.memory_bytes, seconds: self.seconds };
        let (mut page, mut fault) = (ReadPage { url: url.to_owned(), ..ReadPage::default() }, None);
        let hear = |line| {
            match line {
                ParsedLine::Section { headings, text, .. } => page.push(headings, &text),
                ParsedLine::End => return Ok(true),
                ParsedLine::Unsupported(why) | ParsedLine::Invalid(why) => fault = Some(why),
            }
            Ok(fault.is_some())
        };
        let read = std::thread::scope(|scope| {
            let (from, mut to) = io::pipe()?;
            // A child that ends early leaves the rest unread, which its end tells.
            scope.spawn(move || to.write_all(bytes).ok());
            Ok(read_with_child(bounds, (File::from(OwnedFd::from(from)), format), || true, hear))
        });
        match read.map_err(|e: io::Error| e.to_string())? {
            _ if fault.is_some() => Err(format!("the page cannot be read: {}", fault.unwrap_or_default())),
            Ok(()) => Ok(page),
            Err(ChildFault::TooSlow | ChildFault::Unwanted) => Err("the page takes too long to read".into()),
            Err(ChildFault::Died(why)) => Err(format!("the page cannot be read: {why}")),
            Err(ChildFault::Io(error)) => Err(format!("the page cannot be read: {error}")),
        }
    }

    /// The passages of a page, each with the number of its section; cut when they are asked for.
    fn cut(&self, page: &ReadPage) -> impl Iterator<Item = (usize, Range<usize>)> {
        let cut = Cut { tokens: self.chunk_tokens, overlap: Chunking::usual_overlap(self.chunk_tokens) };
        page.outline.iter().enumerate().flat_map(move |(i, section)| {
            let ranges = passages(&page.text[section.start..section.end], cut, &*self.count).into_iter();
            ranges.map(move |range| (i, section.start + range.start..section.start + range.end))
        })
    }

    /// The passages of pages that fit a query best, at most so many; the first ones where the query has no word.
    pub fn passages(&self, pages: &[ReadPage], query: &str, most: usize) -> Vec<PagePassage> {
        if query.trim().is_empty() {
            let all = pages.iter().enumerate().flat_map(|(at, page)| {
                let text = move |(_, range): (usize, Range<usize>)| page.text[range].to_owned();
                self.cut(page).map(move |place| PagePassage { page: at, text: text(place) })
            });
            return all.take(most).collect();
        }
        let mut index = StoreIndex::of_width(None);
        for (at, page) in pages.iter().enumerate() {
            let mut segment = FileSegment::of(&at.to_string(), page.outline.clone().into());
            for (section, range) in self.cut(page) {
                let span = PassageSpan { start: range.start as u32, end: range.end as u32 };
                segment.push(&page.title, section, span, &page.text[range]);
            }
            index.append(segment);
        }
        let found = index.find(&PassageQuery { text: query, vector: None }, 0.0, most, |_| true);
        let passage = |hit: PassageHit| {
            let page: usize = hit.file_id.parse().ok()?;
            Some(PagePassage { page, text: pages.get(page)?.text[hit.start..hit.end].to_owned() })
        };
        found.into_iter().filter_map(passage).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_passages_of_all_pages_are_ranked_together() {
        let count = Arc::new(|text: &str| text.split_whitespace().count());
        let (program, memory_bytes, seconds) = (PathBuf::new(), 0, 1);
        let reader = PageReader { program, memory_bytes, seconds, chunk_tokens: 8, count };
        let mut page = ReadPage::of_text("http://a.test/", "", "Much is said of the land and its people here.");
        page.push(vec!["Ports".into()], "The port of Kelm was built in 1871.");
        assert_eq!(page.title, "Ports");
        let pages = [ReadPage::of_text("http://b.test/", "b", "A song of spring."), page];
        let texts = |query: &str, most| {
            let found = reader.passages(&pages, query, most).into_iter();
            found.map(|passage| (passage.page, passage.text)).collect::<Vec<_>>()
        };
        assert_eq!(texts("port Kelm", 1), [(1, "The port of Kelm was built in 1871.".to_owned())]);
        assert_eq!(texts(" ", 1), [(0, "A song of spring.".to_owned())]);
        assert_eq!(texts("zeppelin", 3), []);
    }
}

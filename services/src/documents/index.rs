//! The passages of a store in memory, to find the best for a query: BM25 over all of them at once, never a share for
//! each file. The name of the file and the headings above a passage are searched with it. Texts stay on the disk.

use super::outline::TextSection;
use super::tables::PassageSpan;
use crate::semantic::{Nearest, WordIndex, best};
use std::sync::Arc;

/// A file's passages, not in any store yet.
#[derive(Debug)]
pub struct FileSegment {
    file_id: String,
    words: WordIndex,
    spans: Vec<PassageSpan>,
    /// For each passage the section that it stands in.
    sections: Vec<u32>,
    outline: Arc<[TextSection]>,
}

impl FileSegment {
    /// Empty, of a file with these sections.
    pub(super) fn of(file_id: &str, outline: Arc<[TextSection]>) -> Self {
        let (words, spans, sections) = (WordIndex::default(), Vec::new(), Vec::new());
        Self { file_id: file_id.to_owned(), words, spans, sections, outline }
    }

    /// A segment of passages of one section, for measurements.
    pub fn of_texts(file_id: &str, filename: &str, texts: &[String]) -> Self {
        let end = texts.iter().map(String::len).sum();
        let section = TextSection { start: 0, end, page: None, headings: Vec::new() };
        let (mut segment, mut start) = (Self::of(file_id, [section].into()), 0);
        for text in texts {
            let end = start + text.len() as u32;
            segment.push(filename, 0, PassageSpan { start, end }, text);
            start = end;
        }
        segment
    }

    /// Takes a passage with its text.
    pub(super) fn push(&mut self, filename: &str, section: usize, span: PassageSpan, text: &str) {
        // The parts of a name are words of their own: `annual_report.pdf`.
        let mut searched = filename.replace(|c: char| !c.is_alphanumeric(), " ");
        for heading in &self.outline[section].headings {
            searched = searched + "\n" + heading;
        }
        self.words.push(&(searched + "\n" + text));
        self.spans.push(span);
        self.sections.push(section as u32);
    }

    /// Bytes that it takes, about.
    pub(super) fn bytes(&self) -> u64 {
        self.words.bytes() + file_bytes(&self.spans, &self.outline)
    }

    /// Passages, in their order.
    pub(super) fn spans(&self) -> &[PassageSpan] {
        &self.spans
    }
}

/// A file in the index.
#[derive(Debug)]
struct IndexedFile {
    file_id: String,
    /// Place of its first passage among those of the store.
    first: usize,
    spans: Vec<PassageSpan>,
    sections: Vec<u32>,
    outline: Arc<[TextSection]>,
}

/// A passage that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct PassageHit {
    /// The file that it comes from.
    pub file_id: String,
    /// Where it begins in the file's text.
    pub start: usize,
    /// Where it ends there.
    pub end: usize,
    /// Its page, where there are pages.
    pub page: Option<u32>,
    /// Titles above it, outermost first.
    pub headings: Vec<String>,
    /// Its BM25 for the query.
    pub score: f32,
}

/// See the file's head.
#[derive(Debug, Default)]
pub struct StoreIndex {
    words: WordIndex,
    files: Vec<IndexedFile>,
}

impl StoreIndex {
    /// Passages of all files.
    pub fn len(&self) -> usize {
        self.files.last().map_or(0, |file| file.first + file.spans.len())
    }

    /// True when there is no passage.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of words and places, about.
    pub fn bytes(&self) -> u64 {
        self.words.bytes() + self.files.iter().map(|file| file_bytes(&file.spans, &file.outline)).sum::<u64>()
    }

    /// Adds a file's passages behind all others. A file that is there stays as it is.
    pub fn append(&mut self, segment: FileSegment) {
        if self.files.iter().any(|file| file.file_id == segment.file_id) {
            return;
        }
        let first = self.len();
        let FileSegment { file_id, words, spans, sections, outline } = segment;
        self.words.append(words);
        self.files.push(IndexedFile { file_id, first, spans, sections, outline });
    }

    /// Removes a file's passages, if they are there.
    pub fn remove(&mut self, file_id: &str) {
        let Some(at) = self.files.iter().position(|file| file.file_id == file_id) else { return };
        let gone = self.files.remove(at);
        let count = gone.spans.len();
        self.words.remove(gone.first..gone.first + count);
        self.files[at..].iter_mut().for_each(|file| file.first -= count);
    }

    /// The `k` best passages of files that are `wanted`, best first; ties in the order in which they came. Those
    /// without a word of the query are not found.
    pub fn find(&self, query: &str, k: usize, wanted: impl Fn(&str) -> bool) -> Vec<PassageHit> {
        let scores = self.words.scores(query).of_items;
        let files = self.files.iter().filter(|file| wanted(&file.file_id));
        let places = files.flat_map(|file| file.first..file.first + file.spans.len());
        let found = places.filter(|at| scores[*at] > 0.0).map(|at| Nearest { score: scores[at], at });
        best(k, found).into_iter().map(|found| self.hit(found)).collect()
    }

    fn hit(&self, found: Nearest) -> PassageHit {
        let file = &self.files[self.files.partition_point(|file| file.first <= found.at) - 1];
        let span = file.spans[found.at - file.first];
        let section = &file.outline[file.sections[found.at - file.first] as usize];
        PassageHit {
            file_id: file.file_id.clone(),
            start: span.start as usize,
            end: span.end as usize,
            page: section.page,
            headings: section.headings.clone(),
            score: found.score,
        }
    }
}

/// Bytes of a file beside its words.
fn file_bytes(spans: &[PassageSpan], outline: &[TextSection]) -> u64 {
    let headings = outline.iter().flat_map(|section| &section.headings).map(String::len).sum::<usize>();
    (spans.len() * (size_of::<PassageSpan>() + 4) + size_of_val(outline) + headings) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(id: &str, name: &str, passages: &[(&[&str], &str)]) -> FileSegment {
        let headings = |list: &[&str]| list.iter().map(|heading| (*heading).to_owned()).collect();
        let sections = passages.iter().map(|(list, text)| TextSection {
            start: 0,
            end: text.len(),
            page: Some(1),
            headings: headings(list),
        });
        let mut segment = FileSegment::of(id, sections.collect());
        for (i, (_, text)) in passages.iter().enumerate() {
            segment.push(name, i, PassageSpan { start: i as u32, end: i as u32 + text.len() as u32 }, text);
        }
        segment
    }

    fn found(index: &StoreIndex, query: &str) -> Vec<String> {
        index.find(query, 9, |_| true).into_iter().map(|hit| format!("{} {}", hit.file_id, hit.start)).collect()
    }

    #[test]
    fn a_passage_is_found_by_its_words_its_headings_and_the_name_of_its_file() {
        let mut index = StoreIndex::default();
        index.append(segment("a", "harbour_plan.pdf", &[(&["Tides"], "high water at noon"), (&["Fees"], "two coins")]));
        index.append(segment("b", "songs.md", &[(&[], "a song of Dosh"), (&[], "a song of Kelm")]));
        assert_eq!(found(&index, "tides"), ["a 0"]);
        assert_eq!(found(&index, "coins in the harbour"), ["a 1", "a 0"]);
        assert_eq!(found(&index, "Song of Kelm"), ["b 1", "b 0"]);
        assert_eq!(index.find("song", 1, |file| file == "b").len(), 1);
        assert_eq!(index.find("song", 9, |file| file == "a"), []);
        index.append(segment("b", "songs.md", &[(&[], "other")]));
        assert_eq!((index.len(), found(&index, "other").len()), (4, 0), "a file is there once");
        index.remove("a");
        assert_eq!((found(&index, "song Kelm"), found(&index, "tides").len()), (vec!["b 1".into(), "b 0".into()], 0));
        index.remove("b");
        assert_eq!((index.len(), index.bytes()), (0, 0));
    }
}

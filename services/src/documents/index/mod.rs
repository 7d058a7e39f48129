//! The passages of a store in memory, to find the best for a query: over all of them at once, never a share for each
//! file. The name of the file and the headings above a passage are searched with it. Texts stay on the disk.

mod pages;
mod ranking;
mod rows;

pub use pages::{PagePassage, PageReader, ReadPage};
pub use ranking::{PassageHit, PassageQuery};
pub(super) use ranking::{SearchedStore, ranked};
pub(super) use rows::VectorRows;
pub use rows::coded;

use super::outline::TextSection;
use super::passage::LegScores;
use super::tables::PassageSpan;
use crate::semantic::{Hits, Nearest, WordIndex, found_with, share};
use std::ops::Range;
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
        self.words.push(&searched_words(filename, &self.outline[section].headings, text));
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

/// Words by which a passage is found.
pub(super) fn searched_words(filename: &str, headings: &[String], text: &str) -> String {
    // The parts of a name are words of their own: `annual_report.pdf`.
    let name = filename.replace(|c: char| !c.is_alphanumeric(), " ");
    let parts = [name.as_str()].into_iter().chain(headings.iter().map(String::as_str)).chain([text]);
    parts.collect::<Vec<_>>().join("\n")
}

/// Where a passage stands: its place among those of its file, its bytes, and the titles above it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PassagePlace {
    pub(super) file_id: String,
    pub(super) at: usize,
    pub(super) span: PassageSpan,
    pub(super) headings: Vec<String>,
}

/// A sentence that was taken out of a passage and is searched for.
#[derive(Clone, Copy, Debug)]
pub(super) struct PassageProbe<'a> {
    /// The passage that is to be found.
    pub(super) passage: &'a PassagePlace,
    /// The sentence and its vector.
    pub(super) sentence: (&'a str, &'a [f32]),
    /// The words of the passage without the sentence, and the vector of the rest.
    pub(super) rest: (&'a str, &'a [f32]),
}

/// See the file's head.
#[derive(Debug, Default)]
pub struct StoreIndex {
    words: WordIndex,
    files: Vec<IndexedFile>,
    /// Vectors of the passages, where an encoder makes some.
    vectors: Option<VectorRows>,
}

impl StoreIndex {
    /// Empty, for vectors of this many numbers; for words alone where there are none.
    pub fn of_width(width: Option<usize>) -> Self {
        Self { vectors: width.map(VectorRows::of_width), ..Self::default() }
    }

    /// Passages of all files.
    pub fn len(&self) -> usize {
        self.files.last().map_or(0, |file| file.first + file.spans.len())
    }

    /// True when there is no passage.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of words, vectors and places, about. A passage has the room of its vector from the beginning.
    pub fn bytes(&self) -> u64 {
        let files = self.files.iter().map(|file| file_bytes(&file.spans, &file.outline)).sum::<u64>();
        self.words.bytes() + files + self.vectors.as_ref().map_or(0, VectorRows::bytes)
    }

    /// Passages whose vectors are there.
    pub fn with_vectors(&self) -> usize {
        self.vectors.as_ref().map_or(0, VectorRows::present)
    }

    /// Adds a file's passages behind all others. A file that is there stays as it is.
    pub fn append(&mut self, segment: FileSegment) {
        if self.files.iter().any(|file| file.file_id == segment.file_id) {
            return;
        }
        let first = self.len();
        let FileSegment { file_id, words, spans, sections, outline } = segment;
        self.words.append(words);
        self.vectors.iter_mut().for_each(|rows| rows.push_missing(spans.len()));
        self.files.push(IndexedFile { file_id, first, spans, sections, outline });
    }

    /// Removes a file's passages, if they are there.
    pub fn remove(&mut self, file_id: &str) {
        let Some(at) = self.files.iter().position(|file| file.file_id == file_id) else { return };
        let gone = self.files.remove(at);
        let count = gone.spans.len();
        self.words.remove(gone.first..gone.first + count);
        self.vectors.iter_mut().for_each(|rows| rows.remove(gone.first..gone.first + count));
        self.files[at..].iter_mut().for_each(|file| file.first -= count);
    }

    /// The `k` best passages of files that are `wanted`, best first; ties in the order in which they came. Vectors have
    /// this weight.
    pub fn find(
        &self,
        query: &PassageQuery<'_>,
        weight: f32,
        k: usize,
        wanted: impl Fn(&str) -> bool,
    ) -> Vec<PassageHit> {
        ranked(&[SearchedStore { index: self, weight, wanted: &wanted }], query, k)
    }

    fn hit(&self, found: Nearest, legs: LegScores) -> PassageHit {
        let (file, at) = self.file_of(found.at);
        let section = &file.outline[file.sections[at] as usize];
        PassageHit {
            file_id: file.file_id.clone(),
            start: file.spans[at].start as usize,
            end: file.spans[at].end as usize,
            page: section.page,
            headings: section.headings.clone(),
            score: found.score,
            legs,
        }
    }

    /// The file of a passage, and the passage's place in it.
    fn file_of(&self, at: usize) -> (&IndexedFile, usize) {
        let file = &self.files[self.files.partition_point(|file| file.first <= at) - 1];
        (file, at - file.first)
    }

    fn file(&self, file_id: &str) -> Option<&IndexedFile> {
        self.files.iter().find(|file| file.file_id == file_id)
    }

    /// The passage at this place among those of the store.
    pub(super) fn place(&self, at: usize) -> PassagePlace {
        let (file, at) = self.file_of(at);
        file.place(at)
    }

    /// Some passages of a file in their order; none where they are not there.
    pub(super) fn places_of(&self, file_id: &str, part: Range<usize>) -> Option<Vec<PassagePlace>> {
        let file = self.file(file_id).filter(|file| part.end <= file.spans.len())?;
        Some(part.map(|at| file.place(at)).collect())
    }

    /// The first file that waits for its vectors and is `wanted`.
    pub(super) fn without_vectors(&self, wanted: impl Fn(&str) -> bool) -> Option<&str> {
        let rows = self.vectors.as_ref().filter(|rows| rows.present() < self.len())?;
        let waits = |file: &&IndexedFile| !file.spans.is_empty() && !rows.has(file.first) && wanted(&file.file_id);
        self.files.iter().find(waits).map(|file| file.file_id.as_str())
    }

    /// Gives the passages of a file their vectors, as they are kept: all of them, or the file stays as it is.
    pub fn set_vectors(&mut self, file_id: &str, codes: &[u8]) {
        let file = self.files.iter().find(|file| file.file_id == file_id);
        if let Some((file, rows)) = file.zip(self.vectors.as_mut())
            && codes.len() == rows.row_len() * file.spans.len()
        {
            rows.set(file.first, codes);
        }
    }

    /// With which weights of the vectors a sentence finds the passage that it was taken out of. None where the passage
    /// is not there any more as it was.
    pub(super) fn probe(&self, probe: &PassageProbe<'_>) -> Option<Hits> {
        let (rows, file) = (self.vectors.as_ref()?, self.file(&probe.passage.file_id)?);
        let gold = file.first + probe.passage.at;
        file.spans.get(probe.passage.at).filter(|span| **span == probe.passage.span)?;
        let mut words = self.words.scores(probe.sentence.0).of_items;
        words[gold] = self.words.score_of(probe.sentence.0, probe.rest.0);
        let top = words.iter().copied().fold(0.0, f32::max);
        let cosines = rows.cosines(probe.sentence.1).into_iter().map(|cosine| cosine.unwrap_or(0.0));
        let mut legs: Vec<(f32, f32)> = words.iter().map(|words| share(*words, top)).zip(cosines).collect();
        legs[gold].1 = rows.cosine_of(probe.sentence.1, probe.rest.1);
        Some(found_with(&legs, gold))
    }
}

impl IndexedFile {
    fn place(&self, at: usize) -> PassagePlace {
        let headings = self.outline[self.sections[at] as usize].headings.clone();
        PassagePlace { file_id: self.file_id.clone(), at, span: self.spans[at], headings }
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

    fn find(index: &StoreIndex, text: &str, k: usize, wanted: impl Fn(&str) -> bool) -> Vec<PassageHit> {
        index.find(&PassageQuery { text, vector: None }, 0.0, k, wanted)
    }

    fn found(index: &StoreIndex, query: &str) -> Vec<String> {
        find(index, query, 9, |_| true).into_iter().map(|hit| format!("{} {}", hit.file_id, hit.start)).collect()
    }

    #[test]
    fn a_passage_is_found_by_its_words_its_headings_and_the_name_of_its_file() {
        let mut index = StoreIndex::default();
        index.append(segment("a", "harbour_plan.pdf", &[(&["Tides"], "high water at noon"), (&["Fees"], "two coins")]));
        index.append(segment("b", "songs.md", &[(&[], "a song of Dosh"), (&[], "a song of Kelm")]));
        assert_eq!(found(&index, "tides"), ["a 0"]);
        assert_eq!(found(&index, "coins in the harbour"), ["a 1", "a 0"]);
        assert_eq!(found(&index, "Song of Kelm"), ["b 1", "b 0"]);
        assert_eq!(find(&index, "song", 1, |file| file == "b").len(), 1);
        assert_eq!(find(&index, "song", 9, |file| file == "a"), []);
        index.append(segment("b", "songs.md", &[(&[], "other")]));
        assert_eq!((index.len(), found(&index, "other").len()), (4, 0), "a file is there once");
        index.remove("a");
        assert_eq!((found(&index, "song Kelm"), found(&index, "tides").len()), (vec!["b 1".into(), "b 0".into()], 0));
        index.remove("b");
        assert_eq!((index.len(), index.bytes()), (0, 0));
    }
}

//! Reads an answer as it comes and tells its citations as soon as they are certain.

use super::marks::{CitationMark, ending_at, without};
use super::source::{NumberedSource, NumberedSources};
use crate::text::sentences::sentences;
use std::ops::Range;
use std::sync::Arc;

/// How far back the sentence of a mark is looked for, in bytes.
const SENTENCE_BYTES_MAX: usize = 1000;

/// A place in an answer that a source supports.
#[derive(Clone, Debug, PartialEq)]
pub struct Citation {
    /// Characters of the answer that the mark takes.
    pub mark: Range<usize>,
    /// All sources of the request.
    pub sources: Arc<NumberedSources>,
    /// Place of the source among them, from 0; the mark says the number from 1.
    pub source: usize,
    /// Bytes of the source's text that say it.
    pub span: Range<usize>,
}

impl Citation {
    /// The source that is cited.
    pub fn source(&self) -> &NumberedSource {
        &self.sources.all()[self.source]
    }

    /// The words of the source that say it.
    pub fn quote(&self) -> &str {
        &self.source().text[self.span.clone()]
    }
}

/// Reads the text of one choice.
#[derive(Debug)]
pub struct CitationReader {
    sources: Arc<NumberedSources>,
    text: String,
    /// Characters of the text.
    characters: usize,
    /// Marks whose sentence goes on and does not say enough before them, with their characters.
    waiting: Vec<(CitationMark, Range<usize>)>,
    /// Marks that were read, and those of them that no source supports.
    counts: MarkCounts,
}

/// Marks of an answer, by whether their sources support them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkCounts {
    /// Numbers in marks that became citations.
    pub verified: u32,
    /// Numbers in marks that did not.
    pub dropped: u32,
}

impl CitationReader {
    /// At the start of an answer from these sources.
    pub fn new(sources: Arc<NumberedSources>) -> Self {
        Self { sources, text: String::new(), characters: 0, waiting: Vec::new(), counts: MarkCounts::default() }
    }

    /// How many marks were read so far.
    pub fn counts(&self) -> MarkCounts {
        self.counts
    }

    /// Takes more of the answer and tells the citations that are certain now.
    pub fn push(&mut self, more: &str) -> Vec<Citation> {
        let mut citations = Vec::new();
        for c in more.chars() {
            let before = self.text.len();
            self.text.push(c);
            self.characters += 1;
            match c {
                ']' => self.mark(before, &mut citations),
                c if c.is_whitespace() && !self.waiting.is_empty() && self.sentence_ended() => {
                    self.settle(&mut citations);
                }
                _ => {}
            }
        }
        citations
    }

    /// The answer is over: tells what was still uncertain.
    pub fn finish(&mut self) -> Vec<Citation> {
        let mut citations = Vec::new();
        self.settle(&mut citations);
        citations
    }

    /// Reads the mark that the bracket at a place ends. It belongs to the words before it, or to the whole sentence if
    /// these alone do not say enough.
    fn mark(&mut self, close: usize, citations: &mut Vec<Citation>) {
        let Some(mark) = ending_at(&self.text, close) else { return };
        let length = self.text[mark.range.clone()].chars().count();
        let at = self.characters - length..self.characters;
        let claim = without(&self.text[self.claim_before(mark.range.start)]);
        let (supported, waits) = self.supported(&mark, &at, &claim);
        self.counts.verified += supported.len() as u32;
        citations.extend(supported);
        if !waits.is_empty() {
            self.waiting.push((CitationMark { numbers: waits, ..mark }, at));
        }
    }

    /// Gives up on marks whose sentence has ended, unless the whole sentence is supported.
    fn settle(&mut self, citations: &mut Vec<Citation>) {
        for (mark, at) in std::mem::take(&mut self.waiting) {
            let begin = self.claim_before(mark.range.start).start;
            let claim = without(&self.text[begin..]);
            let (supported, dropped) = self.supported(&mark, &at, &claim);
            self.counts.verified += supported.len() as u32;
            self.counts.dropped += dropped.len() as u32;
            citations.extend(supported);
        }
    }

    /// The citations of a mark, and its numbers that are none.
    fn supported(&self, mark: &CitationMark, at: &Range<usize>, claim: &str) -> (Vec<Citation>, Vec<usize>) {
        let (mut citations, mut rest) = (Vec::new(), Vec::new());
        for &number in &mark.numbers {
            let source = number.checked_sub(1);
            match source.and_then(|source| Some((source, self.sources.support(source, claim)?))) {
                Some((source, span)) => {
                    let sources = self.sources.clone();
                    citations.push(Citation { mark: at.clone(), sources, source, span });
                }
                None => rest.push(number),
            }
        }
        (citations, rest)
    }

    /// The words of the sentence before a mark; those of the sentence that has just ended, if the mark stands behind
    /// its full stop.
    fn claim_before(&self, mark: usize) -> Range<usize> {
        let mut from = mark.saturating_sub(SENTENCE_BYTES_MAX);
        while !self.text.is_char_boundary(from) {
            from += 1;
        }
        let window = &self.text[from..mark];
        let worded = |range: &Range<usize>| without(&window[range.clone()]).chars().any(char::is_alphanumeric);
        let last = sentences(window).into_iter().rfind(worded);
        last.map_or(mark..mark, |range| from + range.start..from + range.end)
    }

    /// A full stop stands before the last character, which is a blank.
    fn sentence_ended(&self) -> bool {
        let before = self.text.trim_end();
        before.ends_with(['.', '!', '?']) || self.text.ends_with("\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::citations::SourcePlace;
    use proptest::prelude::*;

    fn sources(texts: &[&str]) -> Arc<NumberedSources> {
        let place = SourcePlace::Document { index: 0, blocks: None };
        let source = |text: &&str| NumberedSource { text: (*text).into(), title: None, place: place.clone() };
        Arc::new(NumberedSources::new(texts.iter().map(source).collect()))
    }

    fn harbours() -> Arc<NumberedSources> {
        sources(&["The port of Kelm lies in the north. It was built in 1871.", "Dosh is known for its red ships."])
    }

    /// Quotes with the marks' text, by whichever pieces the answer comes in.
    fn check(answer: &str, want: &[(&str, &str)]) {
        for pieces in [1, 3, answer.len()] {
            let mut reader = CitationReader::new(harbours());
            let characters: Vec<char> = answer.chars().collect();
            let pieces = characters.chunks(pieces).map(|piece| piece.iter().collect::<String>());
            let mut citations: Vec<Citation> = pieces.flat_map(|piece| reader.push(&piece)).collect();
            citations.extend(reader.finish());
            let mark = |at: &Range<usize>| characters[at.clone()].iter().collect::<String>();
            let got: Vec<_> = citations.iter().map(|c| (mark(&c.mark), c.quote().to_owned())).collect();
            let want: Vec<_> = want.iter().map(|(mark, quote)| ((*mark).to_owned(), (*quote).to_owned())).collect();
            assert_eq!(got, want, "{answer}");
            assert_eq!(reader.counts().verified as usize, want.len());
        }
    }

    #[test]
    fn a_mark_belongs_to_the_sentence_that_it_stands_in_or_behind() {
        let (built, ships) = ("It was built in 1871.", "Dosh is known for its red ships.");
        check("It was built in 1871 [1].", &[("[1]", built)]);
        check("It was built in 1871. [1] Dosh is known for ships. [2]", &[("[1]", built), ("[2]", ships)]);
        check("According to [1], it was built in 1871. And so on.", &[("[1]", built)]);
        check("As [2] says, Dosh is known for red ships", &[("[2]", ships)]);
        check("It was built in 1871 [1][1].", &[("[1]", built), ("[1]", built)]);
        check("„Gebaut“: it was built in 1871 [1, 2].", &[("[1, 2]", built)]);
    }

    #[test]
    fn a_mark_without_support_gets_no_citation_and_is_counted() {
        check("It was built in 1900 [1]. It floats on the moon [2]. As in [7], it was built in 1871.", &[]);
        let mut reader = CitationReader::new(harbours());
        assert!(reader.push("It was built in 1900 [1]. What [x] is that? a[0] = 3; [0]").is_empty());
        assert!(reader.finish().is_empty());
        assert_eq!(reader.counts(), MarkCounts { verified: 0, dropped: 3 });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn every_citation_is_a_part_of_its_source_whatever_is_written(
            texts in prop::collection::vec("[a-cé0-2 .\n]{0,40}", 1..4),
            answer in "[a-cé0-3 .\\[\\],\n]{0,80}",
            cut in 1usize..9
        ) {
            let all = sources(&texts.iter().map(String::as_str).collect::<Vec<_>>());
            let mut reader = CitationReader::new(all.clone());
            let characters: Vec<char> = answer.chars().collect();
            let pieces = characters.chunks(cut).map(|piece| piece.iter().collect::<String>());
            let mut citations: Vec<Citation> = pieces.flat_map(|piece| reader.push(&piece)).collect();
            citations.extend(reader.finish());
            for citation in &citations {
                let (source, quote) = (&all.all()[citation.source], citation.quote());
                prop_assert!(source.text.contains(quote) && !quote.is_empty());
                let mark: String = characters[citation.mark.clone()].iter().collect();
                prop_assert!(mark.starts_with('[') && mark.ends_with(']'));
                prop_assert!(mark.contains(&(citation.source + 1).to_string()));
            }
        }
    }
}

//! Finds passages in stores, and hands out the text around one and the whole text of a store.

use super::error::DocumentError;
use super::filter::AttributeFilter;
use super::index::{PassageHit, PassageQuery, SearchedStore, ranked};
use super::library::{Library, VectorStore};
use super::members::{MemberInfo, MemberState};
use super::passage::{Excerpt, Passage};
use crate::limits::STORE_WHOLE_BYTES_MAX;
use crate::metrics;
use crate::semantic;
use chimere_engine::ids::KeyId;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Passages of each query that are fused, for each one that is wanted.
const FUSED_OF_WANTED: usize = 4;

/// All text of a store.
#[derive(Clone, Debug, PartialEq)]
pub struct WholeStore {
    /// Bytes of all its texts.
    pub bytes: u64,
    /// The texts in the order in which the files came; none where they are larger than
    /// [`STORE_WHOLE_BYTES_MAX`] together.
    pub texts: Option<Vec<WholeText>>,
}

/// The text of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct WholeText {
    /// The file of the text.
    pub file_id: String,
    /// The name under which it was uploaded; only ever a label.
    pub filename: String,
    /// Its parsed text, of which passages are slices.
    pub text: Arc<str>,
}

/// A search in some stores that an account may read.
#[derive(Clone, Debug)]
pub struct StoreSearch<'a> {
    /// Ids of the stores, which are searched as one.
    pub stores: Vec<&'a str>,
    /// What is looked for, at least one text.
    pub queries: Vec<&'a str>,
    /// A vector of length 1 for each query; none at all where words alone count.
    pub vectors: &'a [Vec<f32>],
    /// How much vectors count, in the place of what each store has found by its self-test.
    pub weight: Option<f32>,
    /// The most passages to find.
    pub k: usize,
    /// Only files whose attributes fulfil it.
    pub filter: Option<&'a AttributeFilter>,
}

impl StoreSearch<'_> {
    fn queries(&self) -> impl Iterator<Item = PassageQuery<'_>> {
        let query = |(i, text)| PassageQuery { text, vector: self.vectors.get(i).map(Vec::as_slice) };
        self.queries.iter().copied().enumerate().map(query)
    }
}

impl Library {
    /// Searches as [`super::Documents::search`] says.
    pub(super) fn search(
        &self,
        reader: KeyId,
        asked: &StoreSearch<'_>,
        now: u64,
    ) -> Result<Vec<Passage>, DocumentError> {
        let begin = Instant::now();
        let mut stores = asked.stores.iter().map(|id| self.readable(reader, id)).collect::<Result<Vec<_>, _>>()?;
        // One that is named twice is one.
        stores.sort_by(|a, b| a.id.cmp(&b.id));
        stores.dedup_by(|a, b| a.id == b.id);
        stores.iter().for_each(|store| store.active.store(now, Ordering::Relaxed));
        let mut queries = asked.queries();
        let found = match (queries.next(), asked.queries.len()) {
            (Some(query), 1) => self.find(&stores, &query, asked.k, asked),
            (first, _) => {
                let all = first.into_iter().chain(queries);
                let lists = all.map(|query| self.find(&stores, &query, asked.k * FUSED_OF_WANTED, asked));
                fused(lists.collect(), asked.k)
            }
        };
        let passages = self.with_texts(&stores, found);
        ::metrics::histogram!(metrics::STORE_SEARCH_SECONDS).record(begin.elapsed().as_secs_f64());
        Ok(passages)
    }

    /// The best passages of all stores for one query.
    fn find(
        &self,
        stores: &[Arc<VectorStore>],
        query: &PassageQuery<'_>,
        k: usize,
        asked: &StoreSearch<'_>,
    ) -> Vec<PassageHit> {
        stores.iter().for_each(|store| self.load(store));
        let wanted: Vec<_> = stores.iter().map(|store| wanted_files(store, asked.filter)).collect();
        let wanted: Vec<_> = wanted
            .iter()
            .map(|wanted| move |file: &str| wanted.as_ref().is_none_or(|wanted| wanted.contains(file)))
            .collect();
        let indices: Vec<_> = stores.iter().map(|store| store.index.read()).collect();
        let searched = stores.iter().zip(&indices).zip(&wanted).filter_map(|((store, index), wanted)| {
            let weight = asked.weight.unwrap_or_else(|| store.vector_weight());
            Some(SearchedStore { index: index.as_ref()?, weight, wanted })
        });
        ranked(&searched.collect::<Vec<_>>(), query, k)
    }

    /// The largest weight that vectors have in some stores that an account may read.
    pub(super) fn vector_weight(&self, reader: KeyId, stores: &[String]) -> Result<f32, DocumentError> {
        let mut weights = stores.iter().map(|id| Ok(self.readable(reader, id)?.vector_weight()));
        weights.try_fold(0.0, |most: f32, weight: Result<f32, DocumentError>| Ok(most.max(weight?)))
    }

    /// With the texts; what was removed meanwhile is left out.
    fn with_texts(&self, stores: &[Arc<VectorStore>], found: Vec<PassageHit>) -> Vec<Passage> {
        let mut opened = HashMap::new();
        let mut passage = |hit: PassageHit| {
            let (file, text) = opened
                .entry(hit.file_id.clone())
                .or_insert_with(|| {
                    // No two files have one id, whosever they are.
                    let file = stores.iter().find_map(|store| self.file(store.owner, &hit.file_id).ok())?;
                    let text = self.texts.open(&file.sha256).ok()?;
                    Some((file, text))
                })
                .as_ref()?;
            Some(Passage {
                filename: file.filename.clone(),
                text: text.read(hit.start, hit.end).ok()?.into(),
                file_id: hit.file_id,
                page: hit.page,
                headings: hit.headings,
                start: hit.start,
                end: hit.end,
                score: hit.score,
                legs: hit.legs,
            })
        };
        found.into_iter().filter_map(&mut passage).collect()
    }

    /// Hands out what [`super::Documents::whole`] says.
    pub(super) fn whole(&self, reader: KeyId, store: &str) -> Result<WholeStore, DocumentError> {
        let owner = self.readable(reader, store)?.owner;
        let mut members = self.members(owner, store)?;
        members.retain(|member| member.state == MemberState::Completed);
        let bytes = members.iter().map(|member| member.bytes).sum();
        if bytes > STORE_WHOLE_BYTES_MAX {
            return Ok(WholeStore { bytes, texts: None });
        }
        let text = |member: &MemberInfo| {
            let file = self.file(owner, &member.file_id)?;
            let text = self.texts.open(&file.sha256).and_then(|text| text.read(0, member.bytes as usize));
            let text = text.map_err(|e| self.broke(&self.texts.text_path(&file.sha256), e))?;
            Ok(WholeText { file_id: member.file_id.clone(), filename: file.filename.clone(), text: text.into() })
        };
        let texts: Result<_, DocumentError> = members.iter().map(text).collect();
        Ok(WholeStore { bytes, texts: Some(texts?) })
    }

    /// Reads what [`super::Documents::excerpt`] says.
    pub(super) fn excerpt(
        &self,
        reader: KeyId,
        file: &str,
        (start, end): (usize, usize),
        around: usize,
    ) -> Result<Excerpt, DocumentError> {
        let file = self.readable_file(reader, file)?;
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

    /// Sections of a file's text from the one that holds the byte `from` on, until they have `bytes`; and where the
    /// next ones begin.
    pub(super) fn text_from(
        &self,
        reader: KeyId,
        (store, file): (&str, &str),
        (from, bytes): (usize, usize),
    ) -> Result<(Vec<String>, Option<usize>), DocumentError> {
        let owner = self.readable(reader, store)?.owner;
        let member = self.member(owner, store, file)?;
        if member.state != MemberState::Completed {
            return Err(DocumentError::NoText { file: file.to_owned(), state: member.state.name() });
        }
        let sha256 = &self.file(owner, file)?.sha256;
        let broke = |e| self.broke(&self.texts.text_path(sha256), e);
        let (outline, text) = (self.texts.outline(sha256).map_err(broke)?, self.texts.open(sha256).map_err(broke)?);
        let (mut sections, mut have) = (Vec::new(), 0);
        for section in outline.iter().filter(|section| section.end > from) {
            if have >= bytes {
                return Ok((sections, Some(section.start)));
            }
            have += section.end - section.start;
            sections.push(text.read(section.start, section.end).map_err(broke)?);
        }
        Ok((sections, None))
    }
}

/// The files of a store that a filter lets through; none where there is no filter.
fn wanted_files(store: &VectorStore, filter: Option<&AttributeFilter>) -> Option<HashSet<String>> {
    let filter = filter?;
    let state = store.state.read();
    let members = state.members.values().filter(|member| filter.holds(&member.attributes));
    Some(members.map(|member| member.file_id.clone()).collect())
}

/// Several lists as one: a passage counts by its places in all of them. A score of 1 is the first place in each.
fn fused(lists: Vec<Vec<PassageHit>>, k: usize) -> Vec<PassageHit> {
    let place = |hit: &PassageHit| (hit.file_id.clone(), hit.start, hit.end);
    let all = semantic::fused(lists, place, |kept, other| kept.legs = kept.legs.best(other.legs));
    all.into_iter().take(k).map(|(score, hit)| PassageHit { score, ..hit }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::passage::LegScores;
    use super::*;

    fn list(starts: &[usize]) -> Vec<PassageHit> {
        let hit = |start: &usize| PassageHit {
            file_id: "a".into(),
            start: *start,
            end: 9,
            page: None,
            headings: vec![],
            score: 1.0,
            legs: LegScores::default(),
        };
        starts.iter().map(hit).collect()
    }

    #[test]
    fn what_several_queries_find_comes_before_what_one_finds_first() {
        let found = fused(vec![list(&[1, 2, 3]), list(&[4, 2, 5])], 4);
        let order: Vec<usize> = found.iter().map(|hit| hit.start).collect();
        assert_eq!(order, [2, 1, 4, 3]);
        let same = fused(vec![list(&[7]), list(&[7])], 4);
        assert!((same[0].score - 1.0).abs() < 1e-6 && same.len() == 1, "{same:?}");
    }
}

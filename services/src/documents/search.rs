//! Finds passages in stores, and hands out the whole text of one.

use super::error::DocumentError;
use super::filter::AttributeFilter;
use super::index::PassageHit;
use super::library::{Library, VectorStore};
use super::members::{MemberInfo, MemberState};
use super::passage::Passage;
use crate::limits::STORE_WHOLE_BYTES_MAX;
use crate::metrics;
use chimere_engine::ids::KeyId;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Reciprocal rank fusion: how little the first places differ (Cormack, Clarke and Büttcher, 2009).
const FUSION: f32 = 60.0;
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

impl Library {
    /// Searches as [`super::Documents::search`] says.
    pub(super) fn search(
        &self,
        owner: KeyId,
        stores: &[&str],
        (queries, k): (&[&str], usize),
        filter: Option<&AttributeFilter>,
        now: u64,
    ) -> Result<Vec<Passage>, DocumentError> {
        let begin = Instant::now();
        let stores: Vec<_> = stores.iter().map(|id| self.store(owner, id)).collect::<Result<_, _>>()?;
        stores.iter().for_each(|store| store.active.store(now, Ordering::Relaxed));
        let found = match queries {
            [query] => self.find(&stores, query, k, filter),
            several => {
                let lists = several.iter().map(|query| self.find(&stores, query, k * FUSED_OF_WANTED, filter));
                fused(lists.collect(), k)
            }
        };
        let passages = self.with_texts(owner, found);
        ::metrics::histogram!(metrics::STORE_SEARCH_SECONDS).record(begin.elapsed().as_secs_f64());
        Ok(passages)
    }

    /// The best passages of all stores, whose scores are shares of the best one's.
    fn find(
        &self,
        stores: &[Arc<VectorStore>],
        query: &str,
        k: usize,
        filter: Option<&AttributeFilter>,
    ) -> Vec<PassageHit> {
        let mut found: Vec<PassageHit> =
            stores.iter().flat_map(|store| self.find_in(store, query, k, filter)).collect();
        // One list over all stores; a file may be in several of them.
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        let mut seen = HashSet::new();
        found.retain(|hit| seen.insert((hit.file_id.clone(), hit.start, hit.end)));
        found.truncate(k);
        let top = found.first().map_or(1.0, |hit| hit.score);
        found.iter_mut().for_each(|hit| hit.score /= top);
        found
    }

    fn find_in(&self, store: &VectorStore, query: &str, k: usize, filter: Option<&AttributeFilter>) -> Vec<PassageHit> {
        self.load(store);
        let wanted: Option<HashSet<String>> = filter.map(|filter| {
            let state = store.state.read();
            let members = state.members.values().filter(|member| filter.holds(&member.attributes));
            members.map(|member| member.file_id.clone()).collect()
        });
        let index = store.index.read();
        let index = index.as_ref();
        index.map_or_else(Vec::new, |index| {
            index.find(query, k, |file| wanted.as_ref().is_none_or(|wanted| wanted.contains(file)))
        })
    }

    /// With the texts; what was removed meanwhile is left out.
    fn with_texts(&self, owner: KeyId, found: Vec<PassageHit>) -> Vec<Passage> {
        let mut opened = HashMap::new();
        let mut passage = |hit: PassageHit| {
            let (file, text) = opened
                .entry(hit.file_id.clone())
                .or_insert_with(|| {
                    let file = self.file(owner, &hit.file_id).ok()?;
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
            })
        };
        found.into_iter().filter_map(&mut passage).collect()
    }

    /// Hands out what [`super::Documents::whole`] says.
    pub(super) fn whole(&self, owner: KeyId, store: &str) -> Result<WholeStore, DocumentError> {
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

    /// Sections of a file's text from the one that holds the byte `from` on, until they have `bytes`; and where the
    /// next ones begin.
    pub(super) fn text_from(
        &self,
        owner: KeyId,
        (store, file): (&str, &str),
        (from, bytes): (usize, usize),
    ) -> Result<(Vec<String>, Option<usize>), DocumentError> {
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

/// Several lists as one: a passage counts by its places in all of them. A score of 1 is the first place in each.
fn fused(lists: Vec<Vec<PassageHit>>, k: usize) -> Vec<PassageHit> {
    let best = lists.len() as f32 / (FUSION + 1.0);
    let (mut fused, mut places) = (Vec::<PassageHit>::new(), HashMap::<_, usize>::new());
    for list in lists {
        for (rank, hit) in list.into_iter().enumerate() {
            let share = 1.0 / (FUSION + 1.0 + rank as f32) / best;
            match places.get(&(hit.file_id.clone(), hit.start, hit.end)).copied() {
                Some(at) => fused[at].score += share,
                None => {
                    places.insert((hit.file_id.clone(), hit.start, hit.end), fused.len());
                    fused.push(PassageHit { score: share, ..hit });
                }
            }
        }
    }
    fused.sort_by(|a, b| b.score.total_cmp(&a.score));
    fused.truncate(k);
    fused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(starts: &[usize]) -> Vec<PassageHit> {
        let hit = |start: &usize| PassageHit {
            file_id: "a".into(),
            start: *start,
            end: 9,
            page: None,
            headings: vec![],
            score: 1.0,
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

//! How far a store believes its vectors: the self-test of collections, with passages for items.

use crate::documents::error::DocumentError;
use crate::documents::index::{PassagePlace, PassageProbe, searched_words};
use crate::documents::library::{Library, StoreState, VectorStore};
use crate::documents::members::MemberState;
use crate::documents::passage::text_for_vector;
use crate::documents::tables;
use crate::semantic::{Hits, SENTENCES_MAX, SelfTest, is_due, order, taken_out};
use chimere_engine::ids::KeyId;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Passages that are read for the sentences of a test, at most.
const PROBED_MAX: usize = 20 * SENTENCES_MAX;

/// A store that is to test itself as it stands.
#[derive(Clone)]
pub struct DueStoreTest {
    store: Arc<VectorStore>,
    /// The largest number of its files: what comes later has a larger one.
    mark: u64,
    passages: usize,
}

impl PartialEq for DueStoreTest {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.store, &other.store) && (self.mark, self.passages) == (other.mark, other.passages)
    }
}

impl DueStoreTest {
    /// Id of the store.
    pub fn store(&self) -> &str {
        &self.store.id
    }

    /// Passages that each sentence is searched among.
    pub fn passages(&self) -> usize {
        self.passages
    }
}

/// The right to test a store, until it is dropped.
pub struct TestTurn(Arc<Library>);

impl Drop for TestTurn {
    fn drop(&mut self) {
        self.0.testing.store(false, Ordering::Release);
    }
}

/// A sentence that was taken out of a passage, to be searched for.
#[derive(Clone, Debug)]
pub struct StoreProbe {
    passage: PassagePlace,
    /// The sentence that was taken out.
    pub sentence: String,
    /// The passage without it, as an encoder reads it.
    pub rest: String,
    /// The words by which the passage without it is found.
    rest_words: String,
}

impl StoreState {
    fn mark(&self) -> u64 {
        self.members.values().map(|member| member.number).max().unwrap_or(0)
    }

    /// Passages of the files that came up to a mark, and of those that came later.
    fn passages_by(&self, mark: u64) -> (usize, usize) {
        let completed = self.members.values().filter(|member| member.state == MemberState::Completed);
        completed.fold((0, 0), |(before, after), member| match member.number <= mark {
            true => (before + member.chunks, after),
            false => (before, after + member.chunks),
        })
    }

    /// Whether more than a tenth of the passages has come or gone since the last test.
    pub(super) fn is_test_due(&self) -> bool {
        let (kept, new) = self.passages_by(self.test.as_ref().map_or(0, |test| test.changes));
        let gone = self.test.as_ref().map_or(0, |test| test.items.saturating_sub(kept));
        let mark = self.test.as_ref().map_or(0, |test| test.changes);
        is_due(kept + new, mark + (new + gone) as u64, self.test.as_ref())
    }
}

impl Library {
    /// A store whose self-test is due and whose vectors are all there.
    pub(in crate::documents) fn due_test(&self) -> Option<DueStoreTest> {
        self.settings.vectors.as_ref()?;
        let stores = self.stores.read();
        stores.values().find_map(|store| {
            let is_due = store.state.read().is_test_due();
            if is_due { self.ready(store).ok() } else { None }
        })
    }

    /// The test of a store as it stands.
    fn ready(&self, store: &Arc<VectorStore>) -> Result<DueStoreTest, DocumentError> {
        let maker = self.settings.vectors.as_ref().ok_or(DocumentError::NoEmbedder)?;
        let (info, files) = (store.vectors_info(maker), store.files_to_read());
        if info.waiting > 0 || files > 0 {
            return Err(DocumentError::VectorsWaiting { store: store.id.clone(), waiting: info.waiting, files });
        }
        let mark = store.state.read().mark();
        Ok(DueStoreTest { store: store.clone(), mark, passages: info.passages })
    }

    /// The test of one of an account's stores, whether it is due or not.
    pub(in crate::documents) fn test_of(&self, owner: KeyId, id: &str) -> Result<DueStoreTest, DocumentError> {
        self.ready(&self.store(owner, id)?)
    }

    /// The right to test a store.
    pub(in crate::documents) fn test_turn(self: &Arc<Self>) -> Result<TestTurn, DocumentError> {
        match self.testing.swap(true, Ordering::Acquire) {
            true => Err(DocumentError::TestRuns),
            false => Ok(TestTurn(self.clone())),
        }
    }

    /// The sentences to search for in a test. Reads as many passages as it needs for them, but not without end: those
    /// of tables have none.
    pub(in crate::documents) fn test_probes(&self, due: &DueStoreTest) -> Vec<StoreProbe> {
        let order = order(due.passages, due.mark).into_iter();
        order.take(PROBED_MAX).filter_map(|at| self.test_probe(due, at)).take(SENTENCES_MAX).collect()
    }

    fn test_probe(&self, due: &DueStoreTest, at: usize) -> Option<StoreProbe> {
        let passage = {
            let index = due.store.index.read();
            index.as_ref().filter(|index| at < index.len())?.place(at)
        };
        let file = self.file(due.store.owner, &passage.file_id).ok()?;
        let text = self.texts.open(&file.sha256).ok()?;
        let own = text.read(passage.span.start as usize, passage.span.end as usize).ok()?;
        let (sentence, rest) = taken_out(&own, due.mark.wrapping_add(at as u64))?;
        let rest_words = searched_words(&file.filename, &passage.headings, &rest);
        Some(StoreProbe { sentence, rest: text_for_vector(&passage.headings, &rest), rest_words, passage })
    }

    /// With which weights of the vectors a sentence finds its passage; none where that has changed meanwhile.
    pub(in crate::documents) fn test_search(
        &self,
        due: &DueStoreTest,
        probe: &StoreProbe,
        (sentence, rest): (&[f32], &[f32]),
    ) -> Option<Hits> {
        let (sentence, rest) = ((probe.sentence.as_str(), sentence), (probe.rest_words.as_str(), rest));
        due.store.index.read().as_ref()?.probe(&PassageProbe { passage: &probe.passage, sentence, rest })
    }

    /// Keeps the result of a test; with an error nothing has changed.
    pub(in crate::documents) fn keep_test(
        &self,
        due: &DueStoreTest,
        hits: &[Hits],
        now: u64,
    ) -> Result<SelfTest, DocumentError> {
        let maker = self.settings.vectors.as_ref().ok_or(DocumentError::NoEmbedder)?;
        let changing = self.changing();
        let (owner, id) = due.store.key();
        // Removed meanwhile, it is not written again.
        let store = self.store(owner, id)?;
        let before = store.state.read().test.clone();
        let test = SelfTest::of(hits, (now, due.passages, due.mark), before.as_ref());
        changing.write(|txn| tables::put_test(txn, (owner, id), &maker.identity, &test))?;
        store.state.write().test = Some(test.clone());
        Ok(test)
    }
}

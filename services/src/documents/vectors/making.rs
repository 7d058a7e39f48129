//! From a file that can be searched by its words to one that has vectors: those of all its passages are kept at once,
//! so that a crash leaves the file as it was.

use crate::documents::error::DocumentError;
use crate::documents::index::StoreIndex;
use crate::documents::library::{Library, VectorStore};
use crate::documents::members::{FileCounts, MemberState, StoreVectors};
use crate::documents::passage::text_for_vector;
use crate::documents::tables;
use crate::embedder::VectorMaker;
use chimere_engine::ids::KeyId;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A file whose passages wait for their vectors.
#[derive(Clone)]
pub struct VectorJob {
    store: Arc<VectorStore>,
    /// Its id in the account.
    pub file_id: String,
    /// Its number in the store: another one means that it has begun anew.
    number: u64,
    /// Passages that it was cut into.
    pub passages: usize,
}

impl VectorJob {
    /// Account and id of the store.
    pub fn store(&self) -> (KeyId, &str) {
        self.store.key()
    }

    fn is_wanted(&self) -> bool {
        let state = self.store.state.read();
        let member = state.members.get(&self.file_id);
        member.is_some_and(|member| member.number == self.number && member.state == MemberState::Completed)
    }
}

impl VectorStore {
    /// How far the vectors of this maker are.
    pub(in crate::documents) fn vectors_info(&self, maker: &VectorMaker) -> StoreVectors {
        let (passages, waiting) = self.passages_waiting();
        let state = self.state.read();
        StoreVectors {
            maker: maker.identity.clone(),
            passages,
            waiting,
            test: state.test.clone(),
            test_due: state.is_test_due(),
        }
    }

    /// Passages of all files that can be searched, and those of them that wait for their vectors.
    pub(in crate::documents) fn passages_waiting(&self) -> (usize, usize) {
        // Passages that are not read from the disk yet may have theirs there.
        let there = self.with_vectors.load(Ordering::Relaxed);
        let state = self.state.read();
        let completed = state.members.values().filter(|member| member.state == MemberState::Completed);
        let passages = completed.map(|member| member.chunks).sum::<usize>();
        (passages, passages.saturating_sub(there))
    }

    /// Files that are not searchable yet.
    pub(super) fn files_to_read(&self) -> usize {
        FileCounts::of(self.state.read().members.values().map(|member| &member.state)).in_progress
    }
}

impl Library {
    /// A file that waits for its vectors; accounts take turns, `after` had the last one. Those that are not `wanted`
    /// are left out.
    pub(in crate::documents) fn vector_job(
        &self,
        after: KeyId,
        wanted: impl Fn(&str, &str) -> bool,
    ) -> Option<VectorJob> {
        self.settings.vectors.as_ref()?;
        let stores = self.stores.read();
        let next = (Bound::Excluded((KeyId(after.0), "\u{10ffff}".to_owned())), Bound::Unbounded);
        let in_turn = stores.range(next).chain(stores.iter());
        in_turn.map(|(_, store)| store).find_map(|store| {
            let file_id = {
                // One that is being read or changed has its turn later: nobody waits here.
                let index = store.index.try_read()?;
                index.as_ref()?.without_vectors(|file| wanted(&store.id, file))?.to_owned()
            };
            let state = store.state.read();
            let member = state.members.get(&file_id)?;
            Some(VectorJob { store: store.clone(), number: member.number, passages: member.chunks, file_id })
        })
    }

    /// The texts of some passages of a file as an encoder reads them; none where nobody wants them any more.
    pub(in crate::documents) fn vector_texts(
        &self,
        job: &VectorJob,
        part: Range<usize>,
    ) -> Result<Option<Vec<String>>, DocumentError> {
        let Some(file) = self.file(job.store.owner, &job.file_id).ok().filter(|_| job.is_wanted()) else {
            return Ok(None);
        };
        let places = job.store.index.read().as_ref().and_then(|index| index.places_of(&job.file_id, part));
        let Some(places) = places else { return Ok(None) };
        let broke = |e| self.broke(&self.texts.text_path(&file.sha256), e);
        let text = self.texts.open(&file.sha256).map_err(broke)?;
        let read = places.iter().map(|place| {
            let own = text.read(place.span.start as usize, place.span.end as usize).map_err(broke)?;
            Ok(text_for_vector(&place.headings, &own))
        });
        read.collect::<Result<_, DocumentError>>().map(Some)
    }

    /// Keeps the vectors of all passages of a file, as they are kept. False where nobody wants them any more.
    pub(in crate::documents) fn keep_vectors(&self, job: &VectorJob, codes: &[u8]) -> Result<bool, DocumentError> {
        let Some(maker) = &self.settings.vectors else { return Ok(false) };
        let changing = self.changing();
        if !job.is_wanted() || codes.len() != job.passages * maker.width {
            return Ok(false);
        }
        let (owner, store) = job.store.key();
        changing.write(|txn| tables::put_vectors(txn, (owner, store, &job.file_id), &maker.identity, codes))?;
        self.change_index(&job.store, |index| index.set_vectors(&job.file_id, codes));
        self.export();
        Ok(true)
    }

    /// Gives a file of an index the vectors that are on the disk. Those of another maker are left: new ones take their
    /// place.
    pub(in crate::documents) fn load_vectors(&self, store: &VectorStore, file: &str, index: &mut StoreIndex) {
        let Some(maker) = &self.settings.vectors else { return };
        let key = (store.owner, store.id.as_str(), file);
        match self.db.read(|txn| tables::vectors(txn, key, &maker.identity)) {
            Ok(codes) => codes.iter().for_each(|codes| index.set_vectors(file, codes)),
            Err(error) => tracing::error!(store = store.id, file, %error, "vectors cannot be read and are made anew"),
        }
    }
}

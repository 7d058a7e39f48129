//! What the rest of the service does with documents. Without a directory there are none, and all that would need one is
//! refused.

use super::error::DocumentError;
use super::files::Upload;
use super::filter::Attributes;
use super::ingest::Ingest;
use super::library::{DocumentSettings, Library, NOT_READ};
use super::members::{BatchInfo, FileCounts, FileInfo, MemberInfo, NewMember, StoreInfo};
use super::passage::{Excerpt, Passage};
use super::search::{StoreSearch, WholeStore};
use super::stores::{NewStore, StoreChange};
use super::vectors::{DueStoreTest, StoreProbe, TestTurn, VectorJob};
use crate::clock::unix_seconds;
use crate::database::DatabaseError;
use crate::limits::CHUNK_TOKENS;
use crate::semantic::{Hits, SelfTest};
use chimere_engine::ids::KeyId;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the file's head.
#[derive(Default)]
pub struct Documents {
    open: Option<OpenDocuments>,
}

struct OpenDocuments {
    library: Arc<Library>,
    ingest: Ingest,
}

impl Documents {
    /// Those of a directory, which is this service's own. Files that are not searchable yet become so from now on.
    pub fn open(directory: Option<&Path>, settings: DocumentSettings) -> Result<Self, DocumentError> {
        let Some(directory) = directory else { return Ok(Self::default()) };
        let library = Arc::new(Library::open(directory, settings)?);
        let ingest = Ingest::start(library.clone());
        let ingest = ingest.map_err(|e| DatabaseError::of(directory, redb::Error::Io(e)))?;
        Ok(Self { open: Some(OpenDocuments { library, ingest }) })
    }

    fn library(&self) -> Result<&Arc<Library>, DocumentError> {
        self.open.as_ref().map(|open| &open.library).ok_or(DocumentError::NoDirectory)
    }

    /// Begins to work on files of a store.
    fn ingest(&self, owner: KeyId, store: &str, files: &[String]) {
        if let Some(open) = &self.open
            && let Ok(store) = open.library.store(owner, store)
        {
            open.ingest.push(&store, files);
        }
    }

    /// Tokens of a passage where nobody says otherwise.
    pub fn chunk_tokens(&self) -> u32 {
        self.open.as_ref().map_or(CHUNK_TOKENS, |open| open.library.settings.chunk_tokens)
    }

    /// Passages of a store that an account may read; none while they are not in memory yet. Nobody waits here.
    pub fn chunks(&self, reader: KeyId, store: &str) -> Option<usize> {
        let store = self.library().and_then(|library| library.readable(reader, store));
        let passages = store.map_or(0, |store| store.in_memory.load(Ordering::Relaxed));
        Some(passages).filter(|passages| *passages != NOT_READ)
    }

    /// Tells the metrics what there is. For a start: documents may be opened before there is anybody to tell.
    pub fn export(&self) {
        match &self.open {
            Some(open) => {
                open.library.export();
                open.ingest.export();
            }
            None => {
                super::stores::export(FileCounts::default(), 0, 0);
                super::ingest::export(0);
            }
        }
    }

    /// A file that is about to arrive.
    pub fn upload(&self, owner: KeyId) -> Result<Upload, DocumentError> {
        self.library()?.upload(owner)
    }

    /// An account's files, oldest first.
    pub fn files(&self, owner: KeyId) -> Result<Vec<Arc<FileInfo>>, DocumentError> {
        Ok(self.library()?.list_files(owner))
    }

    /// One of an account's files.
    pub fn file(&self, owner: KeyId, id: &str) -> Result<Arc<FileInfo>, DocumentError> {
        self.library()?.file(owner, id)
    }

    /// A file's bytes as they came.
    pub fn content(&self, owner: KeyId, id: &str) -> Result<(Arc<FileInfo>, File), DocumentError> {
        self.library()?.content(owner, id)
    }

    /// Removes a file with its bytes, its text, and its passages in all stores.
    pub fn remove_file(&self, owner: KeyId, id: &str) -> Result<(), DocumentError> {
        self.library()?.remove_file(owner, id)
    }

    /// The stores that an account may read, oldest first: its own, and those that others share with it.
    pub fn stores(&self, reader: KeyId) -> Result<Vec<StoreInfo>, DocumentError> {
        let library = self.library()?;
        Ok(library.readable_stores(reader).iter().map(|store| library.describe_to(reader, store)).collect())
    }

    /// One of the stores that an account may read.
    pub fn store(&self, reader: KeyId, id: &str) -> Result<StoreInfo, DocumentError> {
        let library = self.library()?;
        Ok(library.describe_to(reader, &*library.readable(reader, id)?))
    }

    /// Makes a store with files, which become searchable one by one.
    pub fn create_store(&self, owner: KeyId, new: NewStore) -> Result<StoreInfo, DocumentError> {
        let files: Vec<String> = new.files.iter().map(|new| new.file_id.clone()).collect();
        let store = self.library()?.create_store(owner, new, unix_seconds())?;
        self.ingest(owner, &store.id, &files);
        Ok(store)
    }

    /// Changes what a client says of a store.
    pub fn update_store(&self, owner: KeyId, id: &str, change: StoreChange) -> Result<StoreInfo, DocumentError> {
        self.library()?.update_store(owner, id, change, unix_seconds())
    }

    /// Removes a store; its files stay the account's.
    pub fn remove_store(&self, owner: KeyId, id: &str) -> Result<(), DocumentError> {
        self.library()?.remove_store(owner, id)
    }

    /// Puts a file into a store, where it becomes searchable soon. One that is there already begins anew.
    pub fn attach(&self, owner: KeyId, store: &str, new: NewMember) -> Result<MemberInfo, DocumentError> {
        let file = new.file_id.clone();
        self.library()?.attach(owner, store, (vec![new], false), unix_seconds())?;
        let member = self.library()?.member(owner, store, &file);
        self.ingest(owner, store, &[file]);
        member
    }

    /// A store's files, oldest first.
    pub fn members(&self, owner: KeyId, store: &str) -> Result<Vec<MemberInfo>, DocumentError> {
        self.library()?.members(owner, store)
    }

    /// One of a store's files.
    pub fn member(&self, owner: KeyId, store: &str, file: &str) -> Result<MemberInfo, DocumentError> {
        self.library()?.member(owner, store, file)
    }

    /// Gives a file of a store other attributes.
    pub fn set_attributes(
        &self,
        owner: KeyId,
        (store, file): (&str, &str),
        attributes: Attributes,
    ) -> Result<MemberInfo, DocumentError> {
        self.library()?.set_attributes(owner, (store, file), attributes)
    }

    /// Takes a file out of a store; it stays the account's.
    pub fn detach(&self, owner: KeyId, store: &str, file: &str) -> Result<(), DocumentError> {
        self.library()?.detach(owner, store, file)
    }

    /// Sections of a file's parsed text from the one that holds the byte `from` on, until they have so many bytes; and
    /// where the next ones begin.
    pub fn text_from(
        &self,
        owner: KeyId,
        member: (&str, &str),
        part: (usize, usize),
    ) -> Result<(Vec<String>, Option<usize>), DocumentError> {
        self.library()?.text_from(owner, member, part)
    }

    /// The passage of a file's parsed text between two bytes, with up to `around` bytes before and behind it. Cut
    /// characters at its ends are left out.
    pub fn excerpt(
        &self,
        reader: KeyId,
        file: &str,
        passage: (usize, usize),
        around: usize,
    ) -> Result<Excerpt, DocumentError> {
        self.library()?.excerpt(reader, file, passage, around)
    }

    /// Puts files into a store together.
    pub fn create_batch(&self, owner: KeyId, store: &str, files: Vec<NewMember>) -> Result<BatchInfo, DocumentError> {
        let batch = self.library()?.attach(owner, store, (files, true), unix_seconds())?;
        let batch = batch.ok_or_else(|| DocumentError::UnknownBatch(String::new()))?;
        self.ingest(owner, store, &batch.files);
        Ok(batch)
    }

    /// One of a store's batches, with its files by their states.
    pub fn batch(&self, owner: KeyId, store: &str, batch: &str) -> Result<(BatchInfo, FileCounts), DocumentError> {
        self.library()?.batch(owner, store, batch)
    }

    /// Gives up the files of a batch that are not searchable yet.
    pub fn cancel_batch(&self, owner: KeyId, store: &str, batch: &str) -> Result<(), DocumentError> {
        self.library()?.cancel_batch(owner, store, batch)
    }

    /// The best passages of some of an account's stores, best first: one list over all of their files. Several queries
    /// are fused by their ranks. Takes as long as a scan of all passages, so not on a thread that serves many.
    pub fn search(&self, owner: KeyId, asked: &StoreSearch<'_>) -> Result<Vec<Passage>, DocumentError> {
        self.library()?.search(owner, asked, unix_seconds())
    }

    /// The largest weight that vectors have in some of an account's stores: with 0 a query needs none.
    pub fn vector_weight(&self, owner: KeyId, stores: &[String]) -> Result<f32, DocumentError> {
        self.library()?.vector_weight(owner, stores)
    }

    /// Whether passages get vectors, which takes a directory and an encoder.
    pub fn has_vectors(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.library.settings.vectors.is_some())
    }

    /// A file that waits for its vectors; accounts take turns, `after` had the last one. Those that are not `wanted`,
    /// by store and file, are left out.
    pub fn vector_job(&self, after: KeyId, wanted: impl Fn(&str, &str) -> bool) -> Option<VectorJob> {
        self.open.as_ref()?.library.vector_job(after, wanted)
    }

    /// The texts of some passages of a file as an encoder reads them; none where nobody wants them any more.
    pub fn vector_texts(&self, job: &VectorJob, part: Range<usize>) -> Result<Option<Vec<String>>, DocumentError> {
        self.library()?.vector_texts(job, part)
    }

    /// Keeps the vectors of all passages of a file, as [`super::coded`] makes them, or none. False where nobody wants
    /// them any more.
    pub fn keep_vectors(&self, job: &VectorJob, codes: &[u8]) -> Result<bool, DocumentError> {
        self.library()?.keep_vectors(job, codes)
    }

    /// A store whose self-test is due and whose vectors are all there.
    pub fn due_test(&self) -> Option<DueStoreTest> {
        self.open.as_ref()?.library.due_test()
    }

    /// The test of one of an account's stores as it stands, due or not.
    pub fn test_of(&self, owner: KeyId, store: &str) -> Result<DueStoreTest, DocumentError> {
        self.library()?.test_of(owner, store)
    }

    /// The right to test a store for somebody who asks for it, which one has at a time.
    pub fn test_turn(&self) -> Result<TestTurn, DocumentError> {
        self.library()?.test_turn()
    }

    /// The sentences to search for in a test.
    pub fn test_probes(&self, due: &DueStoreTest) -> Vec<StoreProbe> {
        self.open.as_ref().map_or_else(Vec::new, |open| open.library.test_probes(due))
    }

    /// With which weights of the vectors a sentence finds its passage, by its own vector and that of the rest.
    pub fn test_search(&self, due: &DueStoreTest, probe: &StoreProbe, vectors: (&[f32], &[f32])) -> Option<Hits> {
        self.open.as_ref()?.library.test_search(due, probe, vectors)
    }

    /// Keeps the result of a test.
    pub fn keep_test(&self, due: &DueStoreTest, hits: &[Hits]) -> Result<SelfTest, DocumentError> {
        self.library()?.keep_test(due, hits, unix_seconds())
    }

    /// All text of a store, if it is not too large to be handed out.
    pub fn whole(&self, owner: KeyId, store: &str) -> Result<WholeStore, DocumentError> {
        self.library()?.whole(owner, store)
    }
}

//! What the rest of the service does with documents. Without a directory there are none, and all that would need one is
//! refused.

use super::error::DocumentError;
use super::files::Upload;
use super::filter::{AttributeFilter, Attributes};
use super::index::StoreIndex;
use super::ingest::Ingest;
use super::library::{DocumentSettings, Library};
use super::members::{BatchInfo, FileCounts, FileInfo, MemberInfo, NewMember, StoreInfo};
use super::passage::{Excerpt, Passage};
use super::search::WholeStore;
use super::stores::{NewStore, StoreChange};
use crate::clock::unix_seconds;
use crate::database::DatabaseError;
use crate::limits::CHUNK_TOKENS;
use chimere_engine::ids::KeyId;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

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

    /// Passages of one of an account's stores, as far as they are in memory.
    pub fn chunks(&self, owner: KeyId, store: &str) -> usize {
        let store = self.library().and_then(|library| library.store(owner, store));
        store.map_or(0, |store| store.index.read().as_ref().map_or(0, StoreIndex::len))
    }

    /// Tells the metrics what there is. For a start: documents may be opened before there is anybody to tell.
    pub fn export(&self) {
        match &self.open {
            Some(open) => {
                open.library.export();
                open.ingest.export();
            }
            None => {
                super::stores::export(FileCounts::default(), 0);
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

    /// An account's stores, oldest first.
    pub fn stores(&self, owner: KeyId) -> Result<Vec<StoreInfo>, DocumentError> {
        Ok(self.library()?.list_stores(owner))
    }

    /// One of an account's stores.
    pub fn store(&self, owner: KeyId, id: &str) -> Result<StoreInfo, DocumentError> {
        Ok(self.library()?.store(owner, id)?.info())
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
        owner: KeyId,
        file: &str,
        passage: (usize, usize),
        around: usize,
    ) -> Result<Excerpt, DocumentError> {
        self.library()?.excerpt(owner, file, passage, around)
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

    /// The `k` best passages of some of an account's stores, best first: one list over all of their files. Several
    /// queries are fused by their ranks. With a filter only files whose attributes fulfil it are searched. Takes as
    /// long as a scan of all passages, so not on a thread that serves many.
    pub fn search(
        &self,
        owner: KeyId,
        stores: &[&str],
        queries: &[&str],
        k: usize,
        filter: Option<&AttributeFilter>,
    ) -> Result<Vec<Passage>, DocumentError> {
        self.library()?.search(owner, stores, (queries, k), filter, unix_seconds())
    }

    /// All text of a store, if it is not too large to be handed out.
    pub fn whole(&self, owner: KeyId, store: &str) -> Result<WholeStore, DocumentError> {
        self.library()?.whole(owner, store)
    }
}

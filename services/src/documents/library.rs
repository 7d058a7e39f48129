//! All documents of a service in memory and on the disk. Each change is on the disk before anybody sees it, and changes
//! happen one after the other, so that the disk and the memory change in the same order.

use super::access::StoreAccess;
use super::error::DocumentError;
use super::index::StoreIndex;
use super::members::{BatchInfo, FileCounts, FileInfo, MemberInfo, StoreInfo, StoreRow};
use super::outline::{ParsedTexts, remove_file};
use super::tables::{self, StoredDocuments};
use crate::database::{DatabaseError, ReopeningDatabase};
use crate::embedder::VectorMaker;
use crate::semantic::SelfTest;
use chimere_engine::ids::KeyId;
use parking_lot::{Mutex, MutexGuard, RwLock};
use redb::WriteTransaction;
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Name of the database in its directory.
const FILE: &str = "documents.redb";
/// Directories of the bytes of files, of their texts, and of files that are arriving.
const BYTES: &str = "bytes";
const TEXTS: &str = "texts";
const ARRIVING: &str = "arriving";

/// In the place of a number of passages that is not known yet.
pub(super) const NOT_READ: usize = usize::MAX;

/// How much is kept, and how it is read and cut.
#[derive(Clone)]
pub struct DocumentSettings {
    /// Bytes of one file.
    pub file_bytes_max: u64,
    /// Bytes of all files of an account.
    pub account_bytes_max: u64,
    /// The program whose command `parse` reads files.
    pub program: PathBuf,
    /// Seconds that reading a file may take.
    pub parse_seconds: u64,
    /// Bytes of memory that reading a file may take.
    pub parse_bytes: u64,
    /// Tokens of a passage where nobody says otherwise.
    pub chunk_tokens: u32,
    /// Files that are read at once.
    pub threads: usize,
    /// Counts the tokens of a text.
    pub count: Arc<dyn Fn(&str) -> usize + Send + Sync>,
    /// The encoder whose vectors passages get; with none they are found by their words alone.
    pub vectors: Option<VectorMaker>,
}

/// See the file's head.
pub(super) struct Library {
    pub(super) settings: DocumentSettings,
    directory: PathBuf,
    pub(super) texts: ParsedTexts,
    pub(super) db: ReopeningDatabase,
    /// The number of whatever is made next. Held by whoever changes something.
    changes: Mutex<u64>,
    pub(super) files: RwLock<BTreeMap<(KeyId, String), Arc<FileInfo>>>,
    pub(super) stores: RwLock<BTreeMap<(KeyId, String), Arc<VectorStore>>>,
    /// Bytes of all indices.
    pub(super) index_bytes: AtomicU64,
    /// Who may read the stores of others.
    pub(super) access: StoreAccess,
    /// A store is testing itself because somebody asked for it; one at a time does.
    pub(super) testing: AtomicBool,
}

/// A store of an account.
pub(super) struct VectorStore {
    pub(super) owner: KeyId,
    pub(super) id: String,
    pub(super) state: RwLock<StoreState>,
    /// `None` until it was read from the disk.
    pub(super) index: RwLock<Option<StoreIndex>>,
    /// Passages in the index, [`NOT_READ`] until it was read from the disk. Beside it as the next one is, because
    /// whoever asks must not wait until it is read.
    pub(super) in_memory: AtomicUsize,
    /// Passages in the index whose vectors are there.
    pub(super) with_vectors: AtomicUsize,
    /// When it was last changed or searched, in seconds since 1970.
    pub(super) active: AtomicU64,
}

/// What is known of a store.
pub(super) struct StoreState {
    pub(super) row: StoreRow,
    pub(super) members: BTreeMap<String, MemberInfo>,
    pub(super) batches: BTreeMap<String, BatchInfo>,
    /// The last self-test with the encoder that is configured.
    pub(super) test: Option<SelfTest>,
}

impl VectorStore {
    pub(super) fn of(owner: KeyId, row: StoreRow) -> Self {
        let (id, active) = (row.id.clone(), AtomicU64::new(row.created));
        let state = StoreState { row, members: BTreeMap::new(), batches: BTreeMap::new(), test: None };
        Self {
            owner,
            id,
            state: RwLock::new(state),
            index: RwLock::new(None),
            in_memory: AtomicUsize::new(NOT_READ),
            with_vectors: AtomicUsize::new(0),
            active,
        }
    }

    /// What is known of it; `maker` is the encoder that is configured.
    pub(super) fn info(&self, maker: Option<&VectorMaker>) -> StoreInfo {
        let vectors = maker.map(|maker| self.vectors_info(maker));
        let state = self.state.read();
        let StoreRow { id, number, created, name, description, metadata } = state.row.clone();
        StoreInfo {
            id,
            number,
            created,
            name,
            description,
            metadata,
            active: self.active.load(Ordering::Relaxed),
            bytes: state.members.values().map(|member| member.bytes).sum(),
            counts: FileCounts::of(state.members.values().map(|member| &member.state)),
            vectors,
            read_only: false,
        }
    }

    /// How much vectors count in a search. Nothing, until a test of this store has found otherwise.
    pub(super) fn vector_weight(&self) -> f32 {
        self.state.read().test.as_ref().map_or(0.0, |test| test.weight as f32)
    }

    pub(super) fn key(&self) -> (KeyId, &str) {
        (self.owner, &self.id)
    }

    /// Tells those who must not wait for the index how much is in it.
    pub(super) fn count(&self, index: &StoreIndex) {
        self.in_memory.store(index.len(), Ordering::Relaxed);
        self.with_vectors.store(index.with_vectors(), Ordering::Relaxed);
    }
}

/// The right to change something, and the number of what is made next.
pub(super) struct Changing<'a> {
    library: &'a Library,
    number: MutexGuard<'a, u64>,
}

impl Changing<'_> {
    /// Larger than all before it.
    pub(super) fn next_number(&mut self) -> u64 {
        *self.number += 1;
        *self.number
    }

    /// Puts a change on the disk, or changes nothing.
    pub(super) fn write(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), DocumentError> {
        Ok(self.library.db.write(change)?)
    }
}

impl Library {
    /// That of a directory, which no other service has. What a crash has left half done there is removed.
    pub(super) fn open(directory: &Path, settings: DocumentSettings) -> Result<Self, DocumentError> {
        let failed = |e: io::Error| DatabaseError::of(directory, redb::Error::Io(e));
        for name in [BYTES, TEXTS, ARRIVING] {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o700).create(directory.join(name)).map_err(failed)?;
        }
        let db = ReopeningDatabase::of_file(directory.join(FILE))?;
        let library = Self {
            settings,
            texts: ParsedTexts::of(directory.join(TEXTS)),
            directory: directory.to_owned(),
            changes: Mutex::new(0),
            files: RwLock::default(),
            stores: RwLock::default(),
            index_bytes: AtomicU64::new(0),
            access: StoreAccess::open(directory).map_err(DocumentError::Access)?,
            testing: AtomicBool::new(false),
            db,
        };
        library.take_in(library.db.read(tables::read_all)?);
        library.clear_leftovers().map_err(failed)?;
        Ok(library)
    }

    fn take_in(&self, stored: StoredDocuments) {
        let numbers = stored.files.iter().map(|(_, file)| file.number);
        let numbers = numbers.chain(stored.stores.iter().map(|(_, store)| store.number));
        let numbers = numbers.chain(stored.members.iter().map(|(_, _, member)| member.number));
        let numbers = numbers.chain(stored.batches.iter().map(|(_, _, batch)| batch.number));
        *self.changes.lock() = numbers.max().unwrap_or(0);
        let files = stored.files.into_iter().map(|(owner, file)| ((owner, file.id.clone()), Arc::new(file)));
        *self.files.write() = files.collect();
        let stores =
            stored.stores.into_iter().map(|(owner, row)| ((owner, row.id.clone()), VectorStore::of(owner, row)));
        let mut stores: BTreeMap<_, _> = stores.collect();
        for (owner, store, member) in stored.members {
            if let Some(store) = stores.get_mut(&(owner, store)) {
                store.state.get_mut().members.insert(member.file_id.clone(), member);
            }
        }
        for (owner, store, batch) in stored.batches {
            if let Some(store) = stores.get_mut(&(owner, store)) {
                store.state.get_mut().batches.insert(batch.id.clone(), batch);
            }
        }
        for (owner, store, maker, test) in stored.tests {
            let is_of_now = self.settings.vectors.as_ref().is_some_and(|now| now.identity == maker);
            if let Some(store) = stores.get_mut(&(owner, store)).filter(|_| is_of_now) {
                store.state.get_mut().test = Some(test);
            }
        }
        *self.stores.write() = stores.into_iter().map(|(key, store)| (key, Arc::new(store))).collect();
    }

    /// Removes bytes and texts that belong to no file.
    fn clear_leftovers(&self) -> io::Result<()> {
        let files = self.files.read();
        let known: HashSet<&str> = files.values().map(|file| file.sha256.as_str()).collect();
        for (name, keeps) in [(BYTES, true), (TEXTS, true), (ARRIVING, false)] {
            for entry in fs::read_dir(self.directory.join(name))? {
                let entry = entry?;
                let own = entry.file_name();
                let own = own.to_string_lossy();
                let hash = own.strip_suffix(".outline").unwrap_or(&own);
                if !(keeps && known.contains(hash)) {
                    remove_file(&entry.path());
                }
            }
        }
        Ok(())
    }

    /// The right to change something, once nobody else does.
    pub(super) fn changing(&self) -> Changing<'_> {
        Changing { library: self, number: self.changes.lock() }
    }

    /// Where the bytes of a file are kept.
    pub(super) fn bytes_path(&self, sha256: &str) -> PathBuf {
        self.directory.join(BYTES).join(sha256)
    }

    /// Where a file that is arriving lies.
    pub(super) fn arriving_path(&self) -> PathBuf {
        self.directory.join(ARRIVING).join(uuid::Uuid::new_v4().simple().to_string())
    }

    /// An error of a file beside the database.
    pub(super) fn broke(&self, path: &Path, error: io::Error) -> DocumentError {
        DatabaseError::of(path, redb::Error::Io(error)).into()
    }

    /// One of an account's own stores.
    pub(super) fn store(&self, owner: KeyId, id: &str) -> Result<Arc<VectorStore>, DocumentError> {
        let found = self.stores.read().get(&(owner, id.to_owned())).cloned();
        let missing = |shared: bool| if shared { DocumentError::ReadOnlyStore } else { DocumentError::UnknownStore };
        found.ok_or_else(|| missing(self.access.shared().allows(owner, id))(id.to_owned()))
    }

    /// A store that an account may read: one of its own, or one that is shared with it.
    pub(super) fn readable(&self, reader: KeyId, id: &str) -> Result<Arc<VectorStore>, DocumentError> {
        match self.store(reader, id) {
            Err(DocumentError::ReadOnlyStore(id)) => {
                let stores = self.stores.read();
                let shared = stores.values().find(|store| store.id == id).cloned();
                shared.ok_or(DocumentError::UnknownStore(id))
            }
            own => own,
        }
    }

    /// A file that an account may read: one of its own, or one in a store that is shared with it.
    pub(super) fn readable_file(&self, reader: KeyId, id: &str) -> Result<Arc<FileInfo>, DocumentError> {
        self.file(reader, id).or_else(|unknown| {
            let stores = self.readable_stores(reader);
            let store = stores.iter().find(|store| store.state.read().members.contains_key(id)).ok_or(unknown)?;
            self.file(store.owner, id)
        })
    }

    /// What is known of a store, for somebody who may read it.
    pub(super) fn describe_to(&self, reader: KeyId, store: &VectorStore) -> StoreInfo {
        StoreInfo { read_only: store.owner != reader, ..self.describe(store) }
    }

    /// The stores that an account may read, oldest first.
    pub(super) fn readable_stores(&self, reader: KeyId) -> Vec<Arc<VectorStore>> {
        let shared = self.access.shared();
        let reads = |store: &VectorStore| store.owner == reader || shared.allows(reader, &store.id);
        let mut stores: Vec<_> = self.stores.read().values().filter(|store| reads(store)).cloned().collect();
        stores.sort_by_key(|store| store.state.read().row.number);
        stores
    }

    /// One of an account's files.
    pub(super) fn file(&self, owner: KeyId, id: &str) -> Result<Arc<FileInfo>, DocumentError> {
        let found = self.files.read().get(&(owner, id.to_owned())).cloned();
        found.ok_or_else(|| DocumentError::UnknownFile(id.to_owned()))
    }
}

/// The part of a map by account that is one account's.
pub(super) fn own<T: Clone>(map: &BTreeMap<(KeyId, String), T>, owner: KeyId) -> Vec<T> {
    let own = map.range((owner, String::new())..).take_while(|((of, _), _)| *of == owner);
    own.map(|(_, value)| value.clone()).collect()
}

/// A new id that begins so.
pub(super) fn new_id(begin: &str) -> String {
    format!("{begin}{}", uuid::Uuid::new_v4().simple())
}

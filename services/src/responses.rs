//! ResponseStore that accounts keep to show them and to go on from them, for so long and so many bytes. What is kept is
//! found at once and written by a thread of its own: nobody waits for the disk, and a crash loses the last moments.

use crate::database::{self, DatabaseError, Opened};
use crate::limits::RESPONSES_UNWRITTEN_BYTES;
use crate::metrics::{RESPONSE_BYTES, RESPONSES_DROPPED, RESPONSES_KEPT};
use chimere_engine::ids::KeyId;
use crossbeam::channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;
use redb::backends::InMemoryBackend;
use redb::{Builder, ReadableTable, TableDefinition, TableError};
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Name of the database in its directory.
const FILE: &str = "responses.redb";
/// (account, id) to (seconds since 1970 when it ends, items, response), both as JSON.
const RESPONSES: TableDefinition<'_, (u64, &str), ResponseRow> = TableDefinition::new("responses");
/// When it ends, its items, the response.
type ResponseRow = (u64, &'static [u8], &'static [u8]);
/// Changes that are written together, at most.
const BATCH: usize = 64;

/// How much is kept, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseBounds {
    /// Bytes of all accounts.
    pub bytes_max: u64,
    /// Bytes of one account.
    pub account_bytes_max: u64,
    /// Seconds that a response is kept.
    pub seconds: u64,
}

/// A response that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptResponse {
    /// The conversation before it, an array of items.
    pub items: Arc<[u8]>,
    /// The response itself.
    pub response: Arc<[u8]>,
}

impl KeptResponse {
    fn bytes(&self) -> u64 {
        (self.items.len() + self.response.len()) as u64
    }
}

/// Whose it is, and its name.
type ResponseKey = (KeyId, Arc<str>);

/// See the file's head.
pub struct ResponseStore {
    settings: ResponseBounds,
    index: Arc<Mutex<KeptIndex>>,
    db: Arc<Opened>,
    changes: Option<Sender<Change>>,
    writer: Option<JoinHandle<()>>,
}

enum Change {
    Put(ResponseKey, u64, KeptResponse),
    Remove(ResponseKey),
}

/// What there is.
#[derive(Default)]
struct KeptIndex {
    accounts: HashMap<KeyId, KeptAccount>,
    bytes: u64,
    /// What is not written yet.
    unwritten: HashMap<ResponseKey, KeptResponse>,
    unwritten_bytes: u64,
}

/// What an account has, the oldest first.
#[derive(Default)]
struct KeptAccount {
    bytes: u64,
    all: VecDeque<KeptEntry>,
}

struct KeptEntry {
    id: Arc<str>,
    bytes: u64,
    ends: u64,
}

impl ResponseStore {
    /// Those of a directory, as of `now` in seconds since 1970. Without one they are kept in memory.
    pub fn open(directory: Option<&Path>, settings: ResponseBounds, now: u64) -> Result<Self, DatabaseError> {
        let file = directory.map_or_else(|| PathBuf::from("memory"), |directory| directory.join(FILE));
        let broke = |e: redb::Error| DatabaseError::of(&file, e);
        let opened = match directory {
            Some(_) => database::open_checked(&file),
            None => Builder::new().create_with_backend(InMemoryBackend::new()).map(Opened::ToChange),
        };
        let db = Arc::new(opened.map_err(|e| broke(e.into()))?);
        let index = Arc::new(Mutex::new(KeptIndex::read(&db).map_err(broke)?));
        let (changes, inbox) = unbounded();
        let writer = std::thread::Builder::new().name("responses".into()).spawn({
            let (db, index, file) = (db.clone(), index.clone(), file.clone());
            move || write_all(&db, &index, &inbox, &file)
        });
        let writer = writer.map_err(|e| broke(redb::Error::Io(e)))?;
        let all = Self { settings, index, db, changes: Some(changes), writer: Some(writer) };
        all.forget_old(now);
        Ok(all)
    }

    /// Keeps a response, and lets go of the account's oldest, or of who has most, where there is no room. False if it
    /// is too large, or comes sooner than it can be written.
    pub fn put(&self, owner: KeyId, id: &str, stored: KeptResponse, now: u64) -> bool {
        let (bytes, ends) = (stored.bytes(), now + self.settings.seconds);
        self.forget_old(now);
        let mut index = self.index.lock();
        let unwritten = index.unwritten_bytes + bytes;
        let too_large = bytes > self.settings.account_bytes_max.min(self.settings.bytes_max);
        if too_large || unwritten > RESPONSES_UNWRITTEN_BYTES {
            dropped(if too_large { "large" } else { "write" });
            return false;
        }
        while index.account_bytes(owner) + bytes > self.settings.account_bytes_max {
            self.forget(index.oldest_of(owner));
            dropped("account");
        }
        while index.bytes + bytes > self.settings.bytes_max {
            let most = index.accounts.iter().max_by_key(|(_, account)| account.bytes).map(|(owner, _)| *owner);
            let oldest = most.and_then(|owner| index.oldest_of(owner));
            self.forget(oldest);
            dropped("store");
        }
        let key: ResponseKey = (owner, id.into());
        index.add(&key, bytes, ends);
        index.tell();
        index.unwritten_bytes = unwritten;
        index.unwritten.insert(key.clone(), stored.clone());
        self.change(Change::Put(key, ends, stored));
        true
    }

    /// One of an account's responses.
    pub fn get(&self, owner: KeyId, id: &str, now: u64) -> Option<KeptResponse> {
        {
            let index = self.index.lock();
            let entry = index.accounts.get(&owner)?.all.iter().find(|entry| *entry.id == *id)?;
            if entry.ends <= now {
                return None;
            }
            if let Some(stored) = index.unwritten.get(&(owner, entry.id.clone())) {
                return Some(stored.clone());
            }
        }
        let table = self.db.begin_read().ok()?.open_table(RESPONSES).ok()?;
        let row = table.get((owner.0, id)).ok()??;
        let (_, items, response) = row.value();
        Some(KeptResponse { items: items.into(), response: response.into() })
    }

    /// Removes one of an account's responses. False if there is none.
    pub fn remove(&self, owner: KeyId, id: &str, now: u64) -> bool {
        self.forget_old(now);
        let key = {
            let mut index = self.index.lock();
            let key = index.take_out(owner, |entry| *entry.id == *id);
            index.tell();
            key
        };
        let there = key.is_some();
        self.forget(key);
        there
    }

    fn forget_old(&self, now: u64) {
        let mut index = self.index.lock();
        let owners: Vec<KeyId> = index.accounts.keys().copied().collect();
        for owner in owners {
            while let Some(key) = index.take_out(owner, |entry| entry.ends <= now) {
                self.forget(Some(key));
                dropped("time");
            }
        }
        index.tell();
    }

    /// Away from the disk too.
    fn forget(&self, key: Option<ResponseKey>) {
        key.into_iter().for_each(|key| self.change(Change::Remove(key)));
    }

    fn change(&self, change: Change) {
        if let Some(changes) = &self.changes {
            // It ends only with this value.
            changes.send(change).ok();
        }
    }
}

impl Drop for ResponseStore {
    /// Waits until all is written.
    fn drop(&mut self) {
        drop(self.changes.take());
        if let Some(writer) = self.writer.take() {
            writer.join().ok();
        }
    }
}

impl KeptIndex {
    fn read(db: &Opened) -> Result<Self, redb::Error> {
        let mut rows: Vec<(u64, ResponseKey, u64)> = Vec::new();
        match db.begin_read()?.open_table(RESPONSES) {
            Ok(table) => {
                for row in table.iter()? {
                    let (key, value) = row?;
                    let ((owner, id), (ends, items, response)) = (key.value(), value.value());
                    rows.push((ends, (KeyId(owner), id.into()), (items.len() + response.len()) as u64));
                }
            }
            Err(TableError::TableDoesNotExist(_)) => {}
            Err(e) => return Err(e.into()),
        }
        rows.sort();
        let mut index = Self::default();
        rows.iter().for_each(|(ends, key, bytes)| index.add(key, *bytes, *ends));
        Ok(index)
    }

    fn add(&mut self, (owner, id): &ResponseKey, bytes: u64, ends: u64) {
        let account = self.accounts.entry(*owner).or_default();
        account.all.push_back(KeptEntry { id: id.clone(), bytes, ends });
        account.bytes += bytes;
        self.bytes += bytes;
    }

    /// Says how much there is.
    fn tell(&self) {
        let count: usize = self.accounts.values().map(|account| account.all.len()).sum();
        ::metrics::gauge!(RESPONSES_KEPT).set(count as f64);
        ::metrics::gauge!(RESPONSE_BYTES).set(self.bytes as f64);
    }

    fn account_bytes(&self, owner: KeyId) -> u64 {
        self.accounts.get(&owner).map_or(0, |account| account.bytes)
    }

    fn oldest_of(&mut self, owner: KeyId) -> Option<ResponseKey> {
        self.take_out(owner, |_| true)
    }

    /// The first of an account for which this holds, which is no longer there then.
    fn take_out(&mut self, owner: KeyId, which: impl Fn(&KeptEntry) -> bool) -> Option<ResponseKey> {
        let account = self.accounts.get_mut(&owner)?;
        let entry = account.all.iter().position(which).and_then(|at| account.all.remove(at))?;
        account.bytes -= entry.bytes;
        self.bytes -= entry.bytes;
        if account.all.is_empty() {
            self.accounts.remove(&owner);
        }
        Some((owner, entry.id))
    }

    fn written(&mut self, key: &ResponseKey) {
        if let Some(stored) = self.unwritten.remove(key) {
            self.unwritten_bytes -= stored.bytes();
        }
    }
}

/// Writes changes down, as many at once as there are. What could not be written is forgotten.
fn write_all(db: &Opened, index: &Mutex<KeptIndex>, inbox: &Receiver<Change>, file: &Path) {
    while let Ok(first) = inbox.recv() {
        let batch: Vec<Change> = std::iter::once(first).chain(inbox.try_iter().take(BATCH)).collect();
        let written = write(db, &batch);
        if let Err(error) = &written {
            let error = DatabaseError::failed(file, error);
            tracing::warn!(%error, "responses could not be kept");
        }
        let mut index = index.lock();
        for change in &batch {
            let Change::Put(key, ..) = change else { continue };
            index.written(key);
            if written.is_err() && index.take_out(key.0, |entry| entry.id == key.1).is_some() {
                dropped("write");
            }
        }
        index.tell();
    }
}

/// A response is kept no longer, or not at all, for this reason: one of [`crate::metrics::RESPONSE_DROPS`].
fn dropped(reason: &'static str) {
    debug_assert!(crate::metrics::RESPONSE_DROPS.contains(&reason), "{reason} is not among the reasons");
    ::metrics::counter!(RESPONSES_DROPPED, "reason" => reason).increment(1);
}

fn write(db: &Opened, batch: &[Change]) -> Result<(), redb::Error> {
    let txn = db.begin_write()?;
    {
        let mut table = txn.open_table(RESPONSES)?;
        for change in batch {
            match change {
                Change::Put((owner, id), ends, stored) => {
                    table.insert((owner.0, &**id), (*ends, &*stored.items, &*stored.response))?;
                }
                Change::Remove((owner, id)) => drop(table.remove((owner.0, &**id))?),
            }
        }
    }
    Ok(txn.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: KeyId = KeyId(1);
    const B: KeyId = KeyId(2);

    fn settings() -> ResponseBounds {
        ResponseBounds { bytes_max: 100, account_bytes_max: 60, seconds: 10 }
    }

    fn of(bytes: usize) -> KeptResponse {
        KeptResponse { items: vec![b'i'; bytes / 2].into(), response: vec![b'r'; bytes - bytes / 2].into() }
    }

    #[test]
    fn a_response_is_its_account_s_alone_and_ends_with_its_time() {
        let all = ResponseStore::open(None, settings(), 0).unwrap();
        assert!(all.put(A, "r1", of(20), 5));
        assert_eq!(all.get(A, "r1", 14), Some(of(20)));
        assert_eq!((all.get(B, "r1", 5), all.get(A, "r2", 5), all.get(A, "r1", 15)), (None, None, None));
        assert!(!all.remove(B, "r1", 5) && all.remove(A, "r1", 5) && !all.remove(A, "r1", 5));
        assert_eq!(all.get(A, "r1", 5), None);
    }

    #[test]
    fn where_there_is_no_room_the_account_s_oldest_goes_and_then_that_of_who_has_most() {
        let all = ResponseStore::open(None, settings(), 0).unwrap();
        let there = |owner, id| all.get(owner, id, 1).is_some();
        assert!(!all.put(A, "huge", of(61), 1));
        assert!(all.put(A, "a1", of(30), 1) && all.put(A, "a2", of(30), 1) && all.put(A, "a3", of(10), 1));
        assert!(!there(A, "a1") && there(A, "a2") && there(A, "a3"), "60 bytes an account");
        assert!(all.put(B, "b1", of(60), 1));
        assert!(there(A, "a2") && there(A, "a3"));
        assert!(all.put(KeyId(3), "c1", of(20), 1));
        assert!(!there(B, "b1") && there(A, "a2") && there(KeyId(3), "c1"), "100 bytes for all");
        assert_eq!(all.index.lock().bytes, 60);
    }

    #[test]
    fn the_metrics_say_what_is_kept_and_why_the_rest_is_not() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        ::metrics::with_local_recorder(&recorder, || {
            let all = ResponseStore::open(None, settings(), 0).unwrap();
            all.put(A, "huge", of(61), 1);
            assert!(all.put(A, "a1", of(30), 1) && all.put(A, "a2", of(30), 1) && all.put(A, "a3", of(10), 1));
            assert!(all.put(B, "b1", of(60), 1) && all.put(KeyId(3), "c1", of(20), 1) && all.remove(A, "a3", 1));
            let said = handle.render();
            let says = |line: &str| assert!(said.lines().any(|l| l == line), "no {line} in {said}");
            says("chimere_responses_kept 2");
            says("chimere_response_bytes 50");
            ["large", "account", "store"]
                .iter()
                .for_each(|reason| says(&format!("chimere_responses_dropped_total{{reason=\"{reason}\"}} 1")));
            all.forget_old(11);
        });
        let said = handle.render();
        assert!(said.contains("chimere_responses_kept 0\n") && said.contains("{reason=\"time\"} 2"), "{said}");
    }

    #[test]
    fn what_was_kept_in_a_directory_is_there_when_it_is_opened_again_unless_its_time_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let open = |now| ResponseStore::open(Some(dir.path()), settings(), now).unwrap();
        let all = open(0);
        assert!(all.put(A, "r1", of(20), 0) && all.put(A, "r2", of(30), 5) && all.put(B, "gone", of(1), 5));
        assert!(all.remove(B, "gone", 5));
        drop(all);
        let all = open(12);
        assert_eq!((all.get(A, "r1", 9), all.get(A, "r2", 12)), (None, Some(of(30))));
        assert_eq!((all.get(B, "gone", 5), all.index.lock().bytes), (None, 30));
    }
}

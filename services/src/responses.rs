//! Responses that accounts keep to show them and to go on from them, for so long and so many bytes. A response that is
//! kept is found at once and written by a thread of its own: no answer waits for the disk, and a crash loses the last
//! moments. A removal is on the disk before it is acknowledged.
//!
//! After a write that failed nothing new is kept until what waits could be written: a reply never says of a response
//! that it is kept while there is no room for it.

mod index;

use crate::database::{DatabaseError, OpenDatabase, ReopeningDatabase};
use crate::limits::RESPONSE_RETRY_SECONDS;
use crate::metrics::{RESPONSE_BYTES, RESPONSES_DROPPED, RESPONSES_KEPT};
use chimere_engine::ids::KeyId;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use index::{Changes, KeptIndex};
use parking_lot::Mutex;
use redb::backends::InMemoryBackend;
use redb::{Builder, ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Name of the database in its directory.
const FILE: &str = "responses.redb";
/// (account, id) to (seconds since 1970 when it ends, items, response), both as JSON.
const RESPONSES: TableDefinition<'_, (u64, &str), ResponseRow> = TableDefinition::new("responses");
/// When it ends, its items, the response.
type ResponseRow = (u64, &'static [u8], &'static [u8]);

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
    /// The response as it was answered, in JSON.
    pub response: Arc<[u8]>,
}

impl KeptResponse {
    fn bytes(&self) -> u64 {
        (self.items.len() + self.response.len()) as u64
    }
}

/// The account that owns a response, and the id of the response.
type ResponseKey = (KeyId, Arc<str>);

/// How the removal of a response went.
type Removed = oneshot::Sender<Result<(), DatabaseError>>;

/// See the file's head.
pub struct ResponseStore {
    settings: ResponseBounds,
    index: Arc<Mutex<KeptIndex>>,
    db: Arc<ReopeningDatabase>,
    /// One message is enough: all that changed until it is taken is written then.
    wake: Option<Sender<()>>,
    writer: Option<JoinHandle<()>>,
}

impl ResponseStore {
    /// Those of a directory, as of `now` in seconds since 1970. Without one they are kept in memory.
    pub fn open(directory: Option<&Path>, settings: ResponseBounds, now: u64) -> Result<Self, DatabaseError> {
        let db = match directory {
            Some(directory) => ReopeningDatabase::of_file(directory.join(FILE))?,
            None => ReopeningDatabase::new(PathBuf::from("memory"), || {
                Builder::new().create_with_backend(InMemoryBackend::new()).map(OpenDatabase::ToChange)
            })?,
        };
        Self::over(db, settings, now)
    }

    fn over(db: ReopeningDatabase, settings: ResponseBounds, now: u64) -> Result<Self, DatabaseError> {
        let index = Arc::new(Mutex::new(KeptIndex::of(&db.read(rows)?)));
        let (db, (wake, woken)) = (Arc::new(db), bounded(1));
        let writer = ResponseWriter { db: db.clone(), index: index.clone(), woken };
        let thread = std::thread::Builder::new().name("responses".into()).spawn(move || writer.run());
        let writer = thread.map_err(|e| DatabaseError::of(db.file(), redb::Error::Io(e)))?;
        let all = Self { settings, index, db, wake: Some(wake), writer: Some(writer) };
        all.forget_old(now);
        // The gauges have a value from the start, also where nothing was forgotten.
        all.index.lock().tell();
        Ok(all)
    }

    /// Keeps a response, and lets go of the account's oldest, or of who has most, where there is no room. False if it
    /// is too large, or comes sooner than it can be written, or while nothing can be written.
    pub fn put(&self, owner: KeyId, id: &str, stored: KeptResponse, now: u64) -> bool {
        let (bytes, ends) = (stored.bytes(), now + self.settings.seconds);
        self.forget_old(now);
        let mut index = self.index.lock();
        let too_large = bytes > self.settings.account_bytes_max.min(self.settings.bytes_max);
        if too_large || !index.can_take(bytes) || self.db.is_read_only() {
            dropped(if too_large { "large" } else { "write" });
            return false;
        }
        while index.account_bytes(owner) + bytes > self.settings.account_bytes_max {
            index.forget_oldest(owner);
            dropped("account");
        }
        while index.bytes() + bytes > self.settings.bytes_max {
            index.forget_oldest_of_most();
            dropped("store");
        }
        index.put((owner, id.into()), stored, ends);
        drop(index);
        self.changed();
        true
    }

    /// One of an account's responses. An error where it is there and cannot be read.
    pub fn get(&self, owner: KeyId, id: &str, now: u64) -> Result<Option<KeptResponse>, DatabaseError> {
        let unwritten = {
            let index = self.index.lock();
            if !index.has(owner, id, now) {
                return Ok(None);
            }
            index.unwritten(owner, id)
        };
        if unwritten.is_some() {
            return Ok(unwritten);
        }
        self.db.read(|txn| {
            let table = txn.open_table(RESPONSES)?;
            let row = table.get((owner.0, id))?;
            Ok(row.map(|row| {
                let (_, items, response) = row.value();
                KeptResponse { items: items.into(), response: response.into() }
            }))
        })
    }

    /// Removes one of an account's responses, and ends when that is on the disk. False if there is none. After an error
    /// it is still there.
    pub async fn remove(&self, owner: KeyId, id: &str, now: u64) -> Result<bool, DatabaseError> {
        self.forget_old(now);
        let (removed, waits) = oneshot::channel();
        let there = self.index.lock().remove(owner, id, removed);
        if !there {
            return Ok(false);
        }
        self.changed();
        // The thread answers every removal, and ends only with this value.
        waits.await.unwrap_or_else(|_| Err(DatabaseError::failed(self.db.file(), "the store is closed"))).map(|()| true)
    }

    fn forget_old(&self, now: u64) {
        let gone = self.index.lock().forget_old(now);
        (0..gone).for_each(|_| dropped("time"));
        if gone > 0 {
            self.changed();
        }
    }

    /// Tells the metrics, and the thread that writes.
    fn changed(&self) {
        self.index.lock().tell();
        // Full means that it will look anyway.
        if let Some(wake) = &self.wake {
            wake.try_send(()).ok();
        }
    }
}

impl Drop for ResponseStore {
    /// Waits until all is written, or cannot be.
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(writer) = self.writer.take() {
            writer.join().ok();
        }
    }
}

/// When each response ends, whose it is, and its bytes.
fn rows(txn: &ReadTransaction) -> Result<Vec<(u64, ResponseKey, u64)>, redb::Error> {
    let table = match txn.open_table(RESPONSES) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(e) => return Err(e.into()),
    };
    let mut rows = Vec::new();
    for row in table.iter()? {
        let (key, value) = row?;
        let ((owner, id), (ends, items, response)) = (key.value(), value.value());
        rows.push((ends, (KeyId(owner), id.into()), (items.len() + response.len()) as u64));
    }
    Ok(rows)
}

/// The thread that writes what changed.
struct ResponseWriter {
    db: Arc<ReopeningDatabase>,
    index: Arc<Mutex<KeptIndex>>,
    woken: Receiver<()>,
}

impl ResponseWriter {
    /// Until the store is dropped and all is written or cannot be. What could not be written is tried again.
    fn run(self) {
        let (mut open, mut failing) = (true, false);
        loop {
            let changes = self.index.lock().changes();
            if changes.is_empty() {
                if !open {
                    return;
                }
                open = self.woken.recv().is_ok();
                continue;
            }
            let written = self.db.write(|txn| write(txn, &changes));
            self.index.lock().settle(changes, &written);
            match &written {
                Err(error) if !failing => tracing::error!(%error, "responses cannot be written; it is tried again"),
                Ok(()) if failing => tracing::info!("responses are written again"),
                _ => {}
            }
            failing = written.is_err();
            if failing && !open {
                return self.index.lock().give_up();
            }
            if failing {
                let retry = Duration::from_secs(RESPONSE_RETRY_SECONDS);
                open = self.woken.recv_timeout(retry) != Err(RecvTimeoutError::Disconnected);
            }
        }
    }
}

fn write(txn: &WriteTransaction, changes: &Changes) -> Result<(), redb::Error> {
    let mut table = txn.open_table(RESPONSES)?;
    for ((owner, id), ends, stored) in &changes.puts {
        table.insert((owner.0, &**id), (*ends, &*stored.items, &*stored.response))?;
    }
    for (owner, id) in changes.gone.iter().chain(changes.removals.iter().map(|(key, _)| key)) {
        table.remove((owner.0, &**id))?;
    }
    Ok(())
}

/// A response is kept no longer, or not at all, for this reason: one of [`crate::metrics::RESPONSE_DROPS`].
fn dropped(reason: &'static str) {
    debug_assert!(crate::metrics::RESPONSE_DROPS.contains(&reason), "{reason} is not among the reasons");
    ::metrics::counter!(RESPONSES_DROPPED, "reason" => reason).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::disk::Disk;

    const A: KeyId = KeyId(1);
    const B: KeyId = KeyId(2);

    fn settings() -> ResponseBounds {
        ResponseBounds { bytes_max: 100, account_bytes_max: 60, seconds: 10 }
    }

    fn of(bytes: usize) -> KeptResponse {
        KeptResponse { items: vec![b'i'; bytes / 2].into(), response: vec![b'r'; bytes - bytes / 2].into() }
    }

    fn on(disk: &Disk, now: u64) -> ResponseStore {
        ResponseStore::over(disk.database(), settings(), now).unwrap()
    }

    fn remove(all: &ResponseStore, owner: KeyId, id: &str, now: u64) -> Result<bool, DatabaseError> {
        actix_rt::Runtime::new().unwrap().block_on(all.remove(owner, id, now))
    }

    /// Until this holds, which it will soon.
    fn eventually(what: &str, holds: impl Fn() -> bool) {
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(std::time::Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_response_is_its_account_s_alone_and_ends_with_its_time() {
        let all = ResponseStore::open(None, settings(), 0).unwrap();
        assert!(all.put(A, "r1", of(20), 5));
        let get = |owner, id, now| all.get(owner, id, now).unwrap();
        assert_eq!(get(A, "r1", 14), Some(of(20)));
        assert_eq!((get(B, "r1", 5), get(A, "r2", 5), get(A, "r1", 15)), (None, None, None));
        let removed = [(B, "r1"), (A, "r1"), (A, "r1")].map(|(owner, id)| remove(&all, owner, id, 5).unwrap());
        assert_eq!(removed, [false, true, false]);
        assert_eq!(get(A, "r1", 5), None);
    }

    #[test]
    fn where_there_is_no_room_the_account_s_oldest_goes_and_then_that_of_who_has_most() {
        let all = ResponseStore::open(None, settings(), 0).unwrap();
        let there = |owner, id| all.get(owner, id, 1).unwrap().is_some();
        assert!(!all.put(A, "huge", of(61), 1));
        assert!(all.put(A, "a1", of(30), 1) && all.put(A, "a2", of(30), 1) && all.put(A, "a3", of(10), 1));
        assert!(!there(A, "a1") && there(A, "a2") && there(A, "a3"), "60 bytes an account");
        assert!(all.put(B, "b1", of(60), 1));
        assert!(there(A, "a2") && there(A, "a3"));
        assert!(all.put(KeyId(3), "c1", of(20), 1));
        assert!(!there(B, "b1") && there(A, "a2") && there(KeyId(3), "c1"), "100 bytes for all");
        assert_eq!(all.index.lock().bytes(), 60);
    }

    #[test]
    fn the_metrics_say_what_is_kept_and_why_the_rest_is_not() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        ::metrics::with_local_recorder(&recorder, || {
            let all = ResponseStore::open(None, settings(), 0).unwrap();
            all.put(A, "huge", of(61), 1);
            assert!(all.put(A, "a1", of(30), 1) && all.put(A, "a2", of(30), 1) && all.put(A, "a3", of(10), 1));
            assert!(all.put(B, "b1", of(60), 1) && all.put(KeyId(3), "c1", of(20), 1));
            assert!(all.index.lock().remove(A, "a3", oneshot::channel().0));
            let gone = || {
                all.changed();
                handle.render().contains("chimere_responses_kept 2\n")
            };
            eventually("the removal is written", gone);
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
        assert!(remove(&all, B, "gone", 5).unwrap());
        drop(all);
        let all = open(12);
        let get = |owner, id, now| all.get(owner, id, now).unwrap();
        assert_eq!((get(A, "r1", 9), get(A, "r2", 12)), (None, Some(of(30))));
        assert_eq!((get(B, "gone", 5), all.index.lock().bytes()), (None, 30));
    }

    /// All that is to be written is written.
    fn written(all: &ResponseStore) -> bool {
        let index = all.index.lock();
        ["r1", "r2", "r3"].iter().all(|id| index.unwritten(A, id).is_none())
    }

    #[test]
    fn a_removal_that_was_acknowledged_is_on_the_disk() {
        let disk = Disk::default();
        let all = on(&disk, 0);
        for n in 0..20 {
            let id = format!("r{n}");
            assert!(all.put(A, &id, of(20), 0));
            // Some are removed before they are written, some while they are, some after.
            if n % 2 == 0 {
                eventually("it is written", || all.index.lock().unwritten(A, &id).is_none());
            }
            assert!(remove(&all, A, &id, 1).unwrap());
            assert_eq!(
                on(&disk.after_a_crash(), 1).get(A, &id, 1).unwrap(),
                None,
                "{id} would come back after a crash"
            );
        }
    }

    #[test]
    fn while_the_disk_is_full_nothing_is_said_to_be_kept_or_removed_that_is_not_and_with_room_again_all_is() {
        let disk = Disk::default();
        let all = on(&disk, 0);
        assert!(all.put(A, "r1", of(20), 0));
        eventually("it is written", || written(&all));
        disk.set_full(true);
        assert!(all.put(A, "r2", of(20), 0), "nobody knows yet that the disk is full");
        eventually("the store knows that the disk is full", || !all.index.lock().can_take(20));
        assert!(!all.put(A, "r3", of(20), 0), "it could not be kept");
        let there = |all: &ResponseStore| ["r1", "r2", "r3"].map(|id| all.get(A, id, 1).unwrap().is_some());
        assert_eq!(there(&all), [true, true, false], "what was said to be kept is there");
        assert!(matches!(remove(&all, A, "r1", 1), Err(DatabaseError::NoRoom { .. })));
        assert_eq!(there(&all), [true, true, false], "and what was not removed too");
        disk.set_full(false);
        eventually("what waited is written", || written(&all));
        assert!(all.put(A, "r3", of(20), 0) && remove(&all, A, "r1", 1).unwrap());
        assert_eq!(there(&all), [false, true, true]);
        drop(all);
        assert_eq!(there(&on(&disk, 1)), [false, true, true], "also after a restart");
    }
}

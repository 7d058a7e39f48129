//! Makes the files that requests read from the store, and has them read.

use super::calendar::Calendar;
use super::name::TableName;
use super::store::{ReplayedLog, Store, StoreError};
use super::tables::{LEARNED, SUFFIX, Tables, put_bytes};
use chimere_engine::engram::{Image, publish};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A store and the tables that are made from it.
pub struct Teacher {
    store: Store,
    tables: Arc<Tables>,
    calendar: Calendar,
}

impl Teacher {
    /// Of the same directory. A store that cannot be used is an error that names it.
    pub fn new(store: Store, tables: Arc<Tables>) -> Result<Self, StoreError> {
        let calendar = Calendar::start(store.last_seen()?);
        Ok(Self { store, tables, calendar })
    }

    /// The time that teaching and fading go by, in seconds since 1970.
    pub fn now(&self) -> u32 {
        self.calendar.now()
    }

    /// Where writes go first.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The tables that requests read.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Makes the files of all tables whose log is ahead of them. `now` is in seconds since 1970.
    pub fn publish_due(&self, now: u32) -> Result<Vec<TableName>, StoreError> {
        let due = self.store.unpublished(now)?;
        // Each for itself: what is wrong with one is no reason to leave the others as they were.
        let failed = due.iter().filter_map(|name| publish_table(&self.store, name, now).err()).collect::<Vec<_>>();
        failed.into_iter().next().map_or(Ok(due), Err)
    }
}

/// Makes the files of one table. Between looking and publishing another write may come; then it looks again.
pub fn publish_table(store: &Store, name: &TableName, now: u32) -> Result<(), StoreError> {
    loop {
        let layers = store.layers(name, now)?;
        if store.publish(name, layers.revision, now, || {
            put_files(store.directory(), name, &layers).map_err(|e| e.to_string())
        })? {
            return Ok(());
        }
    }
}

fn put_files(directory: &Path, name: &TableName, layers: &ReplayedLog) -> io::Result<()> {
    let file = format!("{name}.{SUFFIX}");
    if layers.owns_curated {
        put_file(&directory.join(&file), layers.curated.as_ref())?;
    }
    let learned = directory.join(LEARNED);
    if layers.learned.is_some() {
        fs::create_dir_all(&learned)?;
        File::open(directory)?.sync_all()?;
    }
    put_file(&learned.join(&file), layers.learned.as_ref())
}

/// The file as it should be: whole, or away.
fn put_file(path: &Path, image: Option<&Image>) -> io::Result<()> {
    match image {
        None => put_bytes(path, None),
        Some(image) => publish(path, |out| image.write(out)).map_err(io::Error::other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engram::store::{Texts, Write};
    use crate::engram::{Defaults, unix_seconds};
    use crate::text::Fingerprint;
    use chimere_engine::engram::{Orders, TokenizerHash};

    const IDS: Fingerprint = Fingerprint { hash: TokenizerHash([5; 32]), vocab: 100 };
    const DAY_S: u32 = 24 * 3600;

    fn learned(time: u32, ids: &[u32]) -> Write {
        Write::Learn(Texts { time, orders: Orders::new(1, 2).unwrap(), texts: vec![ids.to_vec()] })
    }

    /// A teacher of a directory in which a table was last published then.
    fn teacher(directory: &Path, then: u32) -> Teacher {
        let (store, name) = (Store::new(directory.to_owned(), IDS), TableName::new("t").unwrap());
        store.write(&name, &learned(then, &[1, 2])).unwrap();
        publish_table(&store, &name, then).unwrap();
        let tables = Tables::open(Some(directory.to_owned()), IDS.hash, Defaults::default()).unwrap();
        Teacher::new(store, Arc::new(tables)).unwrap()
    }

    #[test]
    fn a_clock_that_is_months_ahead_of_what_was_done_last_forgets_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let then = unix_seconds() - 400 * DAY_S;
        let teacher = teacher(dir.path(), then);
        assert!(teacher.now() - then < DAY_S, "as if the service had been off for a moment");
        let name = TableName::new("t").unwrap();
        teacher.store().write(&name, &learned(teacher.now(), &[3, 4])).unwrap();
        let layers = teacher.store().layers(&name, teacher.now()).unwrap();
        assert_eq!(layers.learned.unwrap().ngrams(), 2, "what was learned before is there beside what is learned now");
    }

    #[test]
    fn a_store_that_is_damaged_is_named_before_anybody_is_taught_and_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("store.redb");
        for damaged in ["no database".as_bytes(), &[0x5a; 1 << 16]] {
            fs::write(&file, damaged).unwrap();
            let tables = Tables::open(Some(dir.path().to_owned()), IDS.hash, Defaults::default()).unwrap();
            let error = Teacher::new(Store::new(dir.path().to_owned(), IDS), Arc::new(tables)).err().unwrap();
            assert!(error.to_string().contains("store.redb: "), "{error}");
            assert_eq!(fs::read(&file).unwrap(), damaged);
        }
    }

    #[test]
    fn a_table_that_cannot_be_published_leaves_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let teacher = teacher(dir.path(), unix_seconds());
        let now = teacher.now();
        let put = Write::Put(Texts { time: now, orders: Orders::new(1, 2).unwrap(), texts: vec![vec![1, 2]] });
        // Before the other one by name.
        let blocked = TableName::new("blocked").unwrap();
        fs::create_dir(dir.path().join("blocked.engr")).unwrap();
        teacher.store().write(&blocked, &put).unwrap();
        teacher.store().write(&TableName::new("t").unwrap(), &Write::Remove { time: now }).unwrap();
        assert!(teacher.publish_due(now).unwrap_err().to_string().contains("blocked.engr"));
        assert!(!dir.path().join(LEARNED).join("t.engr").exists());
    }
}

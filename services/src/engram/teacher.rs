//! Makes the files that requests read from the store, and has them read.

use super::calendar::Calendar;
use super::name::TableName;
use super::store::{Layers, Store, StoreError};
use super::tables::{LEARNED, SUFFIX, Tables};
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
    /// Of the same directory.
    pub fn new(store: Store, tables: Arc<Tables>) -> Self {
        // A store that cannot be read has nothing that a wrong clock could destroy; its first use says what is wrong
        // with it.
        let last_seen = store.last_seen().unwrap_or(0);
        Self { store, tables, calendar: Calendar::start(last_seen) }
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

fn put_files(directory: &Path, name: &TableName, layers: &Layers) -> io::Result<()> {
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
    let Some(image) = image else {
        return match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            Err(_) => Ok(()),
            // Away for good only when the directory is on the disk.
            Ok(()) => File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all(),
        };
    };
    publish(path, |out| image.write(out)).map_err(io::Error::other)
}

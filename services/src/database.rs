//! Opens the embedded databases of tables and of collections, and tells a disk that is full from all else that can go wrong with them.

use redb::Database;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The database in a file, made if it is not there.
pub fn open(file: &Path) -> Result<Database, redb::DatabaseError> {
    clear_unfinished(file)?;
    Database::create(file)
}

/// A file whose making was cut short, by a full disk or a crash, has a length and begins with zeros. It never held anything, and would be
/// refused as no database for ever.
fn clear_unfinished(file: &Path) -> io::Result<()> {
    let Ok(mut begun) = File::options().read(true).write(true).open(file) else { return Ok(()) };
    // Who makes or uses it holds the same lock.
    if begun.try_lock().is_err() {
        return Ok(());
    }
    // A database begins with nine bytes that say so, written last of all.
    let mut head = [1; 9];
    match begun.read_exact(&mut head) {
        Ok(()) if head == [0; 9] => begun.set_len(0),
        _ => Ok(()),
    }
}

/// A database could not be read or written. A write that ends so is not there.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The database, its file or its contents.
    #[error("{file}: {why}", file = file.display())]
    Failed {
        /// The database's file.
        file: PathBuf,
        /// What the system or the database said.
        why: String,
    },
    /// The disk is full, or the file as large as the process may make it.
    #[error("{file}: no room: {why}", file = file.display())]
    NoRoom {
        /// The database's file.
        file: PathBuf,
        /// What the system or the database said.
        why: String,
    },
}

impl DatabaseError {
    /// The database's own error.
    pub fn of(file: &Path, error: impl Into<redb::Error>) -> Self {
        match error.into() {
            redb::Error::Io(e) if is_full(&e) => Self::NoRoom { file: file.to_owned(), why: e.to_string() },
            other => Self::failed(file, other),
        }
    }

    /// Contents that are not what they should be.
    pub fn failed(file: &Path, why: impl Display) -> Self {
        Self::Failed { file: file.to_owned(), why: why.to_string() }
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::{ReadableDatabase, TableDefinition};

    const NUMBERS: TableDefinition<'_, u64, u64> = TableDefinition::new("numbers");

    #[test]
    fn a_file_whose_making_was_cut_short_is_made_anew_and_what_is_no_database_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.redb");
        for cut in [0, 5, 9, 1 << 20] {
            File::create(&path).unwrap().set_len(cut).unwrap();
            let opened = open(&path).map(drop);
            // Shorter than a database's first words: no making was cut so short.
            assert_eq!(opened.is_ok(), cut != 5, "{cut}: {opened:?}");
        }
        std::fs::write(&path, "somebody's letter").unwrap();
        let error = DatabaseError::of(&path, open(&path).err().unwrap()).to_string();
        assert!(error.contains("a.redb: ") && !error.contains("no room"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "somebody's letter");
    }

    #[test]
    fn what_was_written_is_there_when_it_is_opened_again_and_while_it_is_open_nobody_else_opens_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.redb");
        let db = open(&path).unwrap();
        let txn = db.begin_write().unwrap();
        txn.open_table(NUMBERS).unwrap().insert(1, 2).unwrap();
        txn.commit().unwrap();
        assert!(matches!(open(&path), Err(redb::DatabaseError::DatabaseAlreadyOpen)));
        drop(db);
        let db = open(&path).unwrap();
        let read = db.begin_read().unwrap();
        assert_eq!(read.open_table(NUMBERS).unwrap().get(1).unwrap().unwrap().value(), 2);
    }

    #[test]
    fn a_full_disk_is_told_from_other_errors() {
        for (kind, full) in
            [(io::ErrorKind::StorageFull, true), (io::ErrorKind::FileTooLarge, true), (io::ErrorKind::NotFound, false)]
        {
            let error = DatabaseError::of(Path::new("a.redb"), io::Error::from(kind));
            assert_eq!(matches!(error, DatabaseError::NoRoom { .. }), full, "{error}");
        }
    }
}

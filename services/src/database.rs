//! Opens the embedded databases of tables, of collections and of responses, and tells a disk that is full from all else
//! that can go wrong with them.

use chimere_engine::files::{open_regular, open_regular_to_change};
use parking_lot::RwLock;
use redb::backends::FileBackend;
use redb::{Builder, Database, ReadOnlyDatabase, ReadTransaction, ReadableDatabase, WriteTransaction};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long somebody else may still hold a database that is to be opened.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it is tried meanwhile.
const TRY_EVERY: Duration = Duration::from_millis(10);

/// A database that was opened for changes, or for reading where its file cannot be written.
pub enum OpenDatabase {
    /// Of a file that can be changed.
    ToChange(Database),
    /// Of a file that the process may only read, or that lies where nobody writes.
    ToRead(ReadOnlyDatabase),
}

impl OpenDatabase {
    /// Looks at what is there now.
    pub fn begin_read(&self) -> Result<ReadTransaction, redb::TransactionError> {
        match self {
            Self::ToChange(db) => db.begin_read(),
            Self::ToRead(db) => db.begin_read(),
        }
    }

    /// Begins a change of the database; an error where the file was opened for reading only.
    pub fn begin_write(&self) -> Result<WriteTransaction, redb::Error> {
        match self {
            Self::ToChange(db) => Ok(db.begin_write()?),
            Self::ToRead(_) => Err(io::Error::from(io::ErrorKind::ReadOnlyFilesystem).into()),
        }
    }

    /// Nothing can be changed.
    pub fn is_read_only(&self) -> bool {
        matches!(self, Self::ToRead(_))
    }
}

/// The database in a file, made if it is not there. What is no regular file is refused by its kind.
pub fn open(file: &Path) -> Result<OpenDatabase, redb::DatabaseError> {
    open_with(file, &Builder::new())
}

/// Opens a file as [`open`] does, and checks all of it, so that damage is an error now and not a surprise later. This
/// takes as long as reading the file.
pub fn open_checked(file: &Path) -> Result<OpenDatabase, redb::DatabaseError> {
    let mut builder = Builder::new();
    builder.set_check_integrity_on_open(true);
    open_with(file, &builder)
}

/// The process before this one may be about to end, and a program that is being started holds copies of all locks of
/// the one that starts it until its first instruction: who finds the file held waits a little.
fn open_with(file: &Path, builder: &Builder) -> Result<OpenDatabase, redb::DatabaseError> {
    let end = Instant::now() + PATIENCE;
    loop {
        match open_at_once(file, builder) {
            Err(redb::DatabaseError::DatabaseAlreadyOpen) if Instant::now() < end => std::thread::sleep(TRY_EVERY),
            opened => return opened,
        }
    }
}

fn open_at_once(file: &Path, builder: &Builder) -> Result<OpenDatabase, redb::DatabaseError> {
    open_as(file, open_regular_to_change(file), builder)
}

/// As far as the system lets it be opened to change it.
fn open_as(file: &Path, to_change: io::Result<File>, builder: &Builder) -> Result<OpenDatabase, redb::DatabaseError> {
    match to_change {
        Ok(to_change) => {
            clear_unfinished(file)?;
            builder.create_with_backend(FileBackend::new(to_change)?).map(OpenDatabase::ToChange)
        }
        Err(e) if is_read_only(&e) => {
            drop(open_regular(file)?);
            builder.open_read_only(file).map(OpenDatabase::ToRead)
        }
        Err(e) => Err(e.into()),
    }
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// A file whose making was cut short, by a full disk or a crash, has a length, and zeros but for its head. It never held
/// anything, and would be refused as no database for ever. A file with anything behind its head is damaged: it stays as
/// it is.
fn clear_unfinished(file: &Path) -> io::Result<()> {
    let Ok(mut begun) = File::options().read(true).write(true).open(file) else { return Ok(()) };
    // Who makes or uses it holds the same lock.
    if begun.try_lock().is_err() {
        return Ok(());
    }
    // A database begins with nine bytes that say so, written last of all.
    let mut head = [1; 9];
    match begun.read_exact(&mut head) {
        Ok(()) if head == [0; 9] && is_zero_from(&mut begun, HEAD_BYTES)? => begun.set_len(0),
        _ => Ok(()),
    }
}

/// A page of the library, in which its head is; what lies behind is written with the first change.
const HEAD_BYTES: u64 = 4096;

fn is_zero_from(file: &mut File, at: u64) -> io::Result<bool> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = vec![0; 1 << 16];
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(true),
            n if bytes[..n].iter().any(|byte| *byte != 0) => return Ok(false),
            _ => {}
        }
    }
}

/// A database that goes on after an error of its disk. The library refuses every use of a database after such an error,
/// until it is opened again.
pub struct ReopeningDatabase {
    file: PathBuf,
    open: Box<dyn Fn() -> Result<OpenDatabase, redb::DatabaseError> + Send + Sync>,
    /// `None` where it could not be opened again.
    db: RwLock<Option<OpenDatabase>>,
}

impl ReopeningDatabase {
    /// The database in a file, as [`open_checked`] opens it.
    pub fn of_file(file: PathBuf) -> Result<Self, DatabaseError> {
        let first = open_checked(&file).map_err(|e| DatabaseError::of(&file, e))?;
        let open = {
            let file = file.clone();
            move || open(&file)
        };
        Ok(Self { file, open: Box::new(open), db: RwLock::new(Some(first)) })
    }

    /// One that is opened so, and called so in errors.
    pub fn new(
        file: PathBuf,
        open: impl Fn() -> Result<OpenDatabase, redb::DatabaseError> + Send + Sync + 'static,
    ) -> Result<Self, DatabaseError> {
        let first = open().map_err(|e| DatabaseError::of(&file, e))?;
        Ok(Self { file, open: Box::new(open), db: RwLock::new(Some(first)) })
    }

    /// Path of the file that the database is kept in.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Nothing can be changed.
    pub fn is_read_only(&self) -> bool {
        self.db.read().as_ref().is_some_and(OpenDatabase::is_read_only)
    }

    /// Looks at what is there now.
    pub fn read<T>(&self, look: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>) -> Result<T, DatabaseError> {
        let db = self.db.read();
        let db = db.as_ref().ok_or_else(|| DatabaseError::failed(&self.file, "it could not be opened again"))?;
        db.begin_read()
            .map_err(redb::Error::from)
            .and_then(|txn| look(&txn))
            .map_err(|e| DatabaseError::of(&self.file, e))
    }

    /// Makes a change, which is on the disk when this returns, or is not made. After an error the database is opened
    /// again at once, so that no other process takes the file meanwhile; what stands in the way is the next change's to
    /// report.
    pub fn write(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), DatabaseError> {
        if self.db.read().is_none() {
            let opened = (self.open)().map_err(|e| DatabaseError::of(&self.file, e))?;
            *self.db.write() = Some(opened);
        }
        let written = self.db.read().as_ref().map_or(Ok(()), |db| committed(db, change));
        if written.is_err() {
            let mut db = self.db.write();
            // Two cannot have the file open at once.
            drop(db.take());
            *db = (self.open)().ok();
        }
        written.map_err(|e| DatabaseError::of(&self.file, e))
    }
}

fn committed(
    db: &OpenDatabase,
    change: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
) -> Result<(), redb::Error> {
    let txn = db.begin_write()?;
    change(&txn)?;
    Ok(txn.commit()?)
}

/// A database could not be read or written. A write that ends so is not there.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The database, its file or its contents.
    #[error("{file}: {why}", file = file.display())]
    Failed {
        /// Path of the file that the database is kept in.
        file: PathBuf,
        /// What the system or the database said.
        why: String,
    },
    /// The file can only be read.
    #[error("{file}: it can only be read here", file = file.display())]
    ReadOnly {
        /// Path of the file that the database is kept in.
        file: PathBuf,
    },
    /// The disk is full, or the file as large as the process may make it.
    #[error("{file}: no room: {why}", file = file.display())]
    NoRoom {
        /// Path of the file that the database is kept in.
        file: PathBuf,
        /// What the system or the database said.
        why: String,
    },
}

impl DatabaseError {
    /// The database's own error.
    pub fn of(file: &Path, error: impl Into<redb::Error>) -> Self {
        match error.into() {
            redb::Error::Io(e) if is_read_only(&e) => Self::ReadOnly { file: file.to_owned() },
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

/// A disk of a test's own: it can be full, and what is on it can be looked at.
#[cfg(test)]
pub(crate) mod disk {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[derive(Clone, Debug, Default)]
    pub(crate) struct Disk {
        bytes: Arc<Mutex<Vec<u8>>>,
        full: Arc<AtomicBool>,
        /// Writes until the process that uses it is gone; it never is where there is no number.
        left: Arc<Mutex<Option<usize>>>,
    }

    impl Disk {
        /// From now on nothing can be written but the head, which has its place already; or everything can.
        pub(crate) fn set_full(&self, full: bool) {
            self.full.store(full, Ordering::SeqCst);
        }

        /// After so many writes nothing more comes to it, as when a process is killed.
        pub(crate) fn end_after(&self, writes: usize) {
            *self.left.lock() = Some(writes);
        }

        /// A disk with what would be there after a crash now.
        pub(crate) fn after_a_crash(&self) -> Self {
            let bytes = Arc::new(Mutex::new(self.bytes.lock().clone()));
            Self { bytes, full: Arc::default(), left: Arc::default() }
        }

        pub(crate) fn database(&self) -> ReopeningDatabase {
            let disk = self.clone();
            let open = move || Builder::new().create_with_backend(disk.clone()).map(OpenDatabase::ToChange);
            ReopeningDatabase::new("disk.redb".into(), open).unwrap()
        }

        fn check_room(&self, end: u64) -> io::Result<()> {
            match &mut *self.left.lock() {
                Some(0) => return Err(io::ErrorKind::BrokenPipe.into()),
                Some(left) => *left -= 1,
                None => {}
            }
            let has_room = end <= HEAD_BYTES || !self.full.load(Ordering::SeqCst);
            if has_room { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
        }
    }

    impl redb::StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.lock().len() as u64)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            out.copy_from_slice(&self.bytes.lock()[offset as usize..][..out.len()]);
            Ok(())
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.check_room(len)?;
            self.bytes.lock().resize(len as usize, 0);
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.check_room(offset + data.len() as u64)?;
            self.bytes.lock()[offset as usize..][..data.len()].copy_from_slice(data);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::TableDefinition;

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
    fn a_database_that_has_lost_its_first_bytes_is_refused_and_keeps_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.redb");
        made(&path);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[..4096].fill(0);
        std::fs::write(&path, &bytes).unwrap();
        assert!(open(&path).is_err() && open_checked(&path).is_err());
        assert!(std::fs::read(&path).unwrap() == bytes, "the file was changed");
    }

    #[test]
    fn what_was_written_is_there_when_it_is_opened_again_and_while_it_is_open_nobody_else_opens_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.redb");
        let db = open(&path).unwrap();
        let txn = db.begin_write().unwrap();
        txn.open_table(NUMBERS).unwrap().insert(1, 2).unwrap();
        txn.commit().unwrap();
        let held = open_at_once(&path, &Builder::new());
        assert!(matches!(held, Err(redb::DatabaseError::DatabaseAlreadyOpen)));
        let end = std::thread::spawn(move || {
            std::thread::sleep(20 * TRY_EVERY);
            drop(db);
        });
        let db = open(&path).expect("who holds it lets it go before patience ends");
        end.join().unwrap();
        let read = db.begin_read().unwrap();
        assert_eq!(read.open_table(NUMBERS).unwrap().get(1).unwrap().unwrap().value(), 2);
    }

    /// A database of one table in which 1 is 2.
    fn made(path: &Path) {
        let db = open(path).unwrap();
        let txn = db.begin_write().unwrap();
        txn.open_table(NUMBERS).unwrap().insert(1, 2).unwrap();
        txn.commit().unwrap();
    }

    #[test]
    fn a_file_that_can_only_be_read_is_read_and_a_write_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.redb");
        made(&path);
        // Said here, since whoever runs this may be one whom no mode keeps from writing.
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem] {
            let db = open_as(&path, Err(kind.into()), &Builder::new()).unwrap();
            let number = db.begin_read().unwrap().open_table(NUMBERS).unwrap().get(1).unwrap().unwrap().value();
            assert_eq!((number, db.is_read_only()), (2, true));
            let error = DatabaseError::of(&path, db.begin_write().err().unwrap());
            assert!(matches!(error, DatabaseError::ReadOnly { .. }), "{error}");
        }
        let other = open_as(&path, Err(io::ErrorKind::StorageFull.into()), &Builder::new());
        assert!(other.is_err(), "what else is wrong is told");
    }

    #[test]
    #[cfg(unix)]
    fn a_new_one_is_its_owner_s_alone_and_what_is_no_file_is_refused_by_its_kind() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.redb");
        made(&path);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let fifo = dir.path().join("fifo.redb");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let link = dir.path().join("loop.redb");
        std::os::unix::fs::symlink(&link, &link).unwrap();
        for (path, what) in [(fifo.as_path(), "got a FIFO"), (dir.path(), "got a directory"), (&link, "loop.redb: ")] {
            let error = DatabaseError::of(path, open(path).err().unwrap()).to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn damage_anywhere_is_an_error_or_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (path, damaged) = (dir.path().join("a.redb"), dir.path().join("b.redb"));
        made(&path);
        let whole = std::fs::read(&path).unwrap();
        // Where it is all zeros there is nothing yet.
        let places: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
        for at in places.iter().step_by(places.len().div_ceil(300)) {
            for bit in [0x01, 0x80] {
                let mut bytes = whole.clone();
                bytes[*at] ^= bit;
                std::fs::write(&damaged, &bytes).unwrap();
                let read = || -> Result<Option<u64>, redb::Error> {
                    let txn = open_checked(&damaged)?.begin_read()?;
                    Ok(txn.open_table(NUMBERS)?.get(1)?.map(|number| number.value()))
                };
                assert!(matches!(read(), Err(_) | Ok(None | Some(2))), "byte {at} of {}", whole.len());
            }
        }
        for len in [0, 9, 100, 4096, whole.len() - 1] {
            std::fs::write(&damaged, &whole[..len]).unwrap();
            let _an_error_or_empty = open_checked(&damaged).map(drop);
        }
    }

    #[test]
    fn after_a_full_disk_a_database_is_read_and_takes_changes_again_without_being_made_anew() {
        let disk = disk::Disk::default();
        let db = disk.database();
        let put = |n: u64| {
            db.write(|txn| {
                txn.open_table(NUMBERS)?.insert(n, n)?;
                Ok(())
            })
        };
        let has = |n: u64| db.read(|txn| Ok(txn.open_table(NUMBERS)?.get(n)?.is_some())).unwrap();
        put(1).unwrap();
        disk.set_full(true);
        for _ in 0..2 {
            assert!(matches!(put(2), Err(DatabaseError::NoRoom { .. })));
        }
        disk.set_full(false);
        put(3).unwrap();
        assert_eq!([1, 2, 3].map(has), [true, false, true]);
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

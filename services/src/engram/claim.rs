//! One service at a time has a directory of tables: what two would teach and publish there would be lost in turn.

use chimere_engine::files::open_regular_to_change;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Name of the file that says so by its lock. It stays when a service ends; the lock does not.
const FILE: &str = "service.lock";
/// How long the service before this one may still be about to end.
const PATIENCE: Duration = Duration::from_secs(5);
const TRY_EVERY: Duration = Duration::from_millis(10);

/// A directory that is this process' own as long as this value lives.
#[derive(Debug)]
pub struct DirectoryClaim {
    /// `None` where nothing can be written, and so nobody writes.
    _locked: Option<File>,
}

impl DirectoryClaim {
    /// Claims a directory, or says who is in the way.
    pub fn take(directory: &Path) -> Result<Self, String> {
        Self::take_within(directory, PATIENCE)
    }

    fn take_within(directory: &Path, patience: Duration) -> Result<Self, String> {
        let path = directory.join(FILE);
        let failed = |e: io::Error| format!("{}: {e}", path.display());
        let file = match open_regular_to_change(&path) {
            Err(e) if matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
                return Ok(Self { _locked: None });
            }
            opened => opened.map_err(failed)?,
        };
        let end = Instant::now() + patience;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _locked: Some(file) }),
                Err(TryLockError::WouldBlock) if Instant::now() < end => std::thread::sleep(TRY_EVERY),
                Err(TryLockError::WouldBlock) => {
                    let directory = directory.display();
                    return Err(format!("{directory} is another service's: it holds the lock of {FILE} there"));
                }
                Err(TryLockError::Error(e)) => return Err(failed(e)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_one_service_s_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirectoryClaim::take(dir.path()).unwrap();
        let error = DirectoryClaim::take_within(dir.path(), Duration::ZERO).unwrap_err();
        assert!(error.starts_with(dir.path().to_str().unwrap()) && error.contains("another service"), "{error}");
        drop(first);
        assert!(DirectoryClaim::take(dir.path()).is_ok());
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = DirectoryClaim::take(&dir.path().join("none")).unwrap_err();
        assert!(error.contains("none/service.lock: "), "{error}");
    }
}

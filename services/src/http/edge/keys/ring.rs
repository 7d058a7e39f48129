//! The keys that hold now. Their file is read again when it changed and when somebody asks; a file with a mistake
//! changes nothing, and whoever reads the log hears of it.

use super::auth::AcceptedKeys;
use chimere_engine::engram::Latest;
use chimere_engine::files::Stamp;
use chimere_engine::scheduler::KeyLimits;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;

/// Keys that can be replaced while the service runs.
#[derive(Debug)]
pub struct KeyFile {
    live: Latest<AcceptedKeys>,
    file: Option<WatchedKeyFile>,
}

#[derive(Debug)]
struct WatchedKeyFile {
    path: PathBuf,
    limits: KeyLimits,
    /// What the file was when it was last looked at, read or not: a mistake is told once.
    seen: Mutex<Option<Stamp>>,
}

impl From<AcceptedKeys> for KeyFile {
    /// Keys that stay as they are.
    fn from(keys: AcceptedKeys) -> Self {
        Self { live: Latest::new(keys), file: None }
    }
}

impl KeyFile {
    /// Those of a file; `limits` hold for keys whose line says nothing else.
    pub fn of_file(path: PathBuf, limits: KeyLimits) -> Result<Self, String> {
        // Before it is read: what changes meanwhile is seen at the next look.
        let seen = Mutex::new(Stamp::at(&path));
        let keys = AcceptedKeys::read_with(&path, limits)?;
        Ok(Self { live: Latest::new(keys), file: Some(WatchedKeyFile { path, limits, seen }) })
    }

    /// These keys on a service that other machines can reach: without keys nobody is an administrator there.
    pub fn beyond_loopback(self) -> Self {
        let keys = (*self.keys()).clone();
        self.live.replace(keys.beyond_loopback());
        self
    }

    /// The keys of now.
    pub fn keys(&self) -> Arc<AcceptedKeys> {
        self.live.snapshot()
    }

    /// Reads the file again if it changed, or in any case. How many keys there are now, if it was read.
    pub fn reload(&self, in_any_case: bool) -> Result<Option<usize>, String> {
        let Some(file) = &self.file else { return Ok(None) };
        let now = Stamp::at(&file.path);
        let before = std::mem::replace(&mut *file.seen.lock(), now);
        if before == now && !in_any_case {
            return Ok(None);
        }
        let keys = AcceptedKeys::read_with(&file.path, file.limits)?;
        let count = keys.len();
        self.live.replace(keys);
        Ok(Some(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::edge::keys::auth::{hashed, write_key_file};

    #[test]
    fn a_file_that_changed_is_read_and_one_with_a_mistake_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        write_key_file(&path, &format!("{}\n", hashed("one")));
        let ring = KeyFile::of_file(path.clone(), KeyLimits::default()).unwrap();
        assert_eq!(ring.reload(false), Ok(None));
        assert_eq!(ring.reload(true), Ok(Some(1)));
        write_key_file(&path, &format!("{}\n{}\n", hashed("one"), hashed("two")));
        assert_eq!(ring.reload(false), Ok(Some(2)));
        write_key_file(&path, "sk\n");
        assert!(ring.reload(false).unwrap_err().contains("line 1"));
        assert_eq!((ring.reload(false), ring.keys().len()), (Ok(None), 2), "told once, and the keys of before hold");
        let mode = |mode| std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        write_key_file(&path, &format!("{}\n", hashed("two")));
        mode(0o644);
        assert!(ring.reload(false).is_err(), "others could read it");
        mode(0o600);
        assert_eq!(ring.reload(false), Ok(Some(1)), "its mode was mended");
        write_key_file(&path, &format!("{}\n{}\n", hashed("one"), hashed("two")));
        assert_eq!(ring.reload(false), Ok(Some(2)));
        std::fs::remove_file(&path).unwrap();
        assert!(ring.reload(false).is_err());
        assert_eq!(ring.keys().len(), 2, "a file that is away locks nobody out");
        assert_eq!(KeyFile::from(AcceptedKeys::Open).reload(true), Ok(None));
    }
}

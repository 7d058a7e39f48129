//! What a file of the operator's says, read again when the file changes; one with a mistake changes nothing.

use chimere_engine::files::Stamp;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file, and the value that it had when it was read without a mistake.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    path: PathBuf,
    state: Mutex<WatchedState<T>>,
}

#[derive(Debug)]
struct WatchedState<T> {
    /// What the file was when it was last looked at, read or not: a mistake is told once.
    seen: Option<Stamp>,
    value: Arc<T>,
}

impl<T> Watched<T> {
    /// A file as it is now.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn open(path: PathBuf, read: impl FnOnce(&Path) -> Result<T, String>) -> Result<Self, String> {
        // Before it is read: what changes meanwhile is seen at the next look.
        let seen = Stamp::at(&path);
        let value = Arc::new(read(&path)?);
        Ok(Self { path, state: Mutex::new(WatchedState { seen, value }) })
    }

    /// What it says now: if it changed, what `read` makes of it and of the value before, whose mistakes are `told`.
    pub(crate) fn now(&self, read: impl FnOnce(&Path, &T) -> Result<T, String>, told: impl FnOnce(String)) -> Arc<T> {
        let mut state = self.state.lock();
        let now = Stamp::at(&self.path);
        if now != state.seen {
            state.seen = now;
            match read(&self.path, &state.value) {
                Ok(value) => state.value = Arc::new(value),
                Err(error) => told(error),
            }
        }
        state.value.clone()
    }

    /// The place where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_read_once_and_a_mistake_is_told_once_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let write = |text: &str| {
            std::fs::remove_file(&path).ok();
            std::fs::write(&path, text).unwrap();
        };
        let read = |path: &Path| std::fs::read_to_string(path).unwrap().parse::<u32>().map_err(|e| e.to_string());
        write("1");
        let (file, mut told) = (Watched::open(path.clone(), read).unwrap(), 0);
        let mut look = || *file.now(|path, before| read(path).map(|now| before * 10 + now), |_| told += 1);
        assert_eq!((look(), look()), (1, 1));
        write("2");
        assert_eq!((look(), look()), (12, 12));
        write("two");
        assert_eq!((look(), look()), (12, 12));
        assert_eq!(told, 1);
    }
}

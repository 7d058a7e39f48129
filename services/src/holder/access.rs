//! The file `access.toml`, in which an operator says who may use what lies beside it. It is read again when it changes;
//! one with a mistake changes nothing.

use chimere_engine::files::{Stamp, read_regular_text};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file.
pub(crate) const ACCESS_FILE: &str = "access.toml";
/// Bytes of the file.
pub(crate) const ACCESS_FILE_BYTES_MAX: u64 = 16 << 20;

/// What the file of a directory says, as one of its readers takes it.
#[derive(Debug)]
pub(crate) struct AccessFile<T> {
    path: PathBuf,
    parse: fn(&str) -> Result<T, String>,
    state: Mutex<AccessState<T>>,
}

#[derive(Debug)]
struct AccessState<T> {
    /// What the file was when it was last looked at, read or not: a mistake is told once.
    seen: Option<Stamp>,
    said: Arc<T>,
}

impl<T: Default> AccessFile<T> {
    /// That of a directory; without one nothing is said.
    ///
    /// # Errors
    /// If the file has a mistake, with its place.
    pub(crate) fn open(directory: &Path, parse: fn(&str) -> Result<T, String>) -> Result<Self, String> {
        let path = directory.join(ACCESS_FILE);
        // Before it is read: what changes meanwhile is seen at the next look.
        let seen = Stamp::at(&path);
        let said = Arc::new(read(&path, parse)?);
        Ok(Self { path, parse, state: Mutex::new(AccessState { seen, said }) })
    }

    /// What it says now.
    pub(crate) fn now(&self) -> Arc<T> {
        let mut state = self.state.lock();
        let now = Stamp::at(&self.path);
        if now != state.seen {
            state.seen = now;
            match read(&self.path, self.parse) {
                Ok(said) => state.said = Arc::new(said),
                Err(error) => tracing::error!(error, "who may use what stays as it was"),
            }
        }
        state.said.clone()
    }
}

fn read<T: Default>(path: &Path, parse: fn(&str) -> Result<T, String>) -> Result<T, String> {
    match read_regular_text(path, ACCESS_FILE_BYTES_MAX) {
        Ok(text) => parse(&text).map_err(|e| format!("{}: {e}", path.display())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(T::default()),
        Err(e) => Err(format!("{}: {e}", path.display())),
    }
}

/// What the file says, of the form that a reader wants.
pub(crate) fn parsed<R: serde::de::DeserializeOwned>(text: &str) -> Result<R, String> {
    toml::from_str(text).map_err(|e| e.to_string().trim().replace('\n', " "))
}

//! The file `access.toml`, in which an operator says who may use what lies beside it. It is read again when it changes;
//! one with a mistake changes nothing.

use super::watched::Watched;
use chimere_engine::files::read_regular_text;
use std::path::Path;
use std::sync::Arc;

/// Name of the file.
pub(crate) const ACCESS_FILE: &str = "access.toml";
/// Bytes of the file.
pub(crate) const ACCESS_FILE_BYTES_MAX: u64 = 16 << 20;

/// What the file of a directory says, as one of its readers takes it.
#[derive(Debug)]
pub(crate) struct AccessFile<T> {
    parse: fn(&str) -> Result<T, String>,
    file: Watched<T>,
}

impl<T: Default> AccessFile<T> {
    /// That of a directory; without one nothing is said.
    ///
    /// # Errors
    /// If the file has a mistake, with its place.
    pub(crate) fn open(directory: &Path, parse: fn(&str) -> Result<T, String>) -> Result<Self, String> {
        let file = Watched::open(directory.join(ACCESS_FILE), |path| read(path, parse))?;
        Ok(Self { parse, file })
    }

    /// What it says now.
    pub(crate) fn now(&self) -> Arc<T> {
        let told = |error| tracing::error!(error, "who may use what stays as it was");
        self.file.now(|path, _| read(path, self.parse), told)
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

//! The file that the served version of a table is: always made from the database, so that a service which was cut short
//! between the two makes it again when it starts.

use super::kept::{VersionError, Versions, hash};
use crate::engram::{TableName, Tables, TablesError};
use std::io;

/// Why the served version cannot be offered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ServedError {
    /// The version cannot be read.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// The file cannot be written, or is no table.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// Somebody else made the file that is there.
    #[error("{0}: it is no version of what was learned, so it stays as it is: move it, or set another learning.table")]
    Foreign(String),
}

/// Looks whether the file of a table may be replaced: there is none, or it is a version of what was learned.
///
/// # Errors
/// If it is somebody else's, or cannot be read.
pub fn check_own_file(versions: Versions<'_>, tables: &Tables, name: &TableName) -> Result<(), ServedError> {
    let path = tables.file_of(name);
    match file(tables, name)? {
        Some(there) if !is_ours(versions, name, &there) => Err(ServedError::Foreign(path.display().to_string())),
        _ => Ok(()),
    }
}

/// Makes the file of a table what the database says is served to a model, and offers it. A file that was not learned
/// stays as it is, and is an error where another one is to be served.
///
/// # Errors
/// If the database cannot be read, the file is somebody else's, or it cannot be written.
pub fn publish_served(
    versions: Versions<'_>,
    tables: &Tables,
    name: &TableName,
    base: &str,
) -> Result<(), ServedError> {
    let served = versions.served(name.as_str(), base)?;
    let there = file(tables, name)?;
    let bytes = served.as_ref().map(|(_, bytes)| bytes.as_slice());
    if there.as_deref() == bytes {
        return Ok(());
    }
    if there.is_some_and(|there| !is_ours(versions, name, &there)) {
        return match bytes {
            Some(_) => Err(ServedError::Foreign(tables.file_of(name).display().to_string())),
            None => Ok(()),
        };
    }
    Ok(tables.place(name, bytes)?)
}

fn file(tables: &Tables, name: &TableName) -> Result<Option<Vec<u8>>, ServedError> {
    let path = tables.file_of(name);
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(TablesError(format!("{}: {e}", path.display())).into()),
    }
}

/// Whether a file is one of the versions that are known.
fn is_ours(versions: Versions<'_>, name: &TableName, bytes: &[u8]) -> bool {
    let hash = hash(bytes);
    let lineage = versions.lineage(name.as_str());
    lineage.is_ok_and(|lineage| lineage.versions().iter().any(|version| version.sha256 == hash))
}

//! Files of accounts: their bytes are kept once, by their hash, and are on the disk before a file is acknowledged.

use super::error::DocumentError;
use super::library::{Library, new_id, own};
use super::members::{FileInfo, FilePurpose};
use super::outline::{private, publish, remove_file};
use super::tables;
use crate::limits::{DOCUMENT_FILES_MAX, DOCUMENT_NAME_CHARS_MAX};
use crate::printable::is_direction;
use chimere_engine::files::open_regular;
use chimere_engine::ids::KeyId;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// A file that is arriving; dropped before it is kept, it is gone.
pub struct Upload {
    library: Arc<Library>,
    owner: KeyId,
    path: PathBuf,
    file: File,
    hash: Sha256,
    bytes: u64,
    /// Bytes that the account had when it began.
    had: u64,
}

impl Upload {
    /// Bytes that came. They are refused as soon as they are too many.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), DocumentError> {
        let settings = &self.library.settings;
        self.bytes += bytes.len() as u64;
        if self.bytes > settings.file_bytes_max {
            return Err(DocumentError::FileTooLarge { max: settings.file_bytes_max });
        }
        check_account(self.had, self.bytes, settings.account_bytes_max)?;
        self.hash.update(bytes);
        self.file.write_all(bytes).map_err(|e| self.library.broke(&self.path, e))
    }

    /// Keeps the file under this name, which is a label and no path.
    pub fn keep(mut self, filename: &str, purpose: FilePurpose, now: u64) -> Result<Arc<FileInfo>, DocumentError> {
        let library = self.library.clone();
        let sha256 = std::mem::take(&mut self.hash).finalize();
        let sha256: String = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
        // The long wait, while others may change what they like.
        self.file.sync_all().map_err(|e| library.broke(&self.path, e))?;
        let mut changing = library.changing();
        let own = own(&library.files.read(), self.owner);
        let had = own.iter().map(|file| file.bytes).sum();
        check_account(had, self.bytes, library.settings.account_bytes_max)?;
        if own.len() >= DOCUMENT_FILES_MAX {
            let (got, more, max) = (own.len(), 1, DOCUMENT_FILES_MAX);
            return Err(DocumentError::TooMany { what: "files of this key", got, more, max });
        }
        let path = library.bytes_path(&sha256);
        if !path.exists() {
            publish(&self.path, &path).map_err(|e| library.broke(&path, e))?;
        }
        let file = FileInfo {
            id: new_id("file-"),
            number: changing.next_number(),
            created: now,
            filename: label(filename),
            purpose,
            bytes: self.bytes,
            sha256,
        };
        if let Err(error) = changing.write(|txn| tables::put_file(txn, self.owner, &file)) {
            library.forget_bytes(&file.sha256);
            return Err(error);
        }
        let file = Arc::new(file);
        library.files.write().insert((self.owner, file.id.clone()), file.clone());
        Ok(file)
    }
}

impl Drop for Upload {
    /// Kept, it has another name.
    fn drop(&mut self) {
        remove_file(&self.path);
    }
}

fn check_account(got: u64, more: u64, max: u64) -> Result<(), DocumentError> {
    if got + more > max { Err(DocumentError::AccountFull { got, more, max }) } else { Ok(()) }
}

/// The name under which a file is kept: without what would change how a line of a terminal or a log reads, and not too
/// long.
pub fn label(name: &str) -> String {
    let plain = name.chars().map(|c| if c.is_control() || is_direction(c) { '\u{fffd}' } else { c });
    let name: String = plain.take(DOCUMENT_NAME_CHARS_MAX).collect();
    if name.trim().is_empty() { "unnamed".into() } else { name }
}

impl Library {
    /// A file that is about to arrive.
    pub(super) fn upload(self: &Arc<Self>, owner: KeyId) -> Result<Upload, DocumentError> {
        let path = self.arriving_path();
        let file = private(&path).map_err(|e| self.broke(&path, e))?;
        let had = own(&self.files.read(), owner).iter().map(|file| file.bytes).sum();
        Ok(Upload { library: self.clone(), owner, path, file, hash: Sha256::new(), bytes: 0, had })
    }

    /// An account's files, oldest first.
    pub(super) fn list_files(&self, owner: KeyId) -> Vec<Arc<FileInfo>> {
        let mut files = own(&self.files.read(), owner);
        files.sort_by_key(|file| file.number);
        files
    }

    /// A file's bytes as they came.
    pub(super) fn content(&self, owner: KeyId, id: &str) -> Result<(Arc<FileInfo>, File), DocumentError> {
        let file = self.file(owner, id)?;
        let path = self.bytes_path(&file.sha256);
        let bytes = open_regular(&path).map_err(|e| match e.kind() {
            // Removed between the two.
            io::ErrorKind::NotFound => DocumentError::UnknownFile(id.to_owned()),
            _ => self.broke(&path, e),
        })?;
        Ok((file, bytes))
    }

    /// Removes a file with its bytes, its text, and its passages in all stores.
    pub(super) fn remove_file(&self, owner: KeyId, id: &str) -> Result<(), DocumentError> {
        let changing = self.changing();
        let file = self.file(owner, id)?;
        let stores = own(&self.stores.read(), owner);
        let with: Vec<_> = stores.into_iter().filter(|store| store.state.read().members.contains_key(id)).collect();
        changing.write(|txn| {
            with.iter().try_for_each(|store| tables::remove_member(txn, store.key(), id))?;
            tables::remove_file(txn, owner, id)
        })?;
        self.files.write().remove(&(owner, id.to_owned()));
        with.iter().for_each(|store| self.forget_member(store, id));
        self.forget_bytes(&file.sha256);
        Ok(())
    }

    /// Removes bytes and text that no file has any more. For who is changing something.
    pub(super) fn forget_bytes(&self, sha256: &str) {
        if self.files.read().values().all(|file| file.sha256 != sha256) {
            remove_file(&self.bytes_path(sha256));
            self.texts.remove(sha256);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_label_whatever_stands_in_it() {
        assert_eq!(label("../../etc/passwd"), "../../etc/passwd");
        assert_eq!(label("a\nb\u{1b}[2J\u{202e}c"), "a\u{fffd}b\u{fffd}[2J\u{fffd}c");
        assert_eq!((label(""), label(&"ä".repeat(999)).chars().count()), ("unnamed".into(), DOCUMENT_NAME_CHARS_MAX));
    }
}

//! The section `documents`.

use super::check::{InvalidKey, seconds, within};
use crate::limits;
use serde::{Deserialize, Serialize};

/// Files that accounts upload, and how they are read and cut to be searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DocumentKeys {
    /// Directory of files, their texts and their database; empty takes no files.
    pub directory: String,
    /// Mebibytes of one file.
    pub files_mib: u64,
    /// Mebibytes of all files of one key.
    pub key_mib: u64,
    /// Seconds that reading one file may take.
    pub parse_seconds: u64,
    /// Mebibytes of memory that reading one file may take.
    pub parse_mib: u64,
    /// Tokens of a passage.
    pub chunk_tokens: u32,
}

impl Default for DocumentKeys {
    fn default() -> Self {
        Self {
            directory: String::new(),
            files_mib: limits::DOCUMENT_FILE_MIB,
            key_mib: limits::DOCUMENT_KEY_MIB,
            parse_seconds: limits::DOCUMENT_PARSE_SECONDS,
            parse_mib: limits::DOCUMENT_PARSE_MIB,
            chunk_tokens: limits::CHUNK_TOKENS,
        }
    }
}

impl DocumentKeys {
    pub(super) fn check(&self) -> Result<(), InvalidKey> {
        within("files_mib", self.files_mib, 1..=limits::DOCUMENT_MIB_MAX)?;
        within("key_mib", self.key_mib, 1..=limits::DOCUMENT_MIB_MAX)?;
        seconds("parse_seconds", self.parse_seconds)?;
        within("parse_mib", self.parse_mib, limits::DOCUMENT_PARSE_MIB_MIN..=limits::DOCUMENT_MIB_MAX)?;
        within("chunk_tokens", self.chunk_tokens, limits::CHUNK_TOKENS_RANGE)
    }
}

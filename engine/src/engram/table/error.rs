//! What can be wrong with a table file, said so that its owner can tell which file and which part of it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A table file that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", file.display())]
pub struct TableError {
    /// Path of the table's file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub problem: TableProblem,
}

/// What is wrong with a table file.
#[derive(Debug, thiserror::Error)]
pub enum TableProblem {
    /// The system did not let it be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file was written to while it was read.
    #[error("the file was changed while it was read; put a new one in its place by renaming it")]
    Changed,
    /// Something other than a table.
    #[error("not an engram table: wanted the magic 0x454e4752 in the first 4 bytes, got {0:#010x}")]
    Magic(u32),
    /// Written by a program that this one does not know, or by the first Chimère where its format was not asked for.
    #[error("format version: wanted {want}, got {got}")]
    Version {
        /// What is read here.
        want: &'static str,
        /// What the file is.
        got: u32,
    },
    /// Cut, altered, or put together wrongly.
    #[error("{part}: wanted {want}, got {got}")]
    Damaged {
        /// Which part of the file.
        part: String,
        /// What it should say.
        want: String,
        /// What the file has there.
        got: String,
    },
    /// Made for other token ids.
    #[error("made for another tokenizer: wanted {want}, got {got}")]
    Tokenizer {
        /// Hash of the model's tokenizer.
        want: String,
        /// Hash in the file.
        got: String,
    },
}

impl TableProblem {
    /// Makes a [`TableProblem::Damaged`] of what can be printed.
    pub(super) fn damaged(part: impl fmt::Display, want: impl fmt::Display, got: impl fmt::Display) -> Self {
        Self::Damaged { part: part.to_string(), want: want.to_string(), got: got.to_string() }
    }

    /// Adds the file in which the problem was found.
    pub fn in_file(self, file: &Path) -> TableError {
        TableError { file: file.to_owned(), problem: self }
    }
}

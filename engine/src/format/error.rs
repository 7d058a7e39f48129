//! What can be wrong with a model file, said so that its owner can tell which file, key or tensor to look at.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A model file that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", file.display())]
pub struct LoadError {
    /// The file, or the directory.
    pub file: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The system did not let it be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file was cut or written to after it was opened.
    #[error("the file was changed while it was read; put a new one in its place by renaming it")]
    Changed,
    /// Something other than a GGUF file.
    #[error("not a GGUF file: wanted the magic `GGUF`, got `{}`", .0.escape_ascii())]
    Magic(Vec<u8>),
    /// The file ends early, or a length points past its end.
    #[error("{part} at byte {at}: wanted {want} bytes, {have} are left in the file")]
    Truncated {
        /// What was being read.
        part: String,
        /// The byte at which the part starts.
        at: u64,
        /// Its length, as the file says.
        want: u64,
        /// Bytes from there to the end.
        have: u64,
    },
    /// A number of the container itself is impossible.
    #[error("{part}: wanted {want}, got {got}")]
    Container {
        /// The number that does not fit.
        part: String,
        /// What it may be.
        want: String,
        /// What it is in the file.
        got: String,
    },
    /// A metadata key is missing or its value cannot be used.
    #[error("key `{key}`: wanted {want}, got {got}")]
    Key {
        /// The key of the metadata.
        key: String,
        /// What it may be.
        want: String,
        /// What its value is.
        got: String,
    },
    /// A tensor is missing, or its shape, encoding or place cannot be used.
    #[error("tensor `{name}`: wanted {want}, got {got}")]
    Tensor {
        /// Name of the tensor, as the file has it.
        name: String,
        /// What it may be.
        want: String,
        /// What the tensor is.
        got: String,
    },
}

/// Weights that no answer can be made of, found while they are packed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tensor `{tensor}`: wanted finite numbers, got a NaN or an infinity in row {row}")]
pub struct NotFinite {
    /// Name of the tensor, as the file has it.
    pub tensor: String,
    /// The row, counted over all matrices of the tensor.
    pub row: usize,
}

impl Problem {
    /// Makes a [`Problem::Container`] of what was wanted and what came.
    pub fn container(part: impl fmt::Display, want: impl fmt::Display, got: impl fmt::Display) -> Self {
        Self::Container { part: part.to_string(), want: want.to_string(), got: got.to_string() }
    }

    /// Makes a [`Problem::Key`] of what was wanted and what came.
    pub fn key(key: impl Into<String>, want: impl fmt::Display, got: impl fmt::Display) -> Self {
        Self::Key { key: key.into(), want: want.to_string(), got: got.to_string() }
    }

    /// Makes a [`Problem::Tensor`] of what was wanted and what came.
    pub fn tensor(name: impl Into<String>, want: impl fmt::Display, got: impl fmt::Display) -> Self {
        Self::Tensor { name: name.into(), want: want.to_string(), got: got.to_string() }
    }

    /// This problem as an error of the file in which it was found.
    pub fn in_file(self, file: &Path) -> LoadError {
        LoadError { file: file.to_owned(), problem: self }
    }
}

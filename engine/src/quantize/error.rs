//! Why a file could not be quantised.

use crate::format::{LoadError, Problem};
use std::io;
use std::path::PathBuf;

/// What stops a quantiser.
#[derive(Debug, thiserror::Error)]
pub enum QuantizeError {
    /// A weight is NaN or infinite.
    #[error("tensor `{tensor}`: wanted finite weights, got {value} in row {row}, column {column}")]
    NotFinite {
        /// Name of the tensor, as the file has it.
        tensor: String,
        /// Row, counted over all matrices of a stack.
        row: usize,
        /// Place in the row.
        column: usize,
        /// The weight that is no finite number.
        value: f32,
    },
    /// The disk is too full.
    #[error("{}: wanted {need} bytes of room, the disk has {have}", path.display())]
    NoRoom {
        /// The file that was to be written.
        path: PathBuf,
        /// Size of the file in bytes.
        need: u64,
        /// What is left for it.
        have: u64,
    },
    /// What is to be written would take the place of what is read.
    #[error("{}: the output is the source", .0.display())]
    SameFile(PathBuf),
    /// The file could not be written.
    #[error("{}: {error}", path.display())]
    Io {
        /// Path of the file that could not be written.
        path: PathBuf,
        /// Why the system refused.
        error: io::Error,
    },
    /// The source could not be read, or was changed meanwhile.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The device that encodes failed.
    #[error("encoding on the device: {0}")]
    Device(String),
    /// Something in the source that cannot be passed on.
    #[error("{0}")]
    Source(#[from] Problem),
}

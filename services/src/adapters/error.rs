//! Why an adapter is not loaded.

use crate::limits::{ADAPTERS_MAX, SERVED_NAME_BYTES_MAX};
use crate::names::NameOwner;

/// Why an adapter is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// No directory is named in the configuration.
    #[error("there is no directory for adapters: set adapters.directory")]
    NoDirectory,
    /// A name that no adapter can have.
    #[error(
        "an adapter's name has 1 to {SERVED_NAME_BYTES_MAX} letters, digits, `.`, `-` and `_`, and does not begin with \
         `.`, got {0:?}"
    )]
    BadName(String),
    /// There is no such file.
    #[error("the directory of adapters has no {0:?}")]
    NoFile(String),
    /// None of this name is loaded.
    #[error("no adapter {0:?} is loaded")]
    NotLoaded(String),
    /// The name is another's.
    #[error("{0:?} is a name of {1} already")]
    Taken(String, NameOwner),
    /// There are as many as there may be.
    #[error("{ADAPTERS_MAX} adapters are loaded, and no more may be")]
    TooMany,
    /// The host has no room for it.
    #[error(
        "{name:?} takes {bytes} bytes of memory beside the {used} of the adapters that are loaded, at most {max} \
         together (adapters.host_mib)"
    )]
    NoRoom {
        /// The name that it was to have.
        name: String,
        /// Bytes that it takes.
        bytes: u64,
        /// Bytes of those that are loaded.
        used: u64,
        /// Bytes that all may take.
        max: u64,
    },
    /// The file cannot be read, or does not fit the model.
    #[error("{0}")]
    Refused(String),
}

//! Which keys or tensors of a file a loader has read, so that it can name those that nobody read.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names that were read so far.
#[derive(Debug, Default)]
pub(crate) struct ReadNames(Mutex<HashSet<String>>);

impl ReadNames {
    /// Notes that what has this name was read.
    pub(crate) fn note(&self, name: impl Into<String>) {
        self.names().insert(name.into());
    }

    /// Whether what has this name was read.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names().contains(name)
    }

    /// A set of names is whole after every insertion, so a panic elsewhere takes nothing from it.
    fn names(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The value of a key as far as a rule about it has to know it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum KeyValue {
    /// A number of any kind.
    Number(f64),
    /// True or false, in either format.
    Flag(bool),
    /// A string of any length.
    Word(String),
    /// A list without entries.
    Empty,
    /// A list with entries, or an object.
    Other,
}

impl std::fmt::Display for KeyValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(x) => write!(f, "{x}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Word(word) => write!(f, "`{word}`"),
            Self::Empty => f.write_str("an empty list"),
            Self::Other => f.write_str("a list or an object"),
        }
    }
}

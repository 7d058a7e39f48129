//! Why a collection could not be used or changed. Nothing has changed then.

use crate::database::DatabaseError;

/// See the file's head.
#[derive(Debug, thiserror::Error)]
pub enum CollectionError {
    /// There is nowhere to keep them.
    #[error("there is no directory for collections: set engram.directory")]
    NoDirectory,
    /// Not there for this account: whether others have one of that name is not told.
    #[error("there is no collection {0:?} here")]
    Unknown(String),
    /// Its vectors mean nothing to the model that runs.
    #[error(
        "the collection {name:?} was made with the model {made_with:?}, and {now:?} runs: remove it and make it anew"
    )]
    OtherModel {
        /// The collection of another model.
        name: String,
        /// The model of its vectors.
        made_with: String,
        /// The model that runs.
        now: String,
    },
    /// The account has as many as it may have.
    #[error("there are {got} collections, the most that one key may have")]
    TooManyCollections {
        /// How many there are, which is the limit.
        got: usize,
    },
    /// A collection holds as much as it may.
    #[error("the collection {name:?} has {got} items, {more} more would exceed {max}")]
    TooManyItems {
        /// The collection that is full.
        name: String,
        /// How many items it has.
        got: usize,
        /// Items that would be new.
        more: usize,
        /// The most that it may have.
        max: usize,
    },
    /// The account holds as much as it may, or all together do: which of the two is not told.
    #[error(
        "these collections take {got} bytes, {more} more would exceed an account's share of {max} (engram.collections_mib)"
    )]
    NoMemory {
        /// Bytes that the account's own collections take.
        got: u64,
        /// Bytes of what was to come.
        more: u64,
        /// The bytes that an account may have.
        max: u64,
    },
    /// The database, its file or its contents.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

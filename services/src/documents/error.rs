//! Why documents could not be used or changed. Nothing has changed then.

use crate::database::DatabaseError;

/// See the file's head.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// There is nowhere to keep them.
    #[error("there is no directory for documents: set documents.directory")]
    NoDirectory,
    /// Not there for this account: whether others have it is not told.
    #[error("there is no file {0:?} here")]
    UnknownFile(String),
    /// Not there for this account.
    #[error("there is no vector store {0:?} here")]
    UnknownStore(String),
    /// It is another account's, which shares it.
    #[error("the vector store {0:?} belongs to another API key and is shared for reading (access.toml)")]
    ReadOnlyStore(String),
    /// The file of who may read the stores of others has a mistake.
    #[error("{0}")]
    Access(String),
    /// The file is the account's, and none of the store's.
    #[error("the vector store has no file {0:?}")]
    NotInStore(String),
    /// The store has no such batch.
    #[error("the vector store has no batch {0:?}")]
    UnknownBatch(String),
    /// The file has no text, or none yet.
    #[error("the file {file:?} has no text: it is {state}")]
    NoText {
        /// Id of the file.
        file: String,
        /// Its state in the store.
        state: &'static str,
    },
    /// A passage would begin behind the end of the file's text.
    #[error("the text of the file {file:?} has {bytes} bytes, no passage begins at {start}")]
    BeyondText {
        /// Id of the file.
        file: String,
        /// Where the passage was to begin.
        start: usize,
        /// Bytes of the text.
        bytes: usize,
    },
    /// There are as many as there may be.
    #[error("there are {got} {what}, {more} more would exceed {max}")]
    TooMany {
        /// What there are so many of.
        what: &'static str,
        /// How many there are.
        got: usize,
        /// How many were to come.
        more: usize,
        /// The most that there may be.
        max: usize,
    },
    /// A file is larger than is taken.
    #[error("the file has more than {max} bytes, the most that is taken (documents.files_mib)")]
    FileTooLarge {
        /// The most bytes of a file.
        max: u64,
    },
    /// The account's files take as much as they may.
    #[error("the files of this key take {got} bytes, {more} more would exceed {max} (documents.key_mib)")]
    AccountFull {
        /// Bytes that they take.
        got: u64,
        /// Bytes that were to come.
        more: u64,
        /// The most bytes of an account.
        max: u64,
    },
    /// No encoder makes vectors of passages.
    #[error("vector stores are searched by words here: set documents.embedder for vectors")]
    NoEmbedder,
    /// The passages of the store do not all have their vectors yet, or files are still to be read.
    #[error(
        "in the vector store {store:?} {waiting} passages wait for their vectors, and {files} files to be read: a test \
         follows"
    )]
    VectorsWaiting {
        /// Id of the store.
        store: String,
        /// Passages without a vector.
        waiting: usize,
        /// Files that are not searchable yet.
        files: usize,
    },
    /// One store tests itself at a time.
    #[error("a vector store is being tested for somebody else: try again in a minute")]
    TestRuns,
    /// A disk, a file or the database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

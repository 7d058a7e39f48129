//! Why there are no vectors, or nobody to make them.

use crate::text::pool::PoolError;

/// Why some texts have no vectors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmbedderError {
    /// A text has more tokens than the encoder reads.
    #[error("text {index} has {got} tokens, this encoder reads at most {max}")]
    TooLong {
        /// Its place among the texts.
        index: usize,
        /// Its tokens, with those around it.
        got: usize,
        /// The most that the encoder reads.
        max: usize,
    },
    /// All texts together are too many for one request.
    #[error("the texts have {got} tokens, at most {max} are taken in one request")]
    TooManyTokens {
        /// Tokens of all texts.
        got: usize,
        /// The most of one request.
        max: usize,
    },
    /// The threads have no room, or one of them broke.
    #[error(transparent)]
    Threads(#[from] PoolError),
    /// The numbers of a text are beyond what a vector of length 1 can be made of.
    #[error("the encoder's numbers for text {0} are not finite")]
    NotFinite(usize),
    /// The server elsewhere gave no vectors.
    #[error("the embedder at {url} gave no vectors: {why}")]
    Remote {
        /// Where it is asked.
        url: String,
        /// What it said, or what happened.
        why: String,
    },
}

/// Why an embedder cannot be used, which is found when the service starts.
#[derive(Debug, thiserror::Error)]
#[error("documents.embedder.{key}: {why}")]
pub struct OpenEmbedderError {
    /// The key of the configuration that is at fault.
    pub key: &'static str,
    /// What was wanted, and what came.
    pub why: String,
}

impl OpenEmbedderError {
    /// The fault of a key.
    pub(super) fn new(key: &'static str, why: impl std::fmt::Display) -> Self {
        Self { key, why: why.to_string() }
    }
}

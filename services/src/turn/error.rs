//! Why a turn has no generation, which whoever asked for the turn puts into words that its client reads; and why one
//! that runs ends before its answer does.

use crate::actors::phase::Phase;
use crate::actors::request::direct::DirectError;
use crate::actors::request::output::Output;
use crate::documents::DocumentError;
use crate::embedder::EmbedderError;
use crate::semantic::CollectionError;
use crate::text::TooLong;
use crate::text::pool::PoolError;
use chimere_engine::scheduler::Rejected;

/// Why a turn has no generation.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// A field of the request is at fault.
    #[error("{message}")]
    Invalid {
        /// Path of the field.
        field: String,
        /// Says what was wanted and what came.
        message: String,
        /// A word for programs, where there is one.
        code: Option<&'static str>,
        /// The reason that the refusal is counted under, where it has one of its own.
        reason: Option<&'static str>,
    },
    /// A text that cannot fit was not even tokenized.
    #[error("{error}")]
    TooLong {
        /// The field that the text came in.
        field: &'static str,
        /// The text's size and the room for it.
        error: TooLong,
    },
    /// A conversation is too long, and most of it is its tools.
    #[error("{message}; {advice}")]
    ToolsTooLong {
        /// The prompt's size and the room for it.
        message: String,
        /// Tokens of the prompt, or a number that it certainly has.
        tokens: usize,
        /// The most that there is room for.
        max: usize,
        /// How much the tools take, and what to do about it.
        advice: String,
    },
    /// The threads of texts have no room, or one of them broke.
    #[error(transparent)]
    TextThreads(PoolError),
    /// The threads of grammars have no room, or one of them broke.
    #[error(transparent)]
    GrammarThreads(PoolError),
    /// A collection that was to be searched cannot be.
    #[error(transparent)]
    Collection(CollectionError),
    /// Documents that were to be searched cannot be.
    #[error(transparent)]
    Documents(DocumentError),
    /// The collection that a chat's examples come from cannot be searched.
    #[error(transparent)]
    Examples(CollectionError),
    /// A store that a tool of a chat names cannot be searched.
    #[error("`{field}`: {error}")]
    FileSearch {
        /// Path of the tool that names it.
        field: String,
        /// The reason that the documents give.
        error: DocumentError,
    },
    /// The engine has no result for a text that had to be read first.
    #[error("{error}")]
    Engine {
        /// The field that the text came in.
        field: &'static str,
        /// The scheduler's or the engine's reason.
        error: DirectError,
    },
    /// The maker of vectors has none for some texts.
    #[error("`{field}`: {error}")]
    Embedder {
        /// The field that the texts came in.
        field: &'static str,
        /// The reason of the encoder, or of the server elsewhere.
        error: EmbedderError,
    },
    /// The service takes nothing new.
    #[error("the service takes nothing new")]
    Closed(Phase),
    /// A fault of the service.
    #[error("{0}")]
    Internal(String),
}

impl TurnError {
    /// The scheduler has not so many pages for a request of its class, now or ever.
    pub(super) fn wants_too_many_pages(&self) -> bool {
        let Self::Engine { error: DirectError::Refused(refusal), .. } = self else { return false };
        matches!(refusal.reason, Rejected::TooManyPages { .. })
    }

    /// A field of the request is at fault.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), message: message.into(), code: None, reason: None }
    }

    /// A field of the request is at fault, in a way that programs have a word for.
    pub fn coded(field: impl Into<String>, message: impl Into<String>, code: &'static str) -> Self {
        Self::Invalid { field: field.into(), message: message.into(), code: Some(code), reason: None }
    }

    /// With a reason of its own that the refusal is counted under.
    pub fn counted_as(self, counted: &'static str) -> Self {
        match self {
            Self::Invalid { field, message, code, .. } => Self::Invalid { field, message, code, reason: Some(counted) },
            other => other,
        }
    }
}

/// Why a turn that runs ends before its answer does.
pub(super) enum EarlyEnd {
    /// Nobody hears its outputs any more.
    Unheard,
    /// The client is told this in the place of more.
    Told(Output),
}

impl EarlyEnd {
    /// The engine failed, for this reason.
    pub(super) fn failed(why: impl Into<String>) -> Self {
        Self::Told(Output::Failed(why.into()))
    }
}

impl From<TurnError> for EarlyEnd {
    fn from(error: TurnError) -> Self {
        Self::failed(error.to_string())
    }
}

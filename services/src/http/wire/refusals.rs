//! Why the parts of the service below give no answer, as a client reads it: the scheduler, the engine, the threads of
//! texts, the stores.

use super::error::ApiError;
use crate::actors::messages::Refusal;
use crate::actors::phase::{DEADLINE_PASSED, ENGINE_LOST, Phase, SHUTTING_DOWN};
use crate::actors::request::direct::DirectError;
use crate::database::DatabaseError;
use crate::documents::DocumentError;
use crate::embedder::EmbedderError;
use crate::semantic::CollectionError;
use crate::text::TooLong;
use crate::text::grammar::CANNOT_GO_ON;
use crate::text::pool::PoolError;
use crate::turn::TurnError;
use actix_web::http::StatusCode;
use chimere_engine::scheduler::{NOT_FINITE, Rejected};
use std::time::Duration;

impl From<TurnError> for ApiError {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::Invalid { field, message, code, reason } => {
                let error = code.into_iter().fold(Self::invalid(field, message), Self::with_code);
                reason.into_iter().fold(error, Self::rejected_as)
            }
            TurnError::TooLong { field, error } => too_long(field, &error),
            TurnError::ToolsTooLong { message, tokens, max, advice } => {
                let error = Self::invalid("messages", message).with_code("context_length_exceeded");
                error.with_prompt(tokens, max).with_advice(advice).rejected_as("prompt_too_long")
            }
            TurnError::TextThreads(error) => busy(error),
            TurnError::GrammarThreads(error) => grammar_threads_busy(error),
            TurnError::Collection(error) => collection_error(&error),
            TurnError::Documents(error) => document_error(&error),
            TurnError::FileSearch { field, error } => file_search_error(field, &error),
            TurnError::Examples(error) => examples_error(&error),
            TurnError::Engine { field, error } => direct_error(error, field),
            TurnError::Embedder { field, error } => embedder_error(field, error),
            TurnError::Closed(phase) => closed(&phase),
            TurnError::Internal(message) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message),
        }
    }
}

/// The service takes nothing new in this phase.
fn closed(phase: &Phase) -> ApiError {
    match phase {
        Phase::Lost(_) => unavailable(ENGINE_LOST, "engine_unavailable").rejected_as("engine_lost"),
        _ => unavailable(SHUTTING_DOWN, "shutting_down").rejected_as("draining"),
    }
}

/// 503 with a reason.
pub(in crate::http) fn unavailable(message: &str, code: &'static str) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message).with_code(code)
}

/// Why a request that no actor answers for has no result, as a client reads it.
pub(in crate::http) fn direct_error(error: DirectError, prompt_field: &'static str) -> ApiError {
    match error {
        DirectError::Refused(refusal) => refused(refusal, prompt_field),
        DirectError::Failed(why) => engine_error(why),
    }
}

/// The scheduler's no, as a client reads it.
pub(in crate::http) fn refused(refusal: Refusal, prompt_field: &'static str) -> ApiError {
    let message = refusal.to_string();
    let reason = match refusal.reason {
        Rejected::QueueFull { .. } => "queue_full",
        Rejected::QueueTokensFull { .. } => "queue_tokens_full",
        Rejected::EmptyPrompt => "prompt_empty",
        Rejected::PromptTooLong { .. } => "prompt_too_long",
        Rejected::TooManyChoices { .. } => "too_many_choices",
        Rejected::TooManyPages { .. } => "too_many_pages",
        Rejected::KeyBusy { .. } => "key_busy",
        Rejected::KeyRate { .. } => "key_rate",
        Rejected::WaitTooLong { .. } => "wait_too_long",
        Rejected::DeadlineUnreachable { .. } => "deadline_unreachable",
        Rejected::Draining => "draining",
    };
    let error = match refusal.reason {
        Rejected::QueueFull { .. }
        | Rejected::QueueTokensFull { .. }
        | Rejected::KeyBusy { .. }
        | Rejected::KeyRate { .. }
        | Rejected::WaitTooLong { .. }
        | Rejected::DeadlineUnreachable { .. } => {
            // Two bounds of one queue read alike; each other reason has a word of its own.
            let code = if reason == "queue_tokens_full" { "queue_full" } else { reason };
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message).with_code(code);
            refusal.retry_after.into_iter().fold(error, ApiError::with_retry_after)
        }
        Rejected::EmptyPrompt => ApiError::invalid(prompt_field, message).with_code("empty_prompt"),
        Rejected::PromptTooLong { got, max } => {
            let error = ApiError::invalid(prompt_field, message).with_code("context_length_exceeded");
            error.with_prompt(got as usize, max as usize)
        }
        Rejected::TooManyChoices { .. } => ApiError::invalid("n", message),
        Rejected::TooManyPages { .. } => ApiError::invalid("max_tokens", message).with_code("context_length_exceeded"),
        Rejected::Draining => unavailable(&message, "shutting_down"),
    };
    error.rejected_as(reason)
}

/// The engine failed, the service is going down, the request's deadline has passed, its grammar cannot go on, or the
/// model's numbers for it are none.
pub(in crate::http) fn engine_error(why: String) -> ApiError {
    if why == DEADLINE_PASSED {
        return ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timeout_error", why).with_code("deadline_passed");
    }
    // Asking again would end as this did.
    if why.starts_with(CANNOT_GO_ON) {
        return ApiError::new(StatusCode::BAD_REQUEST, "invalid_request_error", why).with_code("grammar_too_large");
    }
    if why == NOT_FINITE {
        return ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", why).with_code("not_finite");
    }
    let code = if why == SHUTTING_DOWN { "shutting_down" } else { "engine_unavailable" };
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", why).with_code(code)
}

/// A store's error: the log has it whole, the client what concerns it.
pub(in crate::http) fn database_error(of: &str, error: &DatabaseError) -> ApiError {
    tracing::error!(%error, "the store of the {of}");
    match error {
        DatabaseError::NoRoom { why, .. } => {
            let message = format!("the store of the {of} has no room: {why}; nothing was changed");
            ApiError::new(StatusCode::INSUFFICIENT_STORAGE, "server_error", message).with_code("disk_full")
        }
        DatabaseError::ReadOnly { .. } => {
            let message = format!("the store of the {of} can only be read here: its directory cannot be written");
            ApiError::new(StatusCode::CONFLICT, "invalid_request_error", message).with_code("table_not_writable")
        }
        DatabaseError::Failed { .. } => {
            let message = format!("the store of the {of} failed; nothing was changed");
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
        }
    }
}

/// The threads of texts have no room, or one of them broke.
pub(in crate::http) fn busy(error: PoolError) -> ApiError {
    match error {
        PoolError::Full { .. } => {
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", error.to_string());
            error.with_code("queue_full").with_retry_after(Duration::from_secs(1)).rejected_as("text_threads_busy")
        }
        PoolError::Panicked => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", error.to_string()),
    }
}

/// The threads of grammars have no room, or one of them broke.
fn grammar_threads_busy(error: PoolError) -> ApiError {
    match error {
        PoolError::Full { max } => {
            let message =
                format!("there is no room for this grammar to wait for a thread now: all requests share {max} places");
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message);
            error.with_code("queue_full").with_retry_after(Duration::from_secs(1)).rejected_as("text_threads_busy")
        }
        PoolError::Panicked => {
            let message = "making the grammar failed, which is a fault of the server";
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
        }
    }
}

/// A text that cannot fit was not even tokenized.
pub(in crate::http) fn too_long(field: &'static str, error: &TooLong) -> ApiError {
    let refusal = ApiError::invalid(field, error.to_string()).with_code("context_length_exceeded");
    refusal.with_prompt(error.least, error.max).rejected_as("prompt_too_long")
}

/// Why an embedder has no vectors.
fn embedder_error(field: &'static str, error: EmbedderError) -> ApiError {
    let message = format!("`{field}`: {error}");
    match error {
        EmbedderError::TooLong { got, max, .. } => {
            let error = ApiError::invalid(field, message).with_code("context_length_exceeded");
            error.with_prompt(got, max).rejected_as("prompt_too_long")
        }
        EmbedderError::TooManyTokens { .. } => ApiError::invalid(field, message).with_code("too_many_tokens"),
        EmbedderError::Threads(error) => busy(error),
        EmbedderError::NotFinite(_) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message),
        // Where it is asked is the operator's business.
        EmbedderError::Remote { url, why } => {
            tracing::warn!(url, why, "an embedder failed");
            let message = format!("`{field}`: the embedder gave no vectors: {why}");
            ApiError::new(StatusCode::BAD_GATEWAY, "server_error", message).with_code("embedder_failed")
        }
    }
}

/// Why a chat gets no examples from a collection: the fault may lie in the field that names it.
fn examples_error(error: &CollectionError) -> ApiError {
    let error = collection_error(error);
    match error.code {
        Some(code @ ("collection_not_found" | "other_model")) => {
            let field = "engram.semantic.collection";
            ApiError::invalid(field, format!("`{field}`: {}", error.message)).with_code(code)
        }
        _ => error,
    }
}

/// Why a collection does not do what was asked of it.
pub(in crate::http) fn collection_error(error: &CollectionError) -> ApiError {
    use CollectionError as E;
    let conflict =
        |code| ApiError::new(StatusCode::CONFLICT, "invalid_request_error", error.to_string()).with_code(code);
    match error {
        E::Unknown(name) => ApiError::unknown_name("collection", name, "collection_not_found"),
        E::NoDirectory => conflict("no_directory"),
        E::OtherModel { .. } => conflict("other_model"),
        E::TooManyCollections { .. } => conflict("too_many_collections"),
        E::TooManyItems { .. } | E::NoMemory { .. } => {
            ApiError::invalid("items", error.to_string()).with_code("collection_full")
        }
        E::Database(error) => database_error("collections", error),
    }
}

/// In a chat a store that is not there is a fault of the tool that names it.
fn file_search_error(field: String, error: &DocumentError) -> ApiError {
    let told = document_error(error);
    match (error, told.code) {
        (DocumentError::UnknownStore(_) | DocumentError::NoDirectory, Some(code)) => {
            let message = format!("`{field}`: {}", told.message);
            ApiError::invalid(field, message).with_code(code)
        }
        _ => told,
    }
}

/// Why documents do not do what was asked of them.
pub(in crate::http) fn document_error(error: &DocumentError) -> ApiError {
    use DocumentError as E;
    let conflict =
        |code| ApiError::new(StatusCode::CONFLICT, "invalid_request_error", error.to_string()).with_code(code);
    match error {
        E::NoDirectory => conflict("no_directory"),
        E::UnknownFile(id) | E::NotInStore(id) => ApiError::unknown_name("file", id, "file_not_found"),
        E::UnknownStore(id) => ApiError::unknown_name("vector store", id, "vector_store_not_found"),
        E::ReadOnlyStore(_) => {
            let refused = ApiError::new(StatusCode::FORBIDDEN, "permission_error", error.to_string());
            refused.with_code("store_read_only")
        }
        E::UnknownBatch(id) => ApiError::unknown_name("batch", id, "batch_not_found"),
        E::NoText { .. } => conflict("no_text"),
        E::BeyondText { .. } => ApiError::invalid("start", error.to_string()).with_code("out_of_range"),
        E::TooMany { .. } => conflict("too_many"),
        E::AccountFull { .. } => conflict("files_full"),
        E::NoEmbedder => conflict("no_embedder"),
        E::VectorsWaiting { .. } => conflict("vectors_waiting"),
        E::TestRuns => conflict("test_runs"),
        E::FileTooLarge { .. } => {
            let error = ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", error.to_string());
            error.with_code("file_too_large").rejected_as("body_too_large")
        }
        E::Database(error) => database_error("documents", error),
        E::Access(error) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", error.clone()),
    }
}

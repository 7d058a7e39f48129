//! Why the parts of the service below give no answer, as a client reads it: the scheduler, the engine, the threads of
//! texts, the stores.

use super::error::ApiError;
use crate::actors::direct::DirectError;
use crate::actors::messages::Refusal;
use crate::actors::phase::{DEADLINE_PASSED, SHUTTING_DOWN};
use crate::database::DatabaseError;
use crate::semantic::CollectionError;
use crate::text::TooLong;
use crate::text::grammar::CANNOT_GO_ON;
use crate::text::pool::PoolError;
use actix_web::http::StatusCode;
use chimere_engine::scheduler::{NOT_FINITE, Rejected};
use std::time::Duration;

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

/// A text that cannot fit was not even tokenized.
pub(in crate::http) fn too_long(field: &'static str, error: &TooLong) -> ApiError {
    let refusal = ApiError::invalid(field, error.to_string()).with_code("context_length_exceeded");
    refusal.with_prompt(error.least, error.max).rejected_as("prompt_too_long")
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

//! Errors as Anthropic's clients read them.

use crate::http::wire::error::{ApiError, PromptOverflow, advised};
use actix_web::http::StatusCode;
use serde_json::{Value, json};

/// Anthropic's status of a service that can do no more for now.
const OVERLOADED: u16 = 529;

/// An error as Anthropic's clients read it; also the data of an error event inside a stream.
pub(in crate::http::dialects) fn written(error: &ApiError, request: Option<&str>) -> Value {
    let kind = match error.status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    };
    // Programs look for these words to know that they have to shorten a conversation.
    let message = match error.prompt.as_deref() {
        Some(PromptOverflow { tokens, max, advice }) => {
            advised(format!("prompt is too long: {tokens} tokens > {max} maximum"), advice.as_deref())
        }
        None => error.message.clone(),
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": request})
}

/// The status under which an error is told.
pub(in crate::http::dialects) fn status(status: StatusCode) -> StatusCode {
    match status {
        StatusCode::SERVICE_UNAVAILABLE => StatusCode::from_u16(OVERLOADED).unwrap_or(status),
        status => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_that_is_too_long_is_called_so_in_the_words_that_programs_look_for() {
        let error = ApiError::invalid("messages", "prompt has 9 tokens").with_prompt(9, 5);
        let written = written(&error, Some("req_1"));
        assert_eq!(
            written.to_string(),
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 5 maximum"},"request_id":"req_1"}"#
        );
    }
}

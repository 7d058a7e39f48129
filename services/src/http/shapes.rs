//! Errors as each dialect writes them. Every refusal is an [`ApiError`], wherever on its way a request was refused, and
//! becomes OpenAI's JSON; a path that speaks another dialect has it written anew here, on the way out.

use crate::http::wire::error::ApiError;
use crate::http::wire::reply::RequestName;
use actix_web::Error;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::Next;
use serde_json::{Value, json};

/// Anthropic's name of the header with a request's name.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// Anthropic's status of a service that can do no more for now.
const OVERLOADED: u16 = 529;

/// Who speaks at a path, where it is not OpenAI's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Anthropic,
    Ollama,
    Llama,
}

/// Paths of llama.cpp's own endpoints.
const LLAMA: [&str; 7] = ["/completion", "/completions", "/embedding", "/embeddings", "/infill", "/props", "/slots"];

impl Speaks {
    fn at(path: &str) -> Option<Self> {
        if path.starts_with("/api/") {
            return Some(Self::Ollama);
        }
        if LLAMA.contains(&path) {
            return Some(Self::Llama);
        }
        let path = path.strip_prefix("/v1/messages")?;
        (path.is_empty() || path.starts_with('/')).then_some(Self::Anthropic)
    }
}

/// Writes an error anew for who speaks another dialect.
pub(super) async fn in_dialect(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let speaks = Speaks::at(request.path());
    let mut reply = next.call(request).await?.map_into_boxed_body();
    let Some(speaks) = speaks else { return Ok(reply) };
    let name = RequestName::of(reply.request());
    if let (Speaks::Anthropic, Ok(value)) = (speaks, HeaderValue::from_str(&name)) {
        reply.headers_mut().insert(REQUEST_ID, value);
    }
    let Some(error) = reply.response().extensions().get::<ApiError>().cloned() else { return Ok(reply) };
    Ok(reply.map_body(|head, _| match speaks {
        Speaks::Anthropic => {
            head.status = anthropic_status(error.status);
            BoxBody::new(anthropic(&error, Some(&name)).to_string())
        }
        Speaks::Ollama => BoxBody::new(ollama(&error).to_string()),
        Speaks::Llama => BoxBody::new(llama(&error).to_string()),
    }))
}

/// An error as Ollama's programs read it; also the last line of a stream that broke.
pub(super) fn ollama(error: &ApiError) -> Value {
    json!({"error": error.message})
}

/// An error as llama.cpp's programs read it: the status is its code, and a prompt that is too long has words and
/// numbers of its own. Also the data of an error event inside a stream.
pub(super) fn llama(error: &ApiError) -> Value {
    let mut inner = json!({"code": error.status.as_u16(), "message": error.message, "type": error.kind,
        "param": error.param});
    if let Some((tokens, max)) = error.prompt.as_deref() {
        inner["type"] = json!("exceed_context_size_error");
        inner["message"] =
            json!(format!("the request exceeds the available context size: {tokens} tokens, there is room for {max}"));
        inner["n_prompt_tokens"] = json!(tokens);
        inner["n_ctx"] = json!(max);
    }
    json!({"error": inner})
}

/// An error as Anthropic's clients read it; also the data of an error event inside a stream.
pub(super) fn anthropic(error: &ApiError, request: Option<&str>) -> Value {
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
        Some((tokens, max)) => format!("prompt is too long: {tokens} tokens > {max} maximum"),
        None => error.message.clone(),
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": request})
}

fn anthropic_status(status: StatusCode) -> StatusCode {
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
        let written = anthropic(&error, Some("req_1"));
        assert_eq!(
            written.to_string(),
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 5 maximum"},"request_id":"req_1"}"#
        );
    }

    #[test]
    fn a_path_speaks_one_dialect() {
        for (path, speaks) in [
            ("/v1/messages", Some(Speaks::Anthropic)),
            ("/v1/messages/count_tokens", Some(Speaks::Anthropic)),
            ("/v1/messages/batches", Some(Speaks::Anthropic)),
            ("/v1/messagesx", None),
            ("/api/chat", Some(Speaks::Ollama)),
            ("/completion", Some(Speaks::Llama)),
            ("/completionx", None),
            ("/apix", None),
            ("/v1/chat/completions", None),
        ] {
            assert_eq!(Speaks::at(path), speaks, "{path}");
        }
    }
}

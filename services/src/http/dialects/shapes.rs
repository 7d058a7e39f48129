//! Errors as each dialect writes them. Every refusal is an [`ApiError`], wherever on its way a request was refused, and
//! becomes OpenAI's JSON; a path that speaks another dialect has it written anew here, on the way out.

use super::{anthropic, llama, ollama};
use crate::http::wire::error::ApiError;
use crate::http::wire::reply::RequestName;
use actix_web::Error;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::Next;

/// Anthropic's name of the header with a request's name.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

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
pub(in crate::http) async fn in_dialect(
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
            head.status = anthropic::error::status(error.status);
            BoxBody::new(anthropic::error::written(&error, Some(&name)).to_string())
        }
        Speaks::Ollama => BoxBody::new(ollama::error::written(&error).to_string()),
        Speaks::Llama => BoxBody::new(llama::error::written(&error).to_string()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What programs look for in an error to know that a conversation has to become shorter, in small letters. Each
    /// dialect has words that LiteLLM 1.106 (`ExceptionCheckers`, for Anthropic `_map_anthropic_exception`) knows and
    /// some that OpenCode 1.18 does; Continue 1.5 knows those of OpenAI and Ollama.
    #[test]
    fn a_prompt_that_is_too_long_is_told_in_words_that_programs_look_for() {
        let message = "prompt has 9 tokens, the context has room for 5";
        let error = ApiError::invalid("messages", message).with_code("context_length_exceeded").with_prompt(9, 5);
        let advised = error.clone().with_advice("2 tools take 7 of them".into());
        for (dialect, write, phrases) in [
            (
                "OpenAI's",
                (|error| serde_json::to_string(error).unwrap()) as fn(&ApiError) -> String,
                &[
                    "this model's maximum context length is",
                    "maximum context length is 5 tokens",
                    "context_length_exceeded",
                    "invalid_request_error",
                ][..],
            ),
            (
                "Anthropic's",
                |error| anthropic::error::written(error, None).to_string(),
                &["prompt is too long: 9 tokens > 5 maximum", "invalid_request_error"],
            ),
            (
                "Ollama's",
                |error| ollama::error::written(error).to_string(),
                &["this model's maximum context length is", "maximum context length is 5 tokens"],
            ),
            (
                "llama.cpp's",
                |error| llama::error::written(error).to_string(),
                &["exceeds the available context size", "exceed_context_size_error"],
            ),
        ] {
            let texts = [write(&error).to_lowercase(), write(&advised).to_lowercase()];
            for phrase in phrases {
                assert!(texts.iter().all(|text| text.contains(phrase)), "{dialect}: {phrase:?} in {texts:?}");
            }
            assert!(dialect == "llama.cpp's" || texts[1].contains("2 tools take 7 of them"), "{dialect}: {texts:?}");
        }
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

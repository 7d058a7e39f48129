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

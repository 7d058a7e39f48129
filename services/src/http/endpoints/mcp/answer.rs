//! From a message to its answer: a result, an error, or nothing where nothing was asked.

use super::fault::Fault;
use super::message::McpMessage;
use super::methods::{discovered, initialized, listed};
use super::revision::{Revision, known_revision, revision_of};
use super::tools::call;
use crate::http::app::App;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use rmcp::model::{ErrorCode, ErrorData, JsonRpcResponse, JsonRpcVersion2_0, RequestId};
use serde::Serialize;
use serde_json::{Value, json};

/// Characters of a method that nobody knows which its answer shows.
const METHOD_CHARS_SHOWN: usize = 64;

/// The answer to a message.
pub(super) async fn answered(
    app: &web::Data<App>,
    request: &HttpRequest,
    message: McpMessage,
) -> Result<HttpResponse, Fault> {
    let Some(id) = message.id.clone() else {
        // Nothing is kept that one could change: a client cancels by leaving.
        let error = known_revision(request.headers());
        error.map_err(|error| Fault::bad(None, error))?;
        return Ok(HttpResponse::Accepted().finish());
    };
    let revision = revision_of(request.headers(), &message);
    let revision = revision.map_err(|error| Fault::bad(Some(id.clone()), error))?;
    let result = match (message.method.as_str(), revision) {
        ("initialize", Revision::Handshake) => initialized(&message).and_then(|result| value(&result)),
        ("ping", Revision::Handshake) => Ok(json!({})),
        ("server/discover", Revision::Stateless) => value(&discovered()),
        ("tools/list", _) => listed(&message, revision).and_then(|result| value(&result)),
        ("tools/call", _) => match call(app, request, message, revision).await {
            Ok(result) => value(&result),
            Err(error) => Err(error),
        },
        (method, _) => Err(unknown_method(method)),
    };
    let result = result.map_err(|error| faulty(id.clone(), error, revision))?;
    Ok(HttpResponse::Ok().json(JsonRpcResponse { jsonrpc: JsonRpcVersion2_0, id, result }))
}

fn value(result: &impl Serialize) -> Result<Value, ErrorData> {
    serde_json::to_value(result).map_err(|e| ErrorData::new(ErrorCode::INTERNAL_ERROR, e.to_string(), None))
}

fn unknown_method(method: &str) -> ErrorData {
    let shown: String = method.chars().take(METHOD_CHARS_SHOWN).collect();
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("there is no method {shown:?} in this revision here"), None)
}

/// An error of a request of a revision that is known. Its status says so only in the newest.
fn faulty(id: RequestId, error: ErrorData, revision: Revision) -> Fault {
    match revision {
        Revision::Handshake => Fault::within(id, error, StatusCode::OK),
        Revision::Stateless if error.code == ErrorCode::METHOD_NOT_FOUND => {
            Fault::within(id, error, StatusCode::NOT_FOUND)
        }
        Revision::Stateless => Fault::bad(Some(id), error),
    }
}

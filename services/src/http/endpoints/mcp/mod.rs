//! `/mcp`: the Model Context Protocol, so that agents search and read the files of their account and decide with the
//! model. Streamable HTTP without sessions, whose replies are JSON: a message comes, its answer goes, nothing is kept.

mod answer;
mod fault;
mod message;
mod methods;
mod revision;
mod tools;

use crate::http::app::App;
use crate::http::intake::bodies::{ParsedBody, SeenApp, take};
use crate::http::wire::error::ApiError;
use crate::http::wire::routing::only;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use answer::answered;
use fault::Fault;
use message::McpMessage;

/// One path: without sessions there is no stream to open with GET, and nothing to end with DELETE.
pub(super) fn routes(config: &mut web::ServiceConfig) {
    config.service(only("/mcp", "POST", web::post().to(speak)));
}

/// `POST /mcp`: answers a message.
async fn speak(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    if !app.mcp {
        return Err(not_served());
    }
    let parse = |body: &[u8], _: &SeenApp<'_>| Ok(McpMessage::parse(body));
    let ParsedBody { asked, room: _room, .. } = take(&app, &request, payload, parse).await?;
    let answer = match asked {
        Ok(message) => answered(&app, &request, message).await,
        Err(fault) => Err(fault),
    };
    Ok(answer.unwrap_or_else(Fault::into_response))
}

fn not_served() -> ApiError {
    let message = "MCP is not served here; `mcp.serve = true` in the configuration of the service turns it on";
    ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", message)
        .with_code("mcp_off")
        .rejected_as("unknown_path")
}

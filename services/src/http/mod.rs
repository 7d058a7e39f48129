//! The only place that knows the API's JSON: what comes in, what goes out, and the server around it.

mod about;
pub mod answer;
pub mod app;
pub mod auth;
mod chat;
mod collections;
mod completions;
mod console;
pub mod edge;
mod embeddings;
mod encoding;
mod engram;
pub mod error;
mod examples;
mod generate;
mod hints;
pub mod reply;
pub mod request;
pub mod request_tables;
pub mod server;
mod socket;
pub mod sse;
mod steps;
mod terms;
mod text;
mod thinking;
pub mod tls;

use actix_web::http::header;
use actix_web::{HttpRequest, web};
use app::App;
use error::ApiError;

/// The length of the body as its head says.
fn announced(request: &HttpRequest) -> Option<usize> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// What a body says. Its bytes are let go: they count against all bodies' room, and what they ask for may take long.
async fn parsed<T>(
    app: &App,
    request: &HttpRequest,
    payload: web::Payload,
    parse: impl FnOnce(&[u8]) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    parse(&app.body(payload, request).await?)
}

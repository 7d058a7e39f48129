//! The only place that knows the API's JSON: what comes in, what goes out, and the server around it.

mod about;
pub mod answer;
pub mod app;
pub mod auth;
mod chat;
mod collections;
mod completions;
mod embeddings;
mod engram;
pub mod error;
mod examples;
mod generate;
pub mod guide;
pub mod reply;
pub mod request;
pub mod server;
mod socket;
pub mod sse;
mod terms;
mod text;
mod thinking;
pub mod tls;

use actix_web::HttpRequest;
use actix_web::http::header;

/// The length of the body as its head says.
fn announced(request: &HttpRequest) -> Option<usize> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

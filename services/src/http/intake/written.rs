//! Replies that take as long to write as their bodies took to read.

use crate::holder::Holder;
use crate::http::app::App;
use crate::http::wire::error::ApiError;
use crate::turn::prompts::{INLINE_BYTES, work};
use actix_web::HttpResponse;
use actix_web::http::StatusCode;

/// A reply that takes as long to write as its body of this many bytes took to read.
pub(in crate::http) async fn written(
    app: &App,
    holder: Holder,
    bytes: usize,
    write: impl FnOnce() -> serde_json::Result<Vec<u8>> + Send + 'static,
) -> Result<HttpResponse, ApiError> {
    let text = work(&app.turns.lanes, holder, bytes, bytes <= INLINE_BYTES, write)
        .await?
        .map_err(|e| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", e.to_string()))?;
    Ok(HttpResponse::Ok().content_type("application/json").body(text))
}

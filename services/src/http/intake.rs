//! From the bytes of a body to what they ask for. Large ones are taken apart on a text thread, within the room that all
//! of them share, and hold that room until whoever reads them has let go of what they said.

use super::app::{App, Body};
use super::error::ApiError;
use super::json::weight;
use super::shares::{Holder, Share};
use super::text::busy;
use crate::limits::PARSED_BYTES_MAX;
use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, web};
use std::time::Duration;

/// Bodies up to this many bytes are read where they are: that takes less than a change of threads, and little memory.
pub(super) const INLINE_BYTES: usize = 16 << 10;

/// What a body said, and the room that it takes until this is dropped.
pub(super) struct Taken<T> {
    /// What it asks for.
    pub(super) asked: T,
    /// Bytes of the body.
    pub(super) bytes: usize,
    /// Dropped when nothing of its size is kept any more.
    pub(super) room: Option<Share>,
}

/// Reads a body and takes it apart.
pub(super) async fn take<T: Send + 'static>(
    app: &web::Data<App>,
    request: &HttpRequest,
    payload: web::Payload,
    parse: impl FnOnce(&[u8], &App) -> Result<T, ApiError> + Send + 'static,
) -> Result<Taken<T>, ApiError> {
    let holder = Holder::of(request, &app.proxies);
    let body = app.body(payload, request, holder).await?;
    let bytes = body.len();
    if bytes <= INLINE_BYTES {
        return Ok(Taken { asked: parse(&body, app)?, bytes, room: None });
    }
    let app = app.clone();
    let lane = app.clone();
    let job = move || {
        let room = room(&app, &body, holder)?;
        let asked = parse(&body, &app)?;
        Ok(Taken { asked, bytes, room })
    };
    lane.lanes.for_bytes(bytes).run(job).await.map_err(busy)?
}

/// The same where nothing that is as large as the body is kept.
pub(super) async fn parsed<T: Send + 'static>(
    app: &web::Data<App>,
    request: &HttpRequest,
    payload: web::Payload,
    parse: impl FnOnce(&[u8], &App) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    Ok(take(app, request, payload, parse).await?.asked)
}

/// Room for what the body will be. What is too large for any room its reader refuses, with a word about it.
fn room(app: &App, body: &Body, holder: Holder) -> Result<Option<Share>, ApiError> {
    let weight = weight(body);
    if weight > PARSED_BYTES_MAX {
        return Ok(None);
    }
    app.parsed.take(holder, weight).map(Some).ok_or_else(no_room)
}

/// Room for what was said before, which is taken apart with a body. What is small takes none, as small bodies do.
pub(super) fn more_room(app: &App, room: &mut Option<Share>, holder: Holder, text: &[u8]) -> Result<(), ApiError> {
    let units = weight(text).min(PARSED_BYTES_MAX);
    let taken = match room {
        _ if text.len() <= INLINE_BYTES => true,
        Some(share) => share.grow(units),
        None => {
            *room = app.parsed.take(holder, units);
            room.is_some()
        }
    };
    if taken { Ok(()) } else { Err(no_room()) }
}

fn no_room() -> ApiError {
    let message = "there is no room to take this body apart now: too much is being read at once";
    let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message).with_code("parsing_full");
    error.with_retry_after(Duration::from_secs(1)).rejected_as("bodies_full")
}

/// The length of the body as its head says.
pub(super) fn announced(request: &HttpRequest) -> Option<usize> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

//! From the bytes of a body to what they ask for. Large ones are taken apart on a text thread, within the room that all
//! of them share, and hold that room until whoever reads them has let go of what they said.

use crate::holder::Holder;
use crate::http::app::App;
use crate::http::body::model::ModelLimits;
use crate::http::edge::arrival::RequestBody;
use crate::http::edge::encoding::Coding;
use crate::http::edge::keys::auth::{Viewer, viewer};
use crate::http::edge::shares::{Room, Share};
use crate::http::wire::error::ApiError;
use crate::http::wire::json::weight;
use crate::limits::PARSED_BYTES_MAX;
use crate::text::Lanes;
use crate::turn::prompts::work;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// Bodies up to this many bytes are read where they are: that takes less than a change of threads, and little memory.
pub(in crate::http) const INLINE_BYTES: usize = 16 << 10;

/// What a body said, and the room that it takes until this is dropped.
pub(in crate::http) struct ParsedBody<T> {
    /// What it asks for.
    pub(in crate::http) asked: T,
    /// Bytes of the body.
    pub(in crate::http) bytes: usize,
    /// Dropped when nothing of its size is kept any more.
    pub(in crate::http) room: Option<Share>,
}

/// The service as a caller sees it: without adapters that are others' alone, and without the web if its key may not
/// use it.
pub(in crate::http) struct SeenApp<'a> {
    app: &'a App,
    /// What the caller's request is checked against.
    pub(in crate::http) limits: Cow<'a, ModelLimits>,
}

impl<'a> SeenApp<'a> {
    pub(in crate::http) fn by(app: &'a App, viewer: &Viewer) -> Self {
        Self { app, limits: app.limits.seen_by(viewer) }
    }
}

impl Deref for SeenApp<'_> {
    type Target = App;

    fn deref(&self) -> &App {
        self.app
    }
}

/// Reads a body and takes it apart.
pub(in crate::http) async fn take<T: Send + 'static>(
    app: &web::Data<App>,
    request: &HttpRequest,
    payload: web::Payload,
    parse: impl FnOnce(&[u8], &SeenApp<'_>) -> Result<T, ApiError> + Send + 'static,
) -> Result<ParsedBody<T>, ApiError> {
    let coding = Coding::of(request)?;
    let body = app.bodies.arrived(payload, request, app.holder(request)).await?;
    taken(app, request, (body, coding), parse).await
}

/// Takes a body apart that is there.
pub(in crate::http) async fn taken<T: Send + 'static>(
    app: &web::Data<App>,
    request: &HttpRequest,
    (body, coding): (RequestBody, Coding),
    parse: impl FnOnce(&[u8], &SeenApp<'_>) -> Result<T, ApiError> + Send + 'static,
) -> Result<ParsedBody<T>, ApiError> {
    let holder = app.holder(request);
    let (came, known, viewer) = (Came { bytes: body.len(), coding }, app.clone(), viewer(request));
    let job = move || {
        let body = known.bodies.decoded(body, coding, holder)?;
        apart(&known.parsed, holder, &body, |body| parse(body, &SeenApp::by(&known, &viewer)))
    };
    came.run(&app.turns.lanes, holder, job).await?
}

/// How much came, of which nobody knows yet what it will be.
struct Came {
    bytes: usize,
    coding: Coding,
}

impl Came {
    /// Does what it takes to read a body: where it is if that is small, else on a text thread. A few bytes may be
    /// many once they are no longer compressed.
    async fn run<T: Send + 'static>(
        self,
        lanes: &Lanes,
        holder: Holder,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let here = self.bytes <= INLINE_BYTES && self.coding == Coding::Identity;
        Ok(work(lanes, holder, self.bytes, here, job).await?)
    }
}

/// Takes a body apart, a large one within the room that all of them share.
fn apart<T>(
    parsed: &Arc<Room>,
    holder: Holder,
    body: &[u8],
    parse: impl FnOnce(&[u8]) -> Result<T, ApiError>,
) -> Result<ParsedBody<T>, ApiError> {
    let room = if body.len() <= INLINE_BYTES { None } else { room(parsed, body, holder)? };
    Ok(ParsedBody { asked: parse(body)?, bytes: body.len(), room })
}

/// Reads a body and takes it apart, where nothing that is as large as the body is kept.
pub(in crate::http) async fn parsed<T: Send + 'static>(
    app: &web::Data<App>,
    request: &HttpRequest,
    payload: web::Payload,
    parse: impl FnOnce(&[u8], &SeenApp<'_>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    Ok(take(app, request, payload, parse).await?.asked)
}

/// Room for what the body will be. What is too large for any room its reader refuses, with a word about it.
fn room(parsed: &Arc<Room>, body: &[u8], holder: Holder) -> Result<Option<Share>, ApiError> {
    let weight = weight(body);
    if weight > PARSED_BYTES_MAX {
        return Ok(None);
    }
    parsed.take(holder, weight).map(Some).ok_or_else(no_room)
}

/// Room for what was said before, which is taken apart with a body. What is small takes none, as small bodies do.
pub(in crate::http) fn more_room(
    app: &App,
    room: &mut Option<Share>,
    holder: Holder,
    text: &[u8],
) -> Result<(), ApiError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: Holder = Holder::Key(chimere_engine::ids::KeyId(1));

    #[actix_rt::test]
    async fn a_large_body_and_a_compressed_one_are_read_on_a_text_thread_and_a_small_one_where_it_is() {
        let lanes = Lanes::new(1).unwrap();
        let thread = || std::thread::current().name().unwrap_or_default().to_owned();
        for (bytes, coding, aside) in [
            (INLINE_BYTES, Coding::Identity, false),
            (INLINE_BYTES + 1, Coding::Identity, true),
            (1 << 20, Coding::Identity, true),
            (100, Coding::Gzip, true),
        ] {
            let on = Came { bytes, coding }.run(&lanes, WHO, thread).await.unwrap();
            assert_eq!(on.starts_with("text-"), aside, "{bytes} bytes, {coding:?}, on {on}");
        }
    }

    #[test]
    fn what_a_body_says_holds_its_room_until_it_is_let_go() {
        let parsed = Room::new(8 << 20, 0);
        let shape = format!("[{}]", vec!["0"; 30_000].join(",")).into_bytes();
        let take = || apart(&parsed, WHO, &shape, |_| Ok(()));
        let first = take().unwrap();
        assert!(first.room.as_ref().is_some_and(|room| room.units() >= 30_000 * size_of::<serde_json::Value>()));
        assert_eq!(take().err().unwrap().code, Some("parsing_full"), "half of the room is for others");
        drop(first);
        assert!(take().is_ok());
    }
}

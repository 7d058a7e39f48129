//! The bytes of a body as they arrive: how long they may take, how many one body may have, and how many all bodies in
//! flight may have together.

use super::encoding::Coding;
use super::shares::{Room, Share};
use crate::holder::Holder;
use crate::http::wire::error::ApiError;
use crate::http::wire::reply::BODIES_FULL;
use actix_rt::time::timeout;
use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap};
use actix_web::web::{Bytes, Payload};
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;

/// How soon there should be room for a body: most are read within that.
const BODIES_RETRY: Duration = Duration::from_secs(1);

/// A request's body. Its bytes count among those in flight until it is dropped, so handlers drop it when they have read
/// it.
pub(in crate::http) struct RequestBody {
    bytes: Bytes,
    _share: Option<Share>,
}

impl RequestBody {
    /// Bytes that came as a message of a socket, with the room that they take.
    pub(in crate::http) fn of_message(bytes: Bytes, share: Option<Share>) -> Self {
        Self { bytes, _share: share }
    }
}

impl std::ops::Deref for RequestBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Within which bounds bodies are taken.
#[derive(Debug)]
pub struct Bodies {
    /// How long a body may take to arrive.
    pub time: Duration,
    /// Bytes of a request body.
    pub bytes_max: usize,
    /// Bytes that all bodies in flight may take together.
    pub room: Arc<Room>,
}

impl Bodies {
    /// The whole body as it came, if it keeps to the limits in bytes and in time.
    pub(in crate::http) async fn arrived(
        &self,
        payload: Payload,
        request: &HttpRequest,
        holder: Holder,
    ) -> Result<RequestBody, ApiError> {
        let body = self.whole_body(payload, announced(request.headers()), holder);
        timeout(self.time, body).await.map_err(|_| self.too_slow())?
    }

    /// The refusal of a body that took too long.
    pub(in crate::http) fn too_slow(&self) -> ApiError {
        let message = format!("the body took more than {} s to arrive", self.time.as_secs_f32());
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", message)
            .with_code("body_too_slow")
            .rejected_as("body_too_slow")
    }

    /// A body as it was before it was compressed. Its bytes count as they come out, so a small one that becomes huge is
    /// refused as soon as it has, and never takes more memory than any other. That takes as long as parsing does.
    pub(in crate::http) fn decoded(
        &self,
        body: RequestBody,
        coding: Coding,
        holder: Holder,
    ) -> Result<RequestBody, ApiError> {
        if coding == Coding::Identity {
            return Ok(body);
        }
        let (max, mut plain, mut share) = (self.bytes_max, bytes::BytesMut::new(), None);
        coding.decode(&body, |piece| {
            if plain.len() + piece.len() > max {
                return Err(too_large("decodes to more than", max));
            }
            self.grow(&mut share, holder, piece.len())?;
            plain.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(RequestBody { bytes: plain.freeze(), _share: share })
    }

    async fn whole_body(
        &self,
        mut payload: Payload,
        announced: Option<usize>,
        holder: Holder,
    ) -> Result<RequestBody, ApiError> {
        let max = self.bytes_max;
        if announced.is_some_and(|n| n > max) {
            return Err(too_large("is larger than", max));
        }
        let mut body = bytes::BytesMut::new();
        let mut share: Option<Share> = None;
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|e| ApiError::invalid_body(format!("the body broke off: {e}")))?;
            if body.len() + chunk.len() > max {
                return Err(too_large("is larger than", max));
            }
            // Taken as bytes arrive: what a head announces takes nothing, or a few heads could keep everybody out.
            self.grow(&mut share, holder, chunk.len())?;
            body.extend_from_slice(&chunk);
        }
        Ok(RequestBody { bytes: body.freeze(), _share: share })
    }

    /// Room for this many bytes more among those of all bodies in flight.
    pub(in crate::http) fn grow(
        &self,
        share: &mut Option<Share>,
        holder: Holder,
        bytes: usize,
    ) -> Result<(), ApiError> {
        let taken = match share {
            Some(share) => share.grow(bytes),
            None => {
                *share = self.room.take(holder, bytes);
                share.is_some()
            }
        };
        if taken { Ok(()) } else { Err(self.no_room()) }
    }

    /// Says what there is for all, and nothing of who has it.
    fn no_room(&self) -> ApiError {
        let total = self.room.total();
        let message = format!("there is no room for this body now: the bodies of all requests share {total} bytes");
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message).with_code(BODIES_FULL);
        error.with_retry_after(BODIES_RETRY).rejected_as(BODIES_FULL)
    }
}

pub(in crate::http) fn too_large(how: &str, max: usize) -> ApiError {
    let message = format!("the body {how} {max} bytes, the most that is taken");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
        .with_code("body_too_large")
        .rejected_as("body_too_large")
}

/// The length of the body as its head says.
pub(in crate::http) fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

//! WebSockets (RFC 6455) at the edge: a connection that was upgraded brings messages, each within the bounds of a body,
//! and takes frames no faster than its client reads them. What a message asks for is not known here.

mod end;
mod incoming;
mod outgoing;

use super::settings::Patience;
use super::shares::{Room, Share};
use crate::holder::Holder;
use crate::http::wire::error::ApiError;
use crate::{limits, metrics};
use actix_http::ws::handshake;
use actix_web::http::{StatusCode, Version};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use std::sync::Arc;
use std::time::Duration;

pub(in crate::http) use end::SocketEnd;
pub(in crate::http) use incoming::Incoming;
pub(in crate::http) use outgoing::Outgoing;

/// Within which bounds sockets are served.
#[derive(Debug)]
pub struct Sockets {
    /// Sockets open at once.
    room: Arc<Room>,
    /// Bytes that all of them remember together.
    pub(in crate::http) memory: Arc<Room>,
    /// The longest silence between two requests.
    pub(in crate::http) idle: Duration,
    /// The longest that one is open.
    pub(in crate::http) life: Duration,
    /// How long a client may leave unread what was sent to it.
    unread: Duration,
}

impl Sockets {
    /// The usual number of them, with clients that may take so long.
    pub fn within(patience: &Patience) -> Self {
        Self {
            room: Room::new(limits::SOCKETS_MAX, 1),
            memory: Room::new(limits::SOCKETS_BYTES_MAX, 0),
            idle: patience.socket_idle,
            life: patience.socket_life,
            unread: patience.unread,
        }
    }

    /// Opens a socket for messages of so many bytes, or says why not. The reply has to be sent for anything to come.
    pub(in crate::http) fn open(
        &self,
        request: &HttpRequest,
        payload: Payload,
        (holder, bytes_max): (Holder, usize),
    ) -> Result<(HttpResponse, Incoming, Outgoing), ApiError> {
        if request.version() < Version::HTTP_11 {
            return Err(no_handshake("HTTP/1.1 is wanted"));
        }
        let mut reply = handshake(request.head()).map_err(|error| no_handshake(&error.to_string()))?;
        let place = self.room.take(holder, 1).ok_or_else(no_room)?;
        let (outgoing, frames) = Outgoing::new(OpenSocket::new(place), self.unread);
        let reply = reply.message_body(frames).expect("each header of a handshake is a header");
        Ok((reply.into(), Incoming::new(payload.into_inner(), holder, bytes_max), outgoing))
    }
}

/// A socket that counts until it is over.
#[derive(Debug)]
struct OpenSocket(#[expect(dead_code, reason = "held for its drop")] Share);

impl OpenSocket {
    fn new(place: Share) -> Self {
        ::metrics::gauge!(metrics::SOCKETS).increment(1.0);
        Self(place)
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        ::metrics::gauge!(metrics::SOCKETS).decrement(1.0);
    }
}

fn no_handshake(why: &str) -> ApiError {
    let message = format!("this is no handshake of a WebSocket of version 13: {why}");
    ApiError::invalid_body(message).with_code("websocket_handshake")
}

fn no_room() -> ApiError {
    let message = format!("there is no room for this WebSocket now: all clients share {}", limits::SOCKETS_MAX);
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message)
        .with_code("too_many_websockets")
        .with_retry_after(Duration::from_secs(1))
        .rejected_as("bodies_full")
}

//! What a client says on a socket: frames put together to messages of text. A message keeps to the bounds of a body, in
//! bytes, in time, and in the room that all bodies share, of which it takes as its bytes arrive.

use super::end::SocketEnd;
use super::outgoing::Outgoing;
use crate::holder::Holder;
use crate::http::edge::arrival::{Bodies, RequestBody, too_large};
use crate::http::edge::connections::faults::{self, ClientFault};
use crate::http::edge::shares::Share;
use crate::http::wire::error::ApiError;
use actix_codec::Decoder;
use actix_http::ws::{CloseCode, Codec, Frame, Item, ProtocolError};
use actix_rt::time::timeout;
use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use std::time::{Duration, Instant};

/// The longest head of a frame.
const HEAD_BYTES: usize = 14;

/// The messages of a client.
pub(in crate::http) struct Incoming {
    payload: Payload,
    codec: Codec,
    holder: Holder,
    /// Bytes of a frame that is not whole.
    came: BytesMut,
    /// Of a message in several frames, those that came.
    begun: Option<BytesMut>,
    /// Room for the bytes of both.
    share: Option<Share>,
    /// When the first byte of a message came that is not whole.
    since: Option<Instant>,
}

impl Incoming {
    /// Those of a connection, of so many bytes at most each.
    pub(super) fn new(payload: Payload, holder: Holder, bytes_max: usize) -> Self {
        let codec = Codec::new().max_size(bytes_max);
        Self { payload, codec, holder, came: BytesMut::new(), begun: None, share: None, since: None }
    }

    /// The next message, or the end. Pings are answered on the way. Whoever stops waiting loses nothing.
    pub(in crate::http) async fn message(
        &mut self,
        bodies: &Bodies,
        outgoing: &Outgoing,
    ) -> Result<RequestBody, SocketEnd> {
        loop {
            match self.codec.decode(&mut self.came) {
                Ok(Some(frame)) => {
                    if let Some(text) = self.take(frame, bodies, outgoing)? {
                        return self.whole(text);
                    }
                }
                Ok(None) => self.more(bodies).await?,
                Err(ProtocolError::Overflow) => return Err(too_long(bodies)),
                Err(error) => {
                    faults::count(ClientFault::Malformed, Some(&error));
                    return Err(SocketEnd::told(CloseCode::Protocol, "the bytes are no frames of a client"));
                }
            }
        }
    }

    /// Waits for more bytes, as long as a body may take once a message began.
    async fn more(&mut self, bodies: &Bodies) -> Result<(), SocketEnd> {
        if self.came.is_empty() && self.begun.is_none() {
            (self.share, self.since) = (None, None);
        }
        let next = self.payload.next();
        let piece = match self.since {
            None => next.await,
            Some(since) => timeout(left(since, bodies.time), next).await.map_err(|_| too_slow(bodies))?,
        };
        let Some(Ok(piece)) = piece else { return Err(SocketEnd::Gone) };
        if self.held() + piece.len() > bodies.bytes_max + HEAD_BYTES {
            return Err(too_long(bodies));
        }
        let room = bodies.grow(&mut self.share, self.holder, piece.len());
        room.map_err(|error| SocketEnd::refused(error, CloseCode::Again, "no room for this message now"))?;
        self.since.get_or_insert_with(Instant::now);
        self.came.extend_from_slice(&piece);
        Ok(())
    }

    /// Bytes that are kept here.
    fn held(&self) -> usize {
        self.came.len() + self.begun.as_ref().map_or(0, BytesMut::len)
    }

    /// Takes a frame. The text of a message that is whole now.
    fn take(&mut self, frame: Frame, bodies: &Bodies, outgoing: &Outgoing) -> Result<Option<Bytes>, SocketEnd> {
        match frame {
            Frame::Text(text) => return Ok(Some(text)),
            Frame::Continuation(Item::FirstText(text)) => self.begun = Some(BytesMut::from(&text[..])),
            Frame::Continuation(Item::Continue(text)) => self.go_on(&text, bodies)?,
            Frame::Continuation(Item::Last(text)) => {
                self.go_on(&text, bodies)?;
                return Ok(self.begun.take().map(BytesMut::freeze));
            }
            Frame::Binary(_) | Frame::Continuation(Item::FirstBinary(_)) => return Err(no_text()),
            Frame::Ping(bytes) => outgoing.pong(&bytes),
            Frame::Pong(_) => {}
            Frame::Close(reason) => return Err(SocketEnd::Closed(reason)),
        }
        Ok(None)
    }

    fn go_on(&mut self, text: &[u8], bodies: &Bodies) -> Result<(), SocketEnd> {
        let begun = self.begun.as_mut().expect("the codec lets no continuation pass without a beginning");
        if begun.len() + text.len() > bodies.bytes_max {
            return Err(too_long(bodies));
        }
        begun.extend_from_slice(text);
        Ok(())
    }

    /// A message with the room that it takes.
    fn whole(&mut self, text: Bytes) -> Result<RequestBody, SocketEnd> {
        self.since = (!self.came.is_empty()).then(Instant::now);
        if std::str::from_utf8(&text).is_err() {
            return Err(SocketEnd::told(CloseCode::Invalid, "the text is not UTF-8"));
        }
        Ok(RequestBody::of_message(text, self.share.take()))
    }
}

/// What is left of a time that began then.
fn left(since: Instant, time: Duration) -> Duration {
    time.saturating_sub(since.elapsed())
}

fn too_long(bodies: &Bodies) -> SocketEnd {
    SocketEnd::refused(too_large("is larger than", bodies.bytes_max), CloseCode::Size, "the message is too large")
}

fn too_slow(bodies: &Bodies) -> SocketEnd {
    faults::count(ClientFault::SlowBody, None);
    SocketEnd::refused(bodies.too_slow(), CloseCode::Policy, "the message took too long to arrive")
}

fn no_text() -> SocketEnd {
    let message = "a message must be text with a JSON object, got a binary one";
    let error = ApiError::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
        .with_code("binary_message")
        .rejected_as("invalid");
    SocketEnd::refused(error, CloseCode::Unsupported, "a message must be text")
}

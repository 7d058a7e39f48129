//! What a client is sent on a socket. Frames wait here until the connection takes them, one piece at a time, so whoever
//! writes goes no faster than the client reads; one that reads nothing for too long is given up.

use super::OpenSocket;
use super::end::SocketEnd;
use actix_http::ws::{CloseReason, OpCode, Parser};
use actix_rt::time::timeout;
use actix_web::body::{BodyStream, BoxBody};
use bytes::{Bytes, BytesMut};
use futures_util::stream::poll_fn;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc;

/// The frames for a client.
#[derive(Clone)]
pub(in crate::http) struct Outgoing {
    frames: mpsc::Sender<Bytes>,
    unread: Duration,
}

impl Outgoing {
    /// For a socket whose client may leave unread for so long what was sent to it; and the body of the reply that
    /// opens it, with which `open` ends.
    pub(super) fn new(open: OpenSocket, unread: Duration) -> (Self, BoxBody) {
        let (sender, mut frames) = mpsc::channel(1);
        let body = poll_fn(move |cx| {
            let _open = &open;
            frames.poll_recv(cx).map(|frames: Option<Bytes>| frames.map(Ok::<_, Infallible>))
        });
        (Self { frames: sender, unread }, BoxBody::new(BodyStream::new(body)))
    }

    /// Sends each of these texts, which stand in lines, as a message; an empty line is a ping.
    pub(in crate::http) async fn lines(&self, lines: &[u8]) -> Result<(), SocketEnd> {
        let mut frames = BytesMut::with_capacity(lines.len());
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            match line.strip_suffix(b"\n").unwrap_or(line) {
                [] => frame(&mut frames, OpCode::Ping, b""),
                text => frame(&mut frames, OpCode::Text, text),
            }
        }
        self.send(frames).await
    }

    /// Answers a ping, unless frames wait already: then the client hears enough.
    pub(super) fn pong(&self, bytes: &[u8]) {
        let mut frames = BytesMut::new();
        frame(&mut frames, OpCode::Pong, bytes);
        self.frames.try_send(frames.freeze()).ok();
    }

    /// Ends the socket with a closing frame.
    pub(in crate::http) async fn close(&self, reason: Option<CloseReason>) {
        let mut frames = BytesMut::new();
        Parser::write_close(&mut frames, reason, false);
        self.send(frames).await.ok();
    }

    /// Returns when the connection is gone.
    pub(in crate::http) async fn gone(&self) {
        self.frames.closed().await;
    }

    async fn send(&self, frames: BytesMut) -> Result<(), SocketEnd> {
        let sent = timeout(self.unread, self.frames.send(frames.freeze())).await;
        sent.ok().and_then(Result::ok).ok_or(SocketEnd::Gone)
    }
}

/// Writes one frame, which a server does not mask.
fn frame(out: &mut BytesMut, kind: OpCode, bytes: &[u8]) {
    Parser::write_message(out, bytes, kind, true, false);
}

//! The body of a stream: what there is as it comes, a sign of life when nothing comes, and its end.

use super::dialect::Frames;
use super::remembered::RememberedOutputs;
use crate::actors::request::output::Output;
use crate::http::edge::shares::Share;
use actix_rt::time::{Sleep, sleep};
use actix_web::body::{BodySize, MessageBody};
use bytes::{Bytes, BytesMut};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Frames that are ready together go out together, up to about this many bytes.
const WRITE_BYTES: usize = 16 << 10;

/// The body of a streamed reply. Dropping it cancels the request.
pub(super) struct Events<F> {
    outputs: RememberedOutputs,
    /// Of what the turn keeps of its body.
    _room: Option<Share>,
    frames: F,
    keep_alive: Duration,
    /// Fires when the client has heard nothing for that long.
    idle: Pin<Box<Sleep>>,
    opened: bool,
    over: bool,
}

impl<F: Frames> Events<F> {
    /// The events of a request that was accepted. A sign of life is sent after each `keep_alive` of silence: the
    /// client's absence shows only when we write to a half-open connection, and proxies close silent ones.
    pub(super) fn new((outputs, _room): (RememberedOutputs, Option<Share>), frames: F, keep_alive: Duration) -> Self {
        Self { outputs, _room, frames, keep_alive, idle: Box::pin(sleep(keep_alive)), opened: false, over: false }
    }

    /// Frames everything that is there already.
    fn gather(&mut self, cx: &mut Context<'_>) -> BytesMut {
        let mut buffer = BytesMut::new();
        if !std::mem::replace(&mut self.opened, true) {
            self.frames.opening(&mut buffer);
        }
        while !self.over && buffer.len() < WRITE_BYTES {
            // An actor that went away without a word is a bug: the client must not take that for the end.
            let broken = || Output::Failed("the stream broke off".into());
            let Poll::Ready(output) = self.outputs.poll_next(cx) else { break };
            let output = output.unwrap_or_else(broken);
            self.over = matches!(output, Output::End(_) | Output::Failed(_) | Output::Refused(_));
            if let Err(error) = self.frames.output(output, &mut buffer) {
                self.frames.error(&error, &mut buffer);
                self.over = true;
            }
        }
        buffer
    }
}

impl<F: Frames + Unpin> MessageBody for Events<F> {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let mut buffer = self.gather(cx);
        if buffer.is_empty() {
            ready!(self.idle.as_mut().poll(cx));
            self.frames.still_here(&mut buffer);
        }
        let next = actix_rt::time::Instant::now() + self.keep_alive;
        self.idle.as_mut().reset(next);
        Poll::Ready(Some(Ok(buffer.freeze())))
    }
}

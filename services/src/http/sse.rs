//! A stream as server-sent events: chunks, comments when nothing comes, and its end.

use super::answer::{Chunks, Shape};
use super::error::ApiError;
use crate::actors::request::Outputs;
use actix_rt::time::{Sleep, sleep};
use actix_web::body::{BodySize, MessageBody};
use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Frames that are ready together go out together, up to about this many bytes.
const WRITE_BYTES: usize = 16 << 10;

/// The body of a streamed reply. Dropping it cancels the request.
pub struct Events<S> {
    outputs: Outputs,
    chunks: Chunks<S>,
    keep_alive: Duration,
    /// Fires when the client has heard nothing for that long.
    idle: Pin<Box<Sleep>>,
    over: bool,
}

impl<S: Shape> Events<S> {
    /// The events of a request that was accepted. A comment is sent after each `keep_alive` of silence: the client's absence shows only
    /// when we write to a half-open connection, and proxies close silent ones.
    pub fn new(outputs: Outputs, chunks: Chunks<S>, keep_alive: Duration) -> Self {
        Self { outputs, chunks, keep_alive, idle: Box::pin(sleep(keep_alive)), over: false }
    }

    /// Frames everything that is there already.
    fn gather(&mut self, cx: &mut Context<'_>) -> BytesMut {
        let mut buffer = BytesMut::new();
        while !self.over && buffer.len() < WRITE_BYTES {
            match Pin::new(&mut self.outputs).poll_next(cx) {
                Poll::Ready(Some(output)) => {
                    let ends = matches!(output, crate::actors::output::Output::End(_));
                    match self.chunks.of(output) {
                        Ok(chunks) => chunks.iter().for_each(|chunk| frame(&mut buffer, chunk)),
                        Err(error) => self.fail(&error, &mut buffer),
                    }
                    if ends {
                        buffer.put_slice(b"data: [DONE]\n\n");
                        self.over = true;
                    }
                }
                // Its actor went away without a word, which only a bug does: the client must not take that for the end.
                Poll::Ready(None) => self.fail(&super::answer::engine_error("the stream broke off".into()), &mut buffer),
                Poll::Pending => break,
            }
        }
        buffer
    }

    fn fail(&mut self, error: &ApiError, buffer: &mut BytesMut) {
        buffer.put_slice(b"event: error\n");
        frame(buffer, error);
        self.over = true;
    }
}

fn frame(buffer: &mut BytesMut, value: &impl Serialize) {
    buffer.put_slice(b"data: ");
    serde_json::to_writer(buffer.writer(), value).expect("JSON values have no keys but strings, and memory takes every write");
    buffer.put_slice(b"\n\n");
}

impl<S: Shape + Unpin> MessageBody for Events<S> {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let buffer = self.gather(cx);
        if buffer.is_empty() {
            ready!(self.idle.as_mut().poll(cx));
        }
        let next = actix_rt::time::Instant::now() + self.keep_alive;
        self.idle.as_mut().reset(next);
        Poll::Ready(Some(Ok(if buffer.is_empty() { Bytes::from_static(b": still here\n\n") } else { buffer.freeze() })))
    }
}

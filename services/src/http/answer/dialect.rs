//! What every dialect says about its answers: how outputs go out as a stream, and how they go out whole.

use super::{ChoiceFormat, Chunks, Envelope, Whole};
use crate::actors::output::Output;
use crate::http::wire::error::ApiError;
use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde_json::Value;

/// A reply that begins: all that is known of it before its first output.
#[derive(Clone, Debug)]
pub struct Begun {
    /// What all of it has in common.
    pub envelope: Envelope,
    /// How many choices it has.
    pub choices: usize,
    /// The client asked for a last chunk with the usage.
    pub include_usage: bool,
    /// Tokens of all prompts.
    pub prompt_tokens: usize,
}

/// How the answers of one endpoint look. Endpoints of OpenAI's first kind have choices and say only how those look:
/// [`ChoiceFormat`].
pub trait Dialect {
    /// Writes a stream.
    type Stream: Frames + Unpin + 'static;
    /// Collects a whole reply.
    type Whole: WholeReply;

    /// A stream that begins.
    fn streamed(self, begun: Begun) -> Self::Stream;

    /// A whole reply that begins.
    fn collected(self, begun: Begun) -> Self::Whole;
}

/// The outputs of a request as bytes of a stream.
pub trait Frames {
    /// `content-type` of the stream.
    const CONTENT_TYPE: &'static str = "text/event-stream; charset=utf-8";

    /// What comes before the first output, as soon as the request was taken.
    fn opening(&mut self, _out: &mut BytesMut) {}

    /// What an output looks like, or the error that ends the stream.
    fn output(&mut self, output: Output, out: &mut BytesMut) -> Result<(), ApiError>;

    /// The last that is said where something broke.
    fn error(&mut self, error: &ApiError, out: &mut BytesMut);

    /// What is said when there has been nothing to say for long.
    fn still_here(&mut self, out: &mut BytesMut) {
        out.put_slice(b": still here\n\n");
    }
}

/// The outputs of a request as one reply.
pub trait WholeReply {
    /// Takes an output. The last one gives the reply.
    fn of(&mut self, output: Output) -> Result<Option<Value>, ApiError>;
}

impl<S: ChoiceFormat + Unpin + 'static> Dialect for S {
    type Stream = Chunks<S>;
    type Whole = Whole<S>;

    fn streamed(self, begun: Begun) -> Chunks<S> {
        Chunks::new(begun.envelope, self, begun.choices, begun.include_usage)
    }

    fn collected(self, begun: Begun) -> Whole<S> {
        Whole::new(begun.envelope, self, begun.choices)
    }
}

impl<S: ChoiceFormat> Frames for Chunks<S> {
    fn output(&mut self, output: Output, out: &mut BytesMut) -> Result<(), ApiError> {
        let ends = matches!(output, Output::End(_));
        self.of(output)?.iter().for_each(|chunk| event(out, None, chunk));
        if ends {
            out.put_slice(b"data: [DONE]\n\n");
        }
        Ok(())
    }

    fn error(&mut self, error: &ApiError, out: &mut BytesMut) {
        event(out, Some("error"), error);
    }
}

impl<S: ChoiceFormat> WholeReply for Whole<S> {
    fn of(&mut self, output: Output) -> Result<Option<Value>, ApiError> {
        Whole::of(self, output)
    }
}

/// A server-sent event.
pub(super) fn event(out: &mut BytesMut, name: Option<&str>, data: &impl Serialize) {
    if let Some(name) = name {
        out.put_slice(b"event: ");
        out.put_slice(name.as_bytes());
        out.put_slice(b"\n");
    }
    out.put_slice(b"data: ");
    json(out, data);
    out.put_slice(b"\n\n");
}

/// A value as JSON.
pub(super) fn json(out: &mut BytesMut, value: &impl Serialize) {
    serde_json::to_writer(out.writer(), value)
        .expect("JSON values have no keys but strings, and memory takes every write");
}

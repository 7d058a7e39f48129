//! What every dialect says about its answers: how outputs go out as a stream, and how they go out whole.

use crate::actors::request::output::{FileSearch, Output};
use crate::actors::request::spec::StreamOptions;
use crate::http::wire::error::ApiError;
use crate::turn::ToldTools;
use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// What all chunks of a reply have in common.
#[derive(Clone, Debug)]
pub(in crate::http) struct Envelope {
    /// Id of the reply, `chatcmpl-...` or `cmpl-...`.
    pub id: String,
    /// When the request came, in seconds since 1970.
    pub created: u64,
    /// As the client asked for it.
    pub model: String,
    /// Changes when the same request may give other bytes.
    pub fingerprint: Arc<str>,
    /// Of the random numbers, drawn or given.
    pub seed: i64,
}

/// A reply that begins: all that is known of it before its first output.
#[derive(Clone, Debug)]
pub(in crate::http) struct Begun {
    /// What all of it has in common.
    pub envelope: Envelope,
    /// How many choices it has.
    pub choices: usize,
    /// What the client wants to be told beside the answer.
    pub stream_options: StreamOptions,
    /// Tokens of all prompts.
    pub prompt_tokens: usize,
    /// Searches that were made for its prompt.
    pub searches: Vec<FileSearch>,
    /// Tools that the service runs, and calls of them that were made for its prompt.
    pub tools: ToldTools,
}

/// How the answers of one endpoint look.
pub(in crate::http) trait Dialect {
    /// What writes the answer as a stream.
    type Stream: Frames + Unpin + 'static;
    /// Collects a whole reply.
    type Whole: WholeReply;

    /// A stream that begins.
    fn streamed(self, begun: Begun) -> Self::Stream;

    /// A whole reply that begins.
    fn collected(self, begun: Begun) -> Self::Whole;
}

/// The outputs of a request as bytes of a stream.
pub(in crate::http) trait Frames {
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
        still_here(out);
    }
}

/// Writes a comment, which clients of server-sent events pass over.
pub(in crate::http) fn still_here(out: &mut BytesMut) {
    out.put_slice(b": still here\n\n");
}

/// The outputs of a request as one reply.
pub(in crate::http) trait WholeReply {
    /// Takes an output. The last one gives the reply.
    fn of(&mut self, output: Output) -> Result<Option<Value>, ApiError>;
}

/// Writes one server-sent event, with a name or without.
pub(in crate::http) fn event(out: &mut BytesMut, name: Option<&str>, data: &impl Serialize) {
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
pub(in crate::http) fn json(out: &mut BytesMut, value: &impl Serialize) {
    serde_json::to_writer(out.writer(), value)
        .expect("JSON values have no keys but strings, and memory takes every write");
}

//! Messages of Anthropic's API: blocks of thoughts, text and uses of tools, streamed as named events.

use super::error;
use crate::actors::request::output::{Finish, Output, RequestUsage};
use crate::citations::{Citation, SourcePlace};
use crate::http::reply::dialect::{Begun, Dialect, Frames, WholeReply, event};
use crate::http::reply::parts::{Part, PartCall, PartStep, Parts};
use crate::http::wire::error::ApiError;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::BytesMut;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::ops::Range;

/// Replies that are messages.
#[derive(Clone, Debug)]
pub(super) struct MessageFormat {
    /// The request's stop sequences, to name the one that ended the answer.
    pub stop: Vec<String>,
    /// Thoughts are shown; otherwise only that there were some.
    pub shows_thoughts: bool,
}

/// A message as it comes: the stream, and the whole reply too.
pub(super) struct MessageAnswer {
    about: MessageFormat,
    begun: Begun,
    parts: Parts,
}

impl Dialect for MessageFormat {
    type Stream = MessageAnswer;
    type Whole = MessageAnswer;

    fn streamed(self, begun: Begun) -> MessageAnswer {
        MessageAnswer { about: self, begun, parts: Parts::split_at_citations() }
    }

    fn collected(self, begun: Begun) -> MessageAnswer {
        self.streamed(begun)
    }
}

impl Frames for MessageAnswer {
    fn opening(&mut self, out: &mut BytesMut) {
        let tokens = self.begun.prompt_tokens;
        // What a cache spared is known later, and told at the end.
        let usage = json!({"input_tokens": tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
            "output_tokens": 0});
        tell(out, "message_start", [("message", self.message(Vec::new(), usage))]);
    }

    fn output(&mut self, output: Output, out: &mut BytesMut) -> Result<(), ApiError> {
        // This API has no block for a search of files: its text goes on behind it.
        if output.is_of_server() {
            return Ok(());
        }
        let shows = self.about.shows_thoughts;
        if let Some(account) = self.parts.take(output, |step| frame(out, shows, step))? {
            let mut delta = json!({"stop_reason": self.stop_reason(), "stop_sequence": self.stop_sequence()});
            self.details_into(&mut delta);
            tell(out, "message_delta", [("delta", delta), ("usage", usage(&account))]);
            tell(out, "message_stop", []);
        }
        Ok(())
    }

    fn error(&mut self, error: &ApiError, out: &mut BytesMut) {
        event(out, Some("error"), &error::written(error, None));
    }

    fn still_here(&mut self, out: &mut BytesMut) {
        tell(out, "ping", []);
    }
}

impl WholeReply for MessageAnswer {
    fn of(&mut self, output: Output) -> Result<Option<Value>, ApiError> {
        if output.is_of_server() {
            return Ok(None);
        }
        let Some(account) = self.parts.take(output, |_| {})? else { return Ok(None) };
        let content = self.parts.all().iter().filter_map(|part| self.block(part)).collect();
        let mut message = self.message(content, usage(&account));
        self.details_into(&mut message);
        Ok(Some(message))
    }
}

impl MessageAnswer {
    fn message(&self, content: Vec<Value>, usage: Value) -> Value {
        let envelope = &self.begun.envelope;
        json!({
            "id": envelope.id,
            "type": "message",
            "role": "assistant",
            "model": envelope.model,
            "content": content,
            "stop_reason": self.stop_reason(),
            "stop_sequence": self.stop_sequence(),
            "usage": usage,
        })
    }

    fn stop_reason(&self) -> Option<&'static str> {
        self.parts.finish().map(|finish| match finish {
            Finish::Stop => "end_turn",
            Finish::StopString(_) => "stop_sequence",
            Finish::Length => "max_tokens",
            Finish::ToolCalls => "tool_use",
        })
    }

    /// Says that the model ended its turn inside of a use of a tool, for which there is no reason to stop.
    fn details_into(&self, message: &mut Value) {
        if let (Some(Finish::Stop), Some(call)) = (self.parts.finish(), self.parts.incomplete_call()) {
            let explanation = format!("the turn ended inside of the use of {}, which is incomplete", call.name);
            message["stop_details"] = json!({"type": "incomplete_tool_use", "explanation": explanation});
        }
    }

    fn stop_sequence(&self) -> Option<&str> {
        let Some(Finish::StopString(which)) = self.parts.finish() else { return None };
        self.about.stop.get(which).map(String::as_str)
    }

    /// A block of a whole reply. A use of a tool that was cut off has no input that anybody could use, and is left out.
    fn block(&self, part: &Part) -> Option<Value> {
        match part {
            Part::Thought(text) => {
                let shown = if self.about.shows_thoughts { text } else { "" };
                Some(json!({"type": "thinking", "thinking": shown, "signature": signature(text)}))
            }
            Part::Text(part) if part.citations.is_empty() => Some(json!({"type": "text", "text": part.text})),
            Part::Text(part) => {
                let citations: Vec<Value> = part.citations.iter().map(cited).collect();
                Some(json!({"type": "text", "text": part.text, "citations": citations}))
            }
            Part::Call(call) => tool_use(call, serde_json::from_str(&call.arguments).ok()?),
            Part::Search(_) | Part::Tools(_) | Part::Run(_) | Part::Web(_) => None,
        }
    }
}

fn tool_use(call: &PartCall, input: Map<String, Value>) -> Option<Value> {
    let whole = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input});
    (!call.incomplete).then_some(whole)
}

fn frame(out: &mut BytesMut, shows_thoughts: bool, step: PartStep<'_>) {
    match step {
        PartStep::Begin(at, part) => {
            let block = match part {
                Part::Thought(_) => json!({"type": "thinking", "thinking": "", "signature": ""}),
                Part::Text(_) => json!({"type": "text", "text": ""}),
                Part::Call(call) => json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}),
                Part::Search(_) | Part::Tools(_) | Part::Run(_) | Part::Web(_) => return,
            };
            tell(out, "content_block_start", [("index", json!(at)), ("content_block", block)]);
        }
        PartStep::More(_, Part::Thought(_), ..) if !shows_thoughts => {}
        PartStep::More(at, part, more, _) => {
            let delta = match part {
                Part::Thought(_) => json!({"type": "thinking_delta", "thinking": more}),
                Part::Text(_) => json!({"type": "text_delta", "text": more}),
                Part::Call(_) => json!({"type": "input_json_delta", "partial_json": more}),
                Part::Search(_) | Part::Tools(_) | Part::Run(_) | Part::Web(_) => return,
            };
            tell(out, "content_block_delta", [("index", json!(at)), ("delta", delta)]);
        }
        PartStep::Cited(at, _, _, citation) => {
            let delta = json!({"type": "citations_delta", "citation": cited(citation)});
            tell(out, "content_block_delta", [("index", json!(at)), ("delta", delta)]);
        }
        PartStep::End(at, part) => {
            if let Part::Thought(text) = part {
                let delta = json!({"type": "signature_delta", "signature": signature(text)});
                tell(out, "content_block_delta", [("index", json!(at)), ("delta", delta)]);
            }
            tell(out, "content_block_stop", [("index", json!(at))]);
        }
    }
}

/// A citation in the form that the kind of its source has.
fn cited(citation: &Citation) -> Value {
    let (source, quote, span) = (citation.source(), citation.quote(), &citation.span);
    match &source.place {
        SourcePlace::Document { index, blocks: None } => {
            let characters = |bytes: usize| source.text[..bytes].chars().count();
            let (start, end) = (characters(span.start), characters(span.end));
            json!({"type": "char_location", "cited_text": quote, "document_index": index,
                "document_title": source.title, "file_id": null, "start_char_index": start, "end_char_index": end})
        }
        SourcePlace::Document { index, blocks: Some(blocks) } => {
            let (start, end) = blocks_of(blocks, span);
            json!({"type": "content_block_location", "cited_text": quote, "document_index": index,
                "document_title": source.title, "file_id": null, "start_block_index": start, "end_block_index": end})
        }
        SourcePlace::SearchResult { index, source: found_at, blocks } => {
            let (start, end) = blocks_of(blocks, span);
            json!({"type": "search_result_location", "cited_text": quote, "search_result_index": index,
                "source": found_at, "title": source.title, "start_block_index": start, "end_block_index": end})
        }
        SourcePlace::Web { url, title } => {
            json!({"type": "web_search_result_location", "cited_text": quote, "url": url, "title": title,
                "encrypted_index": citation.source.to_string()})
        }
        SourcePlace::File { file_id, filename, .. } => {
            json!({"type": "search_result_location", "cited_text": quote, "search_result_index": citation.source,
                "source": file_id, "title": filename, "start_block_index": 0, "end_block_index": 1})
        }
    }
}

/// The first block that a span touches, and the one behind the last.
fn blocks_of(begins: &[usize], span: &Range<usize>) -> (usize, usize) {
    let first = begins.partition_point(|begin| *begin <= span.start).saturating_sub(1);
    (first, begins.partition_point(|begin| *begin < span.end).max(first + 1))
}

/// An event whose name stands in its data too, first.
fn tell<const N: usize>(out: &mut BytesMut, name: &str, fields: [(&str, Value); N]) {
    let named = [("type".to_owned(), json!(name))];
    let data: Map<String, Value> = named.into_iter().chain(fields.map(|(k, v)| (k.to_owned(), v))).collect();
    event(out, Some(name), &data);
}

/// Clients keep it and send it back with the thought. Nothing is decided by it here, so it proves nothing: it is the
/// thought's hash.
fn signature(thought: &str) -> String {
    BASE64_STANDARD.encode(Sha256::digest(thought))
}

/// Anthropic counts the tokens that a cache spared apart from the others.
fn usage(account: &RequestUsage) -> Value {
    json!({
        "input_tokens": account.prompt_tokens - account.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": account.cached_tokens,
        "output_tokens": account.completion_tokens,
        "output_tokens_details": {"thinking_tokens": account.reasoning_tokens},
    })
}

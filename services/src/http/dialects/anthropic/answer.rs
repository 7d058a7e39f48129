//! Messages of Anthropic's API: blocks of thoughts, text and uses of tools, streamed as named events.

use super::error;
use super::web::{input, requests, result, tool_use as web_use, use_id};
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
    /// Blocks so far that are results of the web: such a part of the answer has a second block.
    results: usize,
}

impl Dialect for MessageFormat {
    type Stream = MessageAnswer;
    type Whole = MessageAnswer;

    fn streamed(self, begun: Begun) -> MessageAnswer {
        MessageAnswer { about: self, begun, parts: Parts::split_at_citations(), results: 0 }
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
        if !has_blocks(&output) {
            return Ok(());
        }
        let Self { about: MessageFormat { shows_thoughts, .. }, begun, parts, results } = self;
        let id = &begun.envelope.id;
        let mut blocks = BlockFrames { out, shows_thoughts: *shows_thoughts, message: id, results };
        if let Some(account) = parts.take(output, |step| blocks.write(step))? {
            let mut delta = json!({"stop_reason": self.stop_reason(), "stop_sequence": self.stop_sequence()});
            self.details_into(&mut delta);
            tell(out, "message_delta", [("delta", delta), ("usage", self.usage(&account))]);
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
        if !has_blocks(&output) {
            return Ok(None);
        }
        let Some(account) = self.parts.take(output, |_| {})? else { return Ok(None) };
        let content = self.parts.all().iter().enumerate().flat_map(|(at, part)| self.blocks(at, part)).collect();
        let mut message = self.message(content, self.usage(&account));
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

    fn usage(&self, account: &RequestUsage) -> Value {
        let mut usage = usage(account);
        if let Some(requests) = requests(self.parts.all()) {
            usage["server_tool_use"] = requests;
        }
        usage
    }

    fn stop_sequence(&self) -> Option<&str> {
        let Some(Finish::StopString(which)) = self.parts.finish() else { return None };
        self.about.stop.get(which).map(String::as_str)
    }

    /// The blocks of a part of a whole reply.
    fn blocks(&self, at: usize, part: &Part) -> Vec<Value> {
        let Part::Web(action) = part else { return self.block(part).into_iter().collect() };
        let id = use_id(&self.begun.envelope.id, at);
        let mut used = web_use(&id, action);
        used["input"] = input(action);
        vec![used, result(&id, action)]
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

/// Writes the blocks of a stream as they come.
struct BlockFrames<'a> {
    out: &'a mut BytesMut,
    shows_thoughts: bool,
    /// Id of the message, in which those of its uses of tools begin.
    message: &'a str,
    results: &'a mut usize,
}

impl BlockFrames<'_> {
    fn write(&mut self, step: PartStep<'_>) {
        match step {
            PartStep::Begin(at, Part::Web(action)) => {
                let input = json!({"type": "input_json_delta", "partial_json": input(action).to_string()});
                self.start(at, web_use(&use_id(self.message, at), action));
                self.delta(at, input);
                self.stop(at);
            }
            PartStep::End(at, Part::Web(action)) => {
                *self.results += 1;
                self.start(at, result(&use_id(self.message, at), action));
                self.stop(at);
            }
            PartStep::Begin(at, part) => match part {
                Part::Thought(_) => self.start(at, json!({"type": "thinking", "thinking": "", "signature": ""})),
                Part::Text(_) => self.start(at, json!({"type": "text", "text": ""})),
                Part::Call(call) => {
                    self.start(at, json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}));
                }
                Part::Search(_) | Part::Tools(_) | Part::Run(_) | Part::Web(_) => {}
            },
            PartStep::More(_, Part::Thought(_), ..) if !self.shows_thoughts => {}
            PartStep::More(at, part, more, _) => match part {
                Part::Thought(_) => self.delta(at, json!({"type": "thinking_delta", "thinking": more})),
                Part::Text(_) => self.delta(at, json!({"type": "text_delta", "text": more})),
                Part::Call(_) => self.delta(at, json!({"type": "input_json_delta", "partial_json": more})),
                Part::Search(_) | Part::Tools(_) | Part::Run(_) | Part::Web(_) => {}
            },
            PartStep::Cited(at, _, _, citation) => {
                self.delta(at, json!({"type": "citations_delta", "citation": cited(citation)}));
            }
            PartStep::End(at, part) => {
                if let Part::Thought(text) = part {
                    self.delta(at, json!({"type": "signature_delta", "signature": signature(text)}));
                }
                self.stop(at);
            }
        }
    }

    /// The number of the block that a part has now.
    fn index(&self, at: usize) -> Value {
        json!(at + *self.results)
    }

    fn start(&mut self, at: usize, block: Value) {
        let index = self.index(at);
        tell(self.out, "content_block_start", [("index", index), ("content_block", block)]);
    }

    fn delta(&mut self, at: usize, delta: Value) {
        let index = self.index(at);
        tell(self.out, "content_block_delta", [("index", index), ("delta", delta)]);
    }

    fn stop(&mut self, at: usize) {
        let index = self.index(at);
        tell(self.out, "content_block_stop", [("index", index)]);
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

/// Whether this API has blocks for an output: it has none for a search of files or an MCP server's tool, behind which
/// its text goes on.
fn has_blocks(output: &Output) -> bool {
    !output.is_of_server() || matches!(output, Output::Browsing(_) | Output::Browsed(_))
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

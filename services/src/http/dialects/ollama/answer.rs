//! Answers as Ollama gives them: one JSON object a line, calls whole, times in nanoseconds.

use super::error;
use crate::actors::request::output::{Finish, Output, RequestUsage};
use crate::clock::rfc3339;
use crate::http::reply::dialect::{Begun, Dialect, Frames, WholeReply, json as write};
use crate::http::reply::parts::{Part, PartStep, Parts};
use crate::http::wire::error::ApiError;
use bytes::{BufMut, BytesMut};
use serde_json::{Map, Value, json};

/// Why an answer ended that left a call of a tool open, which is not in it.
const INCOMPLETE_CALL: &str = "incomplete_tool_call";

/// Replies of `/api/chat` and `/api/generate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ollama {
    /// The answer is a message, as `/api/chat` gives it.
    Chat,
    /// The answer is a text, as `/api/generate` gives it.
    Generate,
}

/// An answer as it comes: the stream, and the whole reply too.
pub(super) struct OllamaAnswer {
    kind: Ollama,
    begun: Begun,
    parts: Parts,
}

impl Dialect for Ollama {
    type Stream = OllamaAnswer;
    type Whole = OllamaAnswer;

    fn streamed(self, begun: Begun) -> OllamaAnswer {
        OllamaAnswer { kind: self, begun, parts: Parts::default() }
    }

    fn collected(self, begun: Begun) -> OllamaAnswer {
        self.streamed(begun)
    }
}

impl Frames for OllamaAnswer {
    const CONTENT_TYPE: &'static str = "application/x-ndjson";

    fn output(&mut self, output: Output, out: &mut BytesMut) -> Result<(), ApiError> {
        let (kind, begun) = (self.kind, &self.begun);
        if let Some(account) = self.parts.take(output, |step| frame(kind, begun, step, out))? {
            line(out, &self.ended(&account, OllamaParts::default()));
        }
        Ok(())
    }

    fn error(&mut self, error: &ApiError, out: &mut BytesMut) {
        line(out, &error::written(error));
    }

    /// Nothing, said: there are no comments between lines of JSON.
    fn still_here(&mut self, out: &mut BytesMut) {
        line(out, &object(self.kind, &self.begun, OllamaParts::default()));
    }
}

impl WholeReply for OllamaAnswer {
    fn of(&mut self, output: Output) -> Result<Option<Value>, ApiError> {
        let Some(account) = self.parts.take(output, |_| {})? else { return Ok(None) };
        let mut said = OllamaParts::default();
        self.parts.all().iter().for_each(|part| said.whole(part));
        Ok(Some(self.ended(&account, said)))
    }
}

impl OllamaAnswer {
    fn ended(&self, account: &RequestUsage, said: OllamaParts) -> Value {
        let mut object = object(self.kind, &self.begun, said);
        let t = &account.timings;
        object["done"] = json!(true);
        object["done_reason"] = json!(match self.parts.finish() {
            Some(Finish::Length) => "length",
            // Calls come whole here or not at all.
            _ if self.parts.incomplete_call().is_some() => INCOMPLETE_CALL,
            _ => "stop",
        });
        for (name, value) in [
            ("total_duration", t.total.as_nanos() as u64),
            ("load_duration", t.queue.as_nanos() as u64),
            ("prompt_eval_count", account.prompt_tokens.into()),
            ("prompt_eval_duration", t.prefill.as_nanos() as u64),
            ("eval_count", account.completion_tokens.into()),
            ("eval_duration", t.decode.as_nanos() as u64),
        ] {
            object[name] = json!(value);
        }
        object
    }
}

/// Something that was said.
#[derive(Default)]
struct OllamaParts {
    text: String,
    thought: String,
    calls: Vec<Value>,
}

impl OllamaParts {
    fn whole(&mut self, part: &Part) {
        match part {
            Part::Thought(text) => self.thought.push_str(text),
            Part::Text(part) => self.text.push_str(&part.text),
            // This API has no word for a search of files.
            Part::Search(_) | Part::Tools(_) | Part::Run(_) | Part::Web(_) => {}
            Part::Call(call) if call.incomplete => {}
            // Arguments that are not JSON are those of a call that was cut off.
            Part::Call(call) => {
                if let Ok(arguments) = serde_json::from_str::<Map<String, Value>>(&call.arguments) {
                    let function = json!({"index": call.index, "name": call.name, "arguments": arguments});
                    self.calls.push(json!({"id": call.id, "function": function}));
                }
            }
        }
    }
}

/// An answer that says only that the model is there.
pub(super) fn loaded(kind: Ollama, model: &str, created: u64) -> Value {
    let mut object = head(kind, model, created, OllamaParts::default());
    object["done"] = json!(true);
    object["done_reason"] = json!("load");
    object
}

fn object(kind: Ollama, begun: &Begun, said: OllamaParts) -> Value {
    head(kind, &begun.envelope.model, begun.envelope.created, said)
}

fn head(kind: Ollama, model: &str, created: u64, said: OllamaParts) -> Value {
    let OllamaParts { text, thought, calls } = said;
    let mut object = json!({"model": model, "created_at": rfc3339(created)});
    let place = match kind {
        Ollama::Chat => {
            object["message"] = json!({"role": "assistant", "content": text});
            &mut object["message"]
        }
        Ollama::Generate => {
            object["response"] = json!(text);
            &mut object
        }
    };
    if !thought.is_empty() {
        place["thinking"] = json!(thought);
    }
    if !calls.is_empty() {
        place["tool_calls"] = json!(calls);
    }
    object["done"] = json!(false);
    object
}

/// Text as it comes; a call when it is whole.
fn frame(kind: Ollama, begun: &Begun, step: PartStep<'_>, out: &mut BytesMut) {
    let mut said = OllamaParts::default();
    match step {
        PartStep::More(_, Part::Thought(_), more, _) => said.thought.push_str(more),
        PartStep::More(_, Part::Text(_), more, _) => said.text.push_str(more),
        PartStep::End(_, part @ Part::Call(_)) => said.whole(part),
        _ => return,
    }
    line(out, &object(kind, begun, said));
}

fn line(out: &mut BytesMut, value: &Value) {
    write(out, value);
    out.put_u8(b'\n');
}

//! Choices of `/v1/chat/completions`.

use super::choices::ChoiceFormat;
use super::token_report::report_json;
use crate::actors::request::output::{Delta, Finish, Scored, ToolCallDelta};
use crate::http::reply::citations::citation_of;
use crate::http::reply::tokens;
use crate::http::wire::json::object;
use crate::text::parser::TextPart;
use serde_json::{Value, json};

/// Replies whose choices are messages of a conversation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chat {
    /// The request asked for log-probabilities.
    pub logprobs: bool,
}

impl ChoiceFormat for Chat {
    fn objects(&self) -> (&'static str, &'static str) {
        ("chat.completion", "chat.completion.chunk")
    }

    fn opening(&mut self, choice: u32) -> Vec<Value> {
        vec![chunk(choice, json!({"role": "assistant", "content": ""}), self.logprobs_of(&[]), None)]
    }

    fn scored(&mut self, _: u32, _: Vec<Scored>) {}

    fn delta(&mut self, choice: u32, delta: Delta) -> Value {
        let logprobs = self.logprobs_of(&delta.tokens);
        let calls = delta.tool_calls.iter().map(call_delta).collect::<Vec<_>>();
        let delta = object([
            ("content", (!delta.content.is_empty()).then(|| json!(delta.content))),
            ("reasoning_content", (!delta.reasoning.is_empty()).then(|| json!(delta.reasoning))),
            ("tool_calls", (!calls.is_empty()).then(|| json!(calls))),
            ("annotations", annotations(&delta)),
        ]);
        chunk(choice, delta, logprobs, None)
    }

    fn ending(&mut self, choice: u32, reason: Finish) -> Value {
        chunk(choice, json!({}), Value::Null, Some(reason))
    }

    fn whole(&mut self, choice: u32, all: Delta, reason: Finish) -> Value {
        let calls = all.tool_calls.iter().map(whole_call).collect::<Vec<_>>();
        // A message of nothing but calls has no content, as distinct from an empty one.
        let content = if all.content.is_empty() && !calls.is_empty() { Value::Null } else { json!(all.content) };
        let message = object([
            ("role", Some(json!("assistant"))),
            ("content", Some(content)),
            ("refusal", Some(Value::Null)),
            ("reasoning_content", (!all.reasoning.is_empty()).then(|| json!(all.reasoning))),
            ("tool_calls", (!calls.is_empty()).then(|| json!(calls))),
            ("annotations", annotations(&all)),
        ]);
        let logprobs = if self.logprobs { logprobs_of(&all.tokens) } else { Value::Null };
        json!({"index": choice, "message": message, "logprobs": logprobs, "finish_reason": reason.name()})
    }
}

impl Chat {
    fn logprobs_of(&self, tokens: &[Scored]) -> Value {
        if self.logprobs { logprobs_of(tokens) } else { Value::Null }
    }
}

/// The citations of pages of the web, as OpenAI's chat has them, and those of files in the same form.
fn annotations(delta: &Delta) -> Option<Value> {
    let all = delta.citations.iter().filter_map(citation_of);
    let all: Vec<Value> =
        all.map(|(kind, fields)| object([("type", Some(json!(kind))), (kind, Some(fields))])).collect();
    (!all.is_empty()).then(|| all.into())
}

fn chunk(choice: u32, delta: Value, logprobs: Value, reason: Option<Finish>) -> Value {
    json!({"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": reason.map(Finish::name)})
}

fn call_delta(call: &ToolCallDelta) -> Value {
    let function = object([
        ("name", call.start.as_ref().map(|(_, name)| json!(name))),
        ("arguments", Some(json!(call.arguments))),
    ]);
    object([
        ("index", Some(json!(call.index))),
        ("id", call.start.as_ref().map(|(id, _)| json!(id))),
        ("type", call.start.as_ref().map(|_| json!("function"))),
        ("function", Some(function)),
        ("status", call.incomplete.then(|| json!("incomplete"))),
    ])
}

fn whole_call(call: &ToolCallDelta) -> Value {
    let (id, name) = call.start.as_ref().expect("a call begins with its name");
    object([
        ("id", Some(json!(id))),
        ("type", Some(json!("function"))),
        ("function", Some(json!({"name": name, "arguments": call.arguments}))),
        ("status", call.incomplete.then(|| json!("incomplete"))),
    ])
}

/// The tokens of the answer under OpenAI's name, so that they are what `content` is made of. Those of the thought and
/// of calls have names of their own, if there are any.
fn logprobs_of(tokens: &[Scored]) -> Value {
    let of = |part: TextPart| tokens.iter().filter(|t| t.part == part).map(token).collect::<Vec<_>>();
    let (reasoning, calls) = (of(TextPart::Reasoning), of(TextPart::Calls));
    object([
        ("content", Some(json!(of(TextPart::Content)))),
        ("refusal", Some(Value::Null)),
        ("reasoning_logprobs", (!reasoning.is_empty()).then(|| json!(reasoning))),
        ("tool_calls_logprobs", (!calls.is_empty()).then(|| json!(calls))),
    ])
}

fn token(scored: &Scored) -> Value {
    let mut entry = tokens::scored(scored);
    if let Some(report) = &scored.report {
        entry["report"] = report_json(report);
    }
    entry
}

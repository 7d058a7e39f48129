//! A conversation as templates take it, put together from the pieces that other dialects have: a system prompt wherever
//! it stands, an assistant's thoughts, words and calls one by one, results of tools.

use super::fields::{Fields, missing, wrong_type};
use crate::http::wire::error::ApiError;
use crate::text::{IdPlace, Message, RawJson, Role, ToolCall};
use crate::turn::DENIED;
use serde_json::{Map, Value as Json};
use std::collections::HashSet;

/// Between texts that are made one.
pub(in crate::http) const BETWEEN: &str = "\n\n";

/// What was said so far.
#[derive(Default)]
pub(in crate::http) struct TurnsBuilder {
    /// One text of them all stands first.
    system: Vec<String>,
    out: Vec<Message>,
    /// The assistant's turn that is not over.
    turn: Option<AssistantTurn>,
    /// Ids of the calls so far, which results may answer.
    calls: HashSet<String>,
}

/// What the assistant said, thought and called in one turn.
#[derive(Default)]
struct AssistantTurn {
    text: String,
    thoughts: Vec<String>,
    calls: Vec<ToolCall>,
}

impl TurnsBuilder {
    /// The system prompt, or a part of it; later, a message of its own.
    pub(in crate::http) fn system(&mut self, text: String) {
        if self.out.is_empty() && self.turn.is_none() {
            self.system.push(text);
        } else {
            self.end_turn();
            self.out.push(Message::new(Role::System, text));
        }
    }

    /// The user says something.
    pub(in crate::http) fn user(&mut self, text: String) {
        self.end_turn();
        self.out.push(Message::new(Role::User, text));
    }

    /// The assistant says something.
    pub(in crate::http) fn text(&mut self, text: &str) {
        self.turn.get_or_insert_default().text.push_str(text);
    }

    /// The assistant thought something; nothing, if only the service that it came from could read it.
    pub(in crate::http) fn thought(&mut self, thought: String) {
        let turn = self.turn.get_or_insert_default();
        turn.thoughts.extend(Some(thought).filter(|thought| !thought.is_empty()));
    }

    /// The assistant calls a tool, with an object of arguments.
    pub(in crate::http) fn call(&mut self, id: String, name: &str, arguments: Json) {
        self.turn.get_or_insert_default().calls.push(ToolCall {
            id: Some(id.clone()),
            name: name.to_owned(),
            arguments: RawJson(arguments),
            id_place: IdPlace::BeforeFunction,
        });
        self.calls.insert(id);
    }

    /// The assistant's turn is over, also where it said nothing.
    pub(in crate::http) fn end_turn(&mut self) {
        let Some(AssistantTurn { text, thoughts, calls }) = self.turn.take() else { return };
        let reasoning = (!thoughts.is_empty()).then(|| thoughts.join(BETWEEN));
        self.out.push(Message { reasoning, tool_calls: calls, ..Message::new(Role::Assistant, text) });
    }

    /// What a tool answered. `path` is that of the call's id.
    pub(in crate::http) fn result(&mut self, path: &str, call: String, text: String) -> Result<(), ApiError> {
        self.answer(path, call, Some(text))
    }

    /// What a tool answered, or nothing yet where its call was approved just now.
    pub(in crate::http) fn answer(&mut self, path: &str, call: String, text: Option<String>) -> Result<(), ApiError> {
        if !self.calls.contains(&call) {
            return Err(ApiError::invalid(path, format!("`{path}` is {call:?}, which no call before it has")));
        }
        self.end_turn();
        self.out.push(Message { tool_call_id: Some(call), content: text, ..Message::new(Role::Tool, "") });
        Ok(())
    }

    /// What came of a call that was approved before. False if there is no such call.
    pub(in crate::http) fn settle(&mut self, call: &str, text: &str) -> bool {
        let of = |message: &&mut Message| message.tool_call_id.as_deref() == Some(call);
        let answer = self.out.iter_mut().rev().find(of);
        answer.map(|message| message.content = Some(text.to_owned())).is_some()
    }

    /// The last that was said was a tool's result.
    pub(in crate::http) fn after_result(&self) -> bool {
        self.turn.is_none() && self.out.last().is_some_and(|last| last.role == Role::Tool)
    }

    /// Ends the conversation and gives all of its messages, the system prompt first.
    pub(in crate::http) fn end(mut self) -> Vec<Message> {
        self.end_turn();
        let system = (!self.system.is_empty()).then(|| Message::new(Role::System, self.system.join(BETWEEN)));
        system.into_iter().chain(self.out).collect()
    }
}

/// What stands for a part of a tool's result that the model cannot read. Such a result stays in the conversation, so a
/// refusal would end it; and a part that vanished without a word would leave the model to make up what it shows.
pub(in crate::http) fn left_out(kind: &str) -> String {
    let name = match kind {
        "image" | "image_url" | "input_image" => "An image",
        "document" | "file" | "input_file" => "A document",
        "audio" | "input_audio" => "A recording",
        _ => "A part",
    };
    format!("[{name} was left out here: this model reads text.]")
}

/// What the answer to a call that was asked about says to the model: nothing yet if it was approved.
pub(in crate::http) fn answered(approve: bool, said: Option<String>) -> Option<String> {
    let denied = || said.filter(|said| !said.is_empty()).unwrap_or_else(|| DENIED.to_owned());
    (!approve).then(denied)
}

/// Who ends with the assistant's turn wants the answer to go on with it.
pub(in crate::http) fn go_on(messages: &[Message], chat: &mut Map<String, Json>) {
    if messages.last().is_some_and(|last| last.role == Role::Assistant) {
        chat.insert("continue_final_message".into(), true.into());
    }
}

/// Text of a string or of parts, none of which may be anything else.
pub(in crate::http) fn text_of(path: &str, value: Json, between: &str) -> Result<String, ApiError> {
    joined(path, value, between, |path, kind| {
        let message = format!("`{path}` is of type {kind:?}, which is not supported: this model reads text");
        Err(ApiError::unsupported(path, message))
    })
}

/// Text of a string or of parts. `other` gives what stands for a part of another type.
pub(in crate::http) fn joined(
    path: &str,
    value: Json,
    between: &str,
    other: impl Fn(&str, &str) -> Result<String, ApiError>,
) -> Result<String, ApiError> {
    let parts = match value {
        Json::String(text) => return Ok(text),
        Json::Array(parts) => parts,
        other => return Err(wrong_type(path, "a string or an array of parts", &other)),
    };
    let texts = parts.into_iter().enumerate().map(|(i, value)| part(format!("{path}[{i}]"), value, &other));
    Ok(texts.collect::<Result<Vec<String>, ApiError>>()?.join(between))
}

fn part(path: String, value: Json, other: impl Fn(&str, &str) -> Result<String, ApiError>) -> Result<String, ApiError> {
    let mut fields = Fields::nested(path.clone(), value)?;
    let kind_path = fields.path("type");
    let kind = fields.string("type")?.ok_or_else(|| missing(&kind_path, "the part's type"))?;
    let name = match kind.as_str() {
        "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => "text",
        "refusal" => "refusal",
        kind => return other(&path, kind),
    };
    fields.same(&["annotations", "logprobs"]);
    let text_path = fields.path(name);
    let text = fields.string(name)?.ok_or_else(|| missing(&text_path, "a string"))?;
    fields.ignore_rest();
    Ok(text)
}

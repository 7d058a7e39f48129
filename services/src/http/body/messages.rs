//! The messages of a conversation, role by role, into what templates read.

use super::fields::{Fields, call_arguments, missing, wrong_type};
use super::turns::{BETWEEN, answered, left_out};
use crate::hosted::is_approval_id;
use crate::http::wire::error::ApiError;
use crate::text::template::written;
use crate::text::{IdPlace, Message, RawJson, Role, ToolCall};
use serde_json::{Value as Json, json};
use std::collections::HashSet;

/// Checks every message and the order of tool results. System messages at the beginning become one, which is what
/// templates take; later ones stay where they are, so that what was said before them reads as it did.
pub(in crate::http) fn checked(list: Vec<Json>) -> Result<Vec<Message>, ApiError> {
    if list.is_empty() {
        return Err(ApiError::invalid("messages", "`messages` must not be empty"));
    }
    let mut calls = OpenCalls::default();
    let one = |(i, value)| {
        let mut fields = Fields::nested(format!("messages[{i}]"), with_content(value))?;
        let message = message(&mut fields, &mut calls)?;
        fields.ignore_rest();
        Ok(message)
    };
    let messages: Result<Vec<_>, ApiError> = list.into_iter().enumerate().map(one).collect();
    Ok(one_system(messages?))
}

/// A message that says that it has no content, as distinct from one that says nothing about it, has an empty one.
fn with_content(mut message: Json) -> Json {
    if let Some(content @ Json::Null) = message.get_mut("content") {
        *content = Json::String(String::new());
    }
    message
}

/// With one system message in the place of those that the conversation begins with.
fn one_system(mut messages: Vec<Message>) -> Vec<Message> {
    let leading = messages.iter().take_while(|message| message.role == Role::System).count();
    // No template shows the name of one that comes later.
    for message in messages[leading..].iter_mut().filter(|message| message.role == Role::System) {
        message.name = None;
    }
    if leading > 1 {
        let texts: Vec<&str> = messages[..leading].iter().filter_map(|message| message.content.as_deref()).collect();
        let text = texts.join(BETWEEN);
        messages.drain(1..leading);
        messages[0].content = Some(text);
    }
    messages
}

/// Ids of the calls that a `tool` message at this place may answer, which may be tens of thousands; `None` where it may
/// not stand.
#[derive(Default)]
struct OpenCalls(Option<HashSet<Option<String>>>);

fn message(fields: &mut Fields, calls: &mut OpenCalls) -> Result<Message, ApiError> {
    let path = fields.path("role");
    let role = fields.string("role")?.ok_or_else(|| missing(&path, "a role"))?;
    if role != "tool" && role != "assistant" {
        calls.0 = None;
    }
    let mut message = match role.as_str() {
        "system" | "developer" => Message::new(Role::System, required_content(fields)?),
        "user" => Message::new(Role::User, required_content(fields)?),
        "assistant" => {
            let (message, open) = assistant(fields)?;
            *calls = open;
            message
        }
        "tool" => tool(fields, calls)?,
        "function" => {
            return Err(ApiError::unsupported(&path, format!("`{path}` \"function\" is not supported; use \"tool\"")));
        }
        other => {
            let wanted = "system, developer, user, assistant or tool";
            return Err(ApiError::invalid(&path, format!("`{path}` must be {wanted}, got {other:?}")));
        }
    };
    // Templates may use it; most do not.
    message.name = fields.string("name")?;
    Ok(message)
}

/// What an assistant said before, and the ids of its calls, if it made any.
fn assistant(fields: &mut Fields) -> Result<(Message, OpenCalls), ApiError> {
    let path = fields.path("content");
    let content = content(fields)?;
    // Other services have a field of its own for an answer that is a refusal.
    let content = match (content, fields.string("refusal")?) {
        (None, refusal) => refusal,
        (Some(text), Some(refusal)) if text.is_empty() => Some(refusal),
        (content, _) => content,
    };
    // Servers spell it in two ways; replies are sent back as they came.
    let (reasoning, other) = (fields.string("reasoning_content")?, fields.string("reasoning")?);
    let reasoning = reasoning.or(other);
    let calls_path = fields.path("tool_calls");
    let calls = fields.list("tool_calls")?.filter(|calls| !calls.is_empty());
    // These were the message, or a part of it: without them the model would read another conversation.
    fields.refuse("audio", "is not supported: this model reads text")?;
    fields.refuse("function_call", "is not supported; use `tool_calls`")?;
    if content.is_none() && reasoning.is_none() && calls.is_none() {
        return Err(missing(&path, "a string or an array of parts, unless there are `tool_calls`"));
    }
    let mut message = Message { reasoning, ..Message::new(Role::Assistant, content.unwrap_or_default()) };
    let Some(calls) = calls else { return Ok((message, OpenCalls(None))) };
    let checked: Result<Vec<_>, ApiError> =
        calls.into_iter().enumerate().map(|(i, c)| tool_call(format!("{calls_path}[{i}]"), c)).collect();
    message.tool_calls = checked?;
    let ids = message.tool_calls.iter().map(|call| call.id.clone()).collect();
    Ok((message, OpenCalls(Some(ids))))
}

/// One call, with its arguments as an object, which is what templates iterate over.
fn tool_call(path: String, value: Json) -> Result<ToolCall, ApiError> {
    let mut fields = Fields::nested(path, value)?;
    let id = fields.string("id")?;
    // Left over from a stream's chunks.
    fields.integer("index", 0..=i64::from(u32::MAX))?;
    let path = fields.path("type");
    if let Some(kind) = fields.string("type")?
        && kind != "function"
    {
        return Err(ApiError::unsupported(&path, format!("`{path}` must be \"function\", got {kind:?}")));
    }
    let path = fields.path("function");
    let mut function = fields.fields("function")?.ok_or_else(|| missing(&path, "an object"))?;
    fields.ignore_rest();
    let path = function.path("name");
    let name = function.string("name")?.ok_or_else(|| missing(&path, "a string"))?;
    let arguments = arguments(&mut function)?;
    function.ignore_rest();
    Ok(ToolCall { id, name, arguments: RawJson(arguments), id_place: IdPlace::AfterFunction })
}

fn arguments(function: &mut Fields) -> Result<Json, ApiError> {
    let path = function.path("arguments");
    let value = match function.any("arguments") {
        None => json!({}),
        Some(Json::String(text)) => call_arguments(&path, &text)?,
        Some(other) => other,
    };
    if written::is_object(&value) {
        return Ok(value);
    }
    Err(wrong_type(&path, "a JSON object in a string", &written::plain(&value)))
}

/// A tool's result. It must follow the assistant's call, or another result of the same turn.
fn tool(fields: &mut Fields, calls: &OpenCalls) -> Result<Message, ApiError> {
    let (wanted, approve) = (fields.path("content"), fields.bool("approve")?);
    let content = content_with(fields, |_, kind| Ok(left_out(kind)))?;
    let content = match approve {
        Some(approve) => answered(approve, content),
        None => Some(content.ok_or_else(|| missing(&wanted, "a string or an array of parts"))?),
    };
    let path = fields.path("role");
    let Some(open) = &calls.0 else {
        let message =
            format!("`{path}` \"tool\" must follow an assistant message with `tool_calls`, or another result of them");
        return Err(ApiError::invalid(&path, message));
    };
    let path = fields.path("tool_call_id");
    let id = fields.string("tool_call_id")?;
    // A call without an id may be any result's.
    if let Some(id) = id.as_ref().filter(|_| !open.contains(&None) && !open.contains(&id)) {
        return Err(ApiError::invalid(&path, format!("`{path}` is {id:?}, which no call of the turn before has")));
    }
    let asked = id.as_deref().is_some_and(is_approval_id);
    if approve.is_some() && !asked {
        let path = fields.path("approve");
        let message = format!("`{path}` answers a call that was asked about, whose id begins with \"mcpr_\"");
        return Err(ApiError::invalid(&path, message));
    }
    Ok(Message { tool_call_id: id, content, ..Message::new(Role::Tool, "") })
}

fn required_content(fields: &mut Fields) -> Result<String, ApiError> {
    let path = fields.path("content");
    content(fields)?.ok_or_else(|| missing(&path, "a string or an array of parts"))
}

/// Text as one string, of parts none of which may be anything else.
fn content(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    content_with(fields, |path, kind| {
        let message =
            format!("`{path}` is of type {kind:?}; this model reads text, so only \"text\" parts are supported");
        Err(ApiError::unsupported(path, message))
    })
}

/// Text as one string. Parts are joined here, so that no two of them can make a control token together. `other` gives
/// what stands for a part of another type.
fn content_with(
    fields: &mut Fields,
    other: impl Fn(&str, &str) -> Result<String, ApiError>,
) -> Result<Option<String>, ApiError> {
    let path = fields.path("content");
    match fields.any("content") {
        None => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(Json::Array(parts)) if parts.is_empty() => {
            Err(ApiError::invalid(&path, format!("`{path}` must not be an empty array")))
        }
        Some(Json::Array(parts)) => {
            let texts: Result<Vec<String>, _> =
                parts.into_iter().enumerate().map(|(i, p)| part(format!("{path}[{i}]"), p, &other)).collect();
            Ok(Some(texts?.concat()))
        }
        Some(other) => Err(wrong_type(&path, "a string or an array of parts", &other)),
    }
}

fn part(path: String, value: Json, other: impl Fn(&str, &str) -> Result<String, ApiError>) -> Result<String, ApiError> {
    let mut fields = Fields::nested(path.clone(), value)?;
    let kind_path = fields.path("type");
    let kind = fields.string("type")?.ok_or_else(|| missing(&kind_path, "\"text\""))?;
    if kind != "text" {
        return other(&path, &kind);
    }
    let text_path = fields.path("text");
    let text = fields.string("text")?.ok_or_else(|| missing(&text_path, "a string"))?;
    fields.ignore_rest();
    Ok(text)
}

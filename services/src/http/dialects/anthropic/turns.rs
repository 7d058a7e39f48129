//! The turns of a conversation in Anthropic's words: blocks of text, thoughts, uses of tools and their results.

use super::citable::{Citable, begins};
use crate::citations::NumberedSource;
use crate::hosted::is_approval_id;
use crate::http::body::fields::{Fields, missing, wrong_type};
use crate::http::body::turns::{BETWEEN, TurnsBuilder, answered, left_out};
use crate::http::wire::error::ApiError;
use crate::text::Message;
use serde_json::Value as Json;

/// A line with which some programs begin their system prompt. It is for the books of the other service, and changes
/// with each of their versions.
const BILLING: &str = "x-anthropic-billing-header";

/// The messages as templates take them, from the system prompt and the turns as they came, and the texts in them that
/// the answer may cite.
pub(super) fn checked(system: Option<Json>, list: Vec<Json>) -> Result<(Vec<Message>, Vec<NumberedSource>), ApiError> {
    if list.is_empty() {
        return Err(ApiError::invalid("messages", "`messages` must not be empty"));
    }
    let (mut turns, mut citable) = (TurnsBuilder::default(), Citable::default());
    if let Some(system) = system {
        turns.system(text_of("system", without_billing(system), Within::Turn, &mut citable)?);
    }
    for (i, message) in list.into_iter().enumerate() {
        take(&mut turns, format!("messages[{i}]"), message, &mut citable)?;
    }
    Ok((turns.end(), citable.sources()?))
}

/// Where a block stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    /// In a turn, where what cannot be read is refused.
    Turn,
    /// In the result of a tool. It comes again with every later turn, so what cannot be read is named instead.
    ToolResult,
}

/// One block of a turn.
enum MessageBlock {
    Text(String),
    Thought(String),
    OfServer,
    Call {
        id: String,
        name: String,
        input: Json,
    },
    /// Without a text where the call was approved just now.
    Result {
        call: String,
        text: Option<String>,
    },
}

fn take(turns: &mut TurnsBuilder, path: String, message: Json, citable: &mut Citable) -> Result<(), ApiError> {
    let mut fields = Fields::nested(path, message)?;
    let path = fields.path("role");
    let role = fields.string("role")?.ok_or_else(|| missing(&path, "a role"))?;
    let content = fields.path("content");
    let value = fields.any("content").ok_or_else(|| missing(&content, "a string or an array of blocks"))?;
    fields.ignore_rest();
    match role.as_str() {
        "system" => turns.system(text_of(&content, value, Within::Turn, citable)?),
        "user" => user(turns, &content, value, citable)?,
        "assistant" => assistant(turns, &content, value, citable)?,
        other => {
            let message = format!("`{path}` must be user, assistant or system, got {other:?}");
            return Err(ApiError::invalid(&path, message));
        }
    }
    Ok(())
}

/// Results stand for themselves; what is said between them is a turn each.
fn user(turns: &mut TurnsBuilder, path: &str, content: Json, citable: &mut Citable) -> Result<(), ApiError> {
    let mut said: Vec<String> = Vec::new();
    for (path, block) in blocks(path, content, Within::Turn, citable)? {
        match block {
            MessageBlock::Text(text) => said.push(text),
            MessageBlock::Result { call, text } => {
                if !said.is_empty() {
                    turns.user(std::mem::take(&mut said).join(BETWEEN));
                }
                turns.answer(&format!("{path}.tool_use_id"), call, text)?;
            }
            MessageBlock::Thought(_) | MessageBlock::Call { .. } | MessageBlock::OfServer => {
                return Err(misplaced(&path, "an assistant's turn"));
            }
        }
    }
    // A turn that says nothing is one all the same.
    if !said.is_empty() || !turns.after_result() {
        turns.user(said.join(BETWEEN));
    }
    Ok(())
}

fn assistant(turns: &mut TurnsBuilder, path: &str, content: Json, citable: &mut Citable) -> Result<(), ApiError> {
    turns.text("");
    for (path, block) in blocks(path, content, Within::Turn, citable)? {
        match block {
            MessageBlock::Text(text) => turns.text(&text),
            MessageBlock::Thought(thought) => turns.thought(thought),
            MessageBlock::OfServer => {}
            MessageBlock::Call { id, name, input } => turns.call(id, &name, input),
            MessageBlock::Result { .. } => return Err(misplaced(&path, "a user's turn")),
        }
    }
    turns.end_turn();
    Ok(())
}

fn misplaced(path: &str, whose: &str) -> ApiError {
    ApiError::invalid(path, format!("`{path}` is of a type that belongs into {whose}"))
}

/// The blocks of a turn, each with its path. A string is one of text.
fn blocks(
    path: &str,
    content: Json,
    within: Within,
    citable: &mut Citable,
) -> Result<Vec<(String, MessageBlock)>, ApiError> {
    let one = |(i, value)| {
        let path = format!("{path}[{i}]");
        let block = block(&path, value, within, citable)?;
        Ok((path, block))
    };
    match content {
        Json::String(text) => Ok(vec![(path.to_owned(), MessageBlock::Text(text))]),
        Json::Array(list) => list.into_iter().enumerate().map(one).collect(),
        other => Err(wrong_type(path, "a string or an array of blocks", &other)),
    }
}

fn block(path: &str, value: Json, within: Within, citable: &mut Citable) -> Result<MessageBlock, ApiError> {
    let mut fields = Fields::nested(path.to_owned(), value)?;
    let kind_path = fields.path("type");
    let kind = fields.string("type")?.ok_or_else(|| missing(&kind_path, "the block's type"))?;
    let block = match kind.as_str() {
        "text" => MessageBlock::Text(required(&mut fields, "text")?),
        // Its signature is ours or another service's, and decides nothing.
        "thinking" => MessageBlock::Thought(required(&mut fields, "thinking")?),
        // Another model's, which only that one could read.
        "redacted_thinking" => MessageBlock::Thought(String::new()),
        "tool_use" => call(&mut fields)?,
        "tool_result" => result(&mut fields, citable)?,
        "document" => MessageBlock::Text(document(&mut fields, within, citable)?),
        // What the service did on the web for an earlier answer. What the model said of it is in the answer's text.
        "server_tool_use" | "web_search_tool_result" | "web_fetch_tool_result" if within == Within::Turn => {
            MessageBlock::OfServer
        }
        "search_result" => MessageBlock::Text(search_result(&mut fields, within, citable)?),
        // What a client's own search of its tools found; they are declared from now on.
        "tool_reference" if within == Within::ToolResult => {
            MessageBlock::Text(format!("[The tool {} can be called now.]", required(&mut fields, "tool_name")?))
        }
        other if within == Within::ToolResult => MessageBlock::Text(left_out(other)),
        other => {
            let message = format!("`{path}` is of type {other:?}, which is not supported: this model reads text");
            return Err(ApiError::unsupported(path, message));
        }
    };
    fields.ignore_rest();
    Ok(block)
}

fn required(fields: &mut Fields, name: &'static str) -> Result<String, ApiError> {
    let path = fields.path(name);
    fields.string(name)?.ok_or_else(|| missing(&path, "a string"))
}

/// A document's text under its title, and under a number if it may be cited. Of other documents a tool's result only
/// says that there was one.
fn document(fields: &mut Fields, within: Within, citable: &mut Citable) -> Result<String, ApiError> {
    let (title, context) = (fields.string("title")?, fields.string("context")?);
    let cites = cites(fields)?;
    let path = fields.path("source");
    let mut source = fields.fields("source")?.ok_or_else(|| missing(&path, "an object"))?;
    let (kind_path, content) = (source.path("type"), source.path("content"));
    let kind = source.string("type")?.ok_or_else(|| missing(&kind_path, "the source's type"))?;
    let (text, blocks) = match kind.as_str() {
        "text" => (required(&mut source, "data")?, None),
        "content" => {
            let value = source.any("content").ok_or_else(|| missing(&content, "a string or an array of blocks"))?;
            let texts = texts_of(&content, value, within, citable)?;
            (texts.join(BETWEEN), Some(begins(&texts)))
        }
        _ if within == Within::ToolResult => {
            return Ok(citable.document(false, [title, context], left_out("document"), None));
        }
        other => {
            let message =
                format!("`{kind_path}` must be \"text\" or \"content\", got {other:?}: this model reads text");
            return Err(ApiError::unsupported(&kind_path, message));
        }
    };
    source.ignore_rest();
    Ok(citable.document(cites, [title, context], text, blocks))
}

fn search_result(fields: &mut Fields, within: Within, citable: &mut Citable) -> Result<String, ApiError> {
    let (title, source, path) = (fields.string("title")?, fields.string("source")?, fields.path("content"));
    let cites = cites(fields)?;
    let content = fields.any("content").ok_or_else(|| missing(&path, "a string or an array of blocks"))?;
    let texts = texts_of(&path, content, within, citable)?;
    Ok(citable.search_result(cites, [title, source], &texts))
}

/// Whether the answer is to cite a block.
fn cites(fields: &mut Fields) -> Result<bool, ApiError> {
    let Some(mut citations) = fields.fields("citations")? else { return Ok(false) };
    let enabled = citations.bool("enabled")?.unwrap_or(false);
    citations.ignore_rest();
    Ok(enabled)
}

fn call(fields: &mut Fields) -> Result<MessageBlock, ApiError> {
    let (id, name) = (required(fields, "id")?, required(fields, "name")?);
    let input = fields.object("input")?.unwrap_or_default();
    Ok(MessageBlock::Call { id, name, input: input.into() })
}

fn result(fields: &mut Fields, citable: &mut Citable) -> Result<MessageBlock, ApiError> {
    let call = required(fields, "tool_use_id")?;
    let path = fields.path("content");
    let text = fields
        .any("content")
        .map_or_else(|| Ok(String::new()), |content| text_of(&path, content, Within::ToolResult, citable))?;
    // The template has no other way to say it.
    let failed = fields.bool("is_error")?.unwrap_or(false);
    let text = if failed { format!("Error: {text}") } else { text };
    let text = match fields.bool("approve")? {
        Some(approve) if is_approval_id(&call) => answered(approve, Some(text)),
        _ => Some(text),
    };
    Ok(MessageBlock::Result { call, text })
}

fn without_billing(mut system: Json) -> Json {
    if let Some(blocks) = system.as_array_mut() {
        blocks.retain(|block| !block["text"].as_str().is_some_and(|text| text.starts_with(BILLING)));
    }
    system
}

/// Text alone, of a string or of blocks.
fn text_of(path: &str, content: Json, within: Within, citable: &mut Citable) -> Result<String, ApiError> {
    Ok(texts_of(path, content, within, citable)?.join(BETWEEN))
}

fn texts_of(path: &str, content: Json, within: Within, citable: &mut Citable) -> Result<Vec<String>, ApiError> {
    let texts = blocks(path, content, within, citable)?.into_iter().map(|(path, block)| match block {
        MessageBlock::Text(text) => Ok(text),
        _ => Err(ApiError::unsupported(&path, format!("`{path}` must be a block of text"))),
    });
    texts.collect()
}

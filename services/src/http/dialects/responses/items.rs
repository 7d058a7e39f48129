//! The items of a conversation: messages, thoughts, calls and their results.

use super::tool_items as tools;
use crate::hosted::shown_name;
use crate::http::body::fields::{Fields, call_arguments, missing, wrong_type};
use crate::http::body::turns::{BETWEEN, TurnsBuilder, joined, left_out, text_of};
use crate::http::wire::error::ApiError;
use crate::metrics::count_ignored;
use crate::text::{Message, Role};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value as Json, json};

/// What a blob with a thought of ours begins with. It hides nothing, since the client was shown the thought: it brings
/// it back where the client keeps nothing but the blob.
const SEALED: &str = "chimere1:";
/// What stands before a summary where a conversation goes on from it.
const SUMMARY: &str = "A summary of the conversation so far:\n\n";

/// A text as a blob that the client brings back.
pub(super) fn sealed(text: &str) -> String {
    format!("{SEALED}{}", BASE64_STANDARD.encode(text))
}

/// The text of such a blob; none of one that is not ours.
fn unsealed(blob: &str) -> Option<String> {
    String::from_utf8(BASE64_STANDARD.decode(blob.strip_prefix(SEALED)?).ok()?).ok()
}

/// What the model reads of a compaction's blob. It hides nothing: whoever has it can read the summary.
///
/// # Errors
/// If it is not one of ours: without it the conversation would be lost.
fn summary(path: &str, blob: &str) -> Result<String, ApiError> {
    let foreign = || ApiError::invalid(path, format!("`{path}` is no compaction that this service made"));
    unsealed(blob).map(|summary| [SUMMARY, &summary].concat()).ok_or_else(foreign)
}

/// The items of `input`, which may be a text.
pub(super) fn of_input(input: Json) -> Result<Vec<Json>, ApiError> {
    match input {
        Json::String(text) => Ok(vec![json!({"type": "message", "role": "user", "content": text})]),
        Json::Array(items) => Ok(items),
        other => Err(wrong_type("input", "a string or an array of items", &other)),
    }
}

/// The messages as templates take them: what was said before, and what came now.
pub(super) fn checked(instructions: Option<String>, before: &[Json], new: &[Json]) -> Result<Vec<Message>, ApiError> {
    if new.is_empty() && before.is_empty() {
        return Err(ApiError::invalid("input", "`input` must not be empty"));
    }
    let mut turns = TurnsBuilder::default();
    instructions.into_iter().for_each(|text| turns.system(text));
    for (i, item) in before.iter().enumerate() {
        take(&mut turns, format!("previous_response_id.items[{i}]"), item.clone())?;
    }
    for (i, item) in new.iter().enumerate() {
        take(&mut turns, format!("input[{i}]"), item.clone())?;
    }
    let messages = turns.end();
    if messages.last().is_some_and(|last| last.role == Role::Assistant) {
        let message = "`input` must not end with the assistant's turn: a response begins with one of its own";
        return Err(ApiError::unsupported("input", message));
    }
    Ok(messages)
}

fn take(turns: &mut TurnsBuilder, path: String, item: Json) -> Result<(), ApiError> {
    let mut fields = Fields::nested(path.clone(), item)?;
    let kind_path = fields.path("type");
    // A message may say nothing of what it is.
    let kind = fields.string("type")?.unwrap_or_else(|| "message".into());
    let head = fields.same(&["id", "status"]);
    match kind.as_str() {
        "message" => message(turns, &mut fields)?,
        "reasoning" => turns.thought(thought(&mut fields)?),
        "function_call" => call(turns, &mut fields)?,
        "function_call_output" => output(turns, &mut fields)?,
        // What a service did. Of its outcome the model was told in words.
        "web_search_call" | "file_search_call" => count_ignored("input", "type"),
        // The model is told of the tools anew.
        "mcp_list_tools" => {}
        "compaction" => {
            let path = fields.path("encrypted_content");
            let blob = fields.string("encrypted_content")?.ok_or_else(|| missing(&path, "a string"))?;
            turns.user(summary(&path, &blob)?);
        }
        "mcp_call" => tools::run(turns, &mut fields, &head)?,
        "mcp_approval_request" => tools::asked(turns, &mut fields, &head)?,
        "mcp_approval_response" => tools::approval(turns, &mut fields)?,
        "item_reference" => {
            let path = fields.path("id");
            fields.string("id")?.ok_or_else(|| missing(&path, "an item's id"))?;
            return Err(ApiError::unsupported(&kind_path, format!("`{kind_path}` \"item_reference\" leads nowhere")));
        }
        other => {
            let wanted = "message, reasoning, function_call, function_call_output, compaction, mcp_call or \
                          mcp_approval_response";
            return Err(ApiError::unsupported(&kind_path, format!("`{kind_path}` must be {wanted}, got {other:?}")));
        }
    }
    fields.ignore_rest();
    Ok(())
}

fn message(turns: &mut TurnsBuilder, fields: &mut Fields) -> Result<(), ApiError> {
    let path = fields.path("role");
    let role = fields.string("role")?.ok_or_else(|| missing(&path, "a role"))?;
    let content = fields.path("content");
    let value = fields.any("content").ok_or_else(|| missing(&content, "a string or an array of parts"))?;
    let text = text_of(&content, value, BETWEEN)?;
    match role.as_str() {
        "system" | "developer" => turns.system(text),
        "user" => turns.user(text),
        "assistant" => turns.text(&text),
        other => {
            let message = format!("`{path}` must be user, assistant, system or developer, got {other:?}");
            return Err(ApiError::invalid(&path, message));
        }
    }
    Ok(())
}

/// A thought as it was, else its summary, else what a blob of ours holds. A foreign blob is nothing.
fn thought(fields: &mut Fields) -> Result<String, ApiError> {
    let mut said = String::new();
    for name in ["content", "summary"] {
        let path = fields.path(name);
        let value = fields.any(name).unwrap_or_else(|| Json::Array(Vec::new()));
        let text = text_of(&path, value, BETWEEN)?;
        said = if said.is_empty() { text } else { said };
    }
    let blob = fields.string("encrypted_content")?;
    let of_blob = || blob.as_deref().and_then(unsealed).unwrap_or_default();
    Ok(if said.is_empty() { of_blob() } else { said })
}

fn call(turns: &mut TurnsBuilder, fields: &mut Fields) -> Result<(), ApiError> {
    let (id_path, name_path, path) = (fields.path("call_id"), fields.path("name"), fields.path("arguments"));
    let id = fields.string("call_id")?.ok_or_else(|| missing(&id_path, "a string"))?;
    let name = fields.string("name")?.ok_or_else(|| missing(&name_path, "a string"))?;
    let name = fields.string("namespace")?.map_or(name.clone(), |space| shown_name(&space, &name));
    let text = fields.string("arguments")?.unwrap_or_default();
    turns.call(id, &name, call_arguments(&path, &text)?);
    Ok(())
}

fn output(turns: &mut TurnsBuilder, fields: &mut Fields) -> Result<(), ApiError> {
    let (id_path, path) = (fields.path("call_id"), fields.path("output"));
    let id = fields.string("call_id")?.ok_or_else(|| missing(&id_path, "a string"))?;
    let value = fields.any("output").ok_or_else(|| missing(&path, "a string or an array of parts"))?;
    let text = joined(&path, value, "", |_, kind| Ok(left_out(kind)))?;
    fields.same(&["name", "namespace"]);
    turns.result(&id_path, id, text)
}

//! Items of tools that the service ran, as they come back in the conversation: calls and their results, calls that were
//! asked about, and what somebody said to these.

use crate::hosted::shown_name;
use crate::http::body::fields::{Fields, call_arguments, missing};
use crate::http::body::turns::{TurnsBuilder, answered};
use crate::http::wire::error::ApiError;
use serde_json::{Map, Value as Json};

/// A call that was run, and its result. One that was approved answers the call that was asked about.
pub(super) fn run(turns: &mut TurnsBuilder, fields: &mut Fields, head: &Map<String, Json>) -> Result<(), ApiError> {
    let (name, arguments) = call(fields)?;
    let (output, error) = (fields.string("output")?, fields.string("error")?);
    let text = output.or(error).unwrap_or_default();
    if let Some(asked) = fields.string("approval_request_id")?
        && turns.settle(&asked, &text)
    {
        return Ok(());
    }
    let (path, id) = (fields.path("id"), id_of(fields, head)?);
    turns.call(id.clone(), &name, arguments);
    turns.result(&path, id, text)
}

/// A call that was asked about.
pub(super) fn asked(turns: &mut TurnsBuilder, fields: &mut Fields, head: &Map<String, Json>) -> Result<(), ApiError> {
    let (id, (name, arguments)) = (id_of(fields, head)?, call(fields)?);
    turns.call(id, &name, arguments);
    Ok(())
}

/// What somebody said to a call that was asked about.
pub(super) fn approval(turns: &mut TurnsBuilder, fields: &mut Fields) -> Result<(), ApiError> {
    let (path, approve_path) = (fields.path("approval_request_id"), fields.path("approve"));
    let id = fields.string("approval_request_id")?.ok_or_else(|| missing(&path, "an item's id"))?;
    let approve = fields.bool("approve")?.ok_or_else(|| missing(&approve_path, "true or false"))?;
    let reason = fields.string("reason")?;
    turns.answer(&path, id, answered(approve, reason))
}

/// The name by which the model calls a tool, and the arguments.
fn call(fields: &mut Fields) -> Result<(String, Json), ApiError> {
    let (label_path, name_path, path) = (fields.path("server_label"), fields.path("name"), fields.path("arguments"));
    let label = fields.string("server_label")?.ok_or_else(|| missing(&label_path, "a string"))?;
    let name = fields.string("name")?.ok_or_else(|| missing(&name_path, "a string"))?;
    let text = fields.string("arguments")?.unwrap_or_default();
    Ok((shown_name(&label, &name), call_arguments(&path, &text)?))
}

fn id_of(fields: &Fields, head: &Map<String, Json>) -> Result<String, ApiError> {
    let id = head.get("id").and_then(Json::as_str);
    id.map(str::to_owned).ok_or_else(|| missing(&fields.path("id"), "an item's id"))
}

//! `tools`, `tool_choice` and `parallel_tool_calls`.

use super::fields::{Fields, at_most, missing, wrong_type};
use crate::http::error::ApiError;
use crate::text::tools::{Tool, Tools};
use crate::{limits, metrics};
use serde_json::Value as Json;

/// Tools that the model may call.
pub(super) struct TakenTools {
    /// As the caller wrote them, for the template.
    pub(super) declared: Vec<Json>,
    /// For the parser of the output.
    pub(super) tools: Tools,
}

/// The tools, unless there are none or the model is to call none.
pub(super) fn take(fields: &mut Fields) -> Result<Option<TakenTools>, ApiError> {
    fields.bool("parallel_tool_calls")?;
    let declared = fields.list("tools")?.unwrap_or_default();
    at_most("tools", declared.len(), limits::TOOLS_MAX)?;
    let tools: Result<Vec<Tool>, _> = declared.iter().enumerate().map(|(i, t)| tool(format!("tools[{i}]"), t.clone())).collect();
    let tools = tools?;
    for (i, tool) in tools.iter().enumerate() {
        if tools[..i].iter().any(|earlier| earlier.name == tool.name) {
            let path = format!("tools[{i}].function.name");
            return Err(ApiError::invalid(&path, format!("`{path}` is {:?}, which an earlier tool has", tool.name)));
        }
    }
    let callable = may_call(fields)?;
    Ok((callable && !tools.is_empty()).then(|| TakenTools { declared, tools: Tools::new(tools) }))
}

fn tool(path: String, value: Json) -> Result<Tool, ApiError> {
    let mut fields = Fields::nested(path, value)?;
    let path = fields.path("type");
    match fields.string("type")?.as_deref() {
        Some("function") => {}
        Some(other) => return Err(ApiError::unsupported(&path, format!("`{path}` must be \"function\", got {other:?}"))),
        None => return Err(missing(&path, "\"function\"")),
    }
    let path = fields.path("function");
    let mut function = fields.fields("function")?.ok_or_else(|| missing(&path, "an object"))?;
    fields.ignore_rest();
    let name = name(&mut function)?;
    function.string("description")?;
    let path = function.path("parameters");
    let parameters = function.any("parameters").unwrap_or_else(|| Json::Object(Default::default()));
    if !parameters.is_object() {
        return Err(wrong_type(&path, "a JSON schema, which is an object", &parameters));
    }
    // The schema is shown to the model and read by the parser of its calls, but nothing forces the model to keep to it yet. Programs
    // ask for that by default and check the arguments themselves, so a refusal would take their tools away.
    if function.bool("strict")? == Some(true) {
        metrics::count_ignored("tools.function", "strict");
    }
    function.ignore_rest();
    Ok(Tool { name, parameters })
}

/// A name that the call format can carry.
fn name(function: &mut Fields) -> Result<String, ApiError> {
    let path = function.path("name");
    let name = function.string("name")?.ok_or_else(|| missing(&path, "a string"))?;
    let fits = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    if fits && (1..=limits::TOOL_NAME_BYTES_MAX).contains(&name.len()) {
        return Ok(name);
    }
    let wanted = format!("1 to {} letters, digits, `_`, `-` or `.`", limits::TOOL_NAME_BYTES_MAX);
    Err(ApiError::invalid(&path, format!("`{path}` must be {wanted}, got {:?}", name.chars().take(80).collect::<String>())))
}

/// Whether calls are allowed. Forcing one needs a grammar, which is not there yet.
fn may_call(fields: &mut Fields) -> Result<bool, ApiError> {
    match fields.any("tool_choice") {
        None => Ok(true),
        Some(Json::String(choice)) => match choice.as_str() {
            "auto" => Ok(true),
            "none" => Ok(false),
            "required" => Err(ApiError::unsupported("tool_choice", "`tool_choice` \"required\" is not supported yet")),
            other => Err(ApiError::invalid("tool_choice", format!("`tool_choice` must be \"auto\" or \"none\", got {other:?}"))),
        },
        Some(Json::Object(_)) => Err(ApiError::unsupported("tool_choice", "`tool_choice` with a named tool is not supported yet")),
        Some(other) => Err(wrong_type("tool_choice", "\"auto\" or \"none\"", &other)),
    }
}

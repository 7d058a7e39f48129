//! The content of a message where it is a string or parts, in the words of the newer ones of OpenAI's endpoints.

use super::fields::{Fields, missing, wrong_type};
use crate::http::wire::error::ApiError;
use serde_json::Value as Json;

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

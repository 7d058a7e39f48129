//! Short texts, and values of attributes.

use crate::documents::Attribute;
use crate::http::body::fields::wrong_type;
use crate::http::wire::error::ApiError;
use crate::limits::ATTRIBUTE_TEXT_CHARS_MAX;
use serde_json::Value;

/// A text of at most so many characters.
pub(in crate::http) fn shorter(path: &str, text: String, max: usize) -> Result<String, ApiError> {
    let got = text.chars().count();
    if got > max {
        return Err(ApiError::invalid(path, format!("`{path}` must have at most {max} characters, got {got}")));
    }
    Ok(text)
}

/// The value of an attribute.
pub(in crate::http) fn attribute(path: &str, value: Value) -> Result<Attribute, ApiError> {
    match value {
        Value::Bool(flag) => Ok(Attribute::Flag(flag)),
        Value::Number(number) if number.as_f64().is_some_and(f64::is_finite) => {
            Ok(Attribute::Number(number.as_f64().unwrap_or_default()))
        }
        Value::String(text) => Ok(Attribute::Text(shorter(path, text, ATTRIBUTE_TEXT_CHARS_MAX)?)),
        other => Err(wrong_type(path, "a string, a number or a boolean", &other)),
    }
}

//! Errors as Ollama's programs read them.

use crate::http::wire::error::ApiError;
use serde_json::{Value, json};

/// An error as Ollama's programs read it; also the last line of a stream that broke.
pub(in crate::http::dialects) fn written(error: &ApiError) -> Value {
    json!({"error": error.worded()})
}

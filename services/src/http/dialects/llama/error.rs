//! Errors as llama.cpp's programs read them.

use crate::http::wire::error::{ApiError, PromptOverflow};
use serde_json::{Value, json};

/// An error as llama.cpp's programs read it: the status is its code, and a prompt that is too long has words and
/// numbers of its own. Also the data of an error event inside a stream.
pub(in crate::http::dialects) fn written(error: &ApiError) -> Value {
    let mut inner = json!({"code": error.status.as_u16(), "message": error.message, "type": error.kind,
        "param": error.param});
    if let Some(PromptOverflow { tokens, max, .. }) = error.prompt.as_deref() {
        inner["type"] = json!("exceed_context_size_error");
        inner["message"] =
            json!(format!("the request exceeds the available context size: {tokens} tokens, there is room for {max}"));
        inner["n_prompt_tokens"] = json!(tokens);
        inner["n_ctx"] = json!(max);
    }
    json!({"error": inner})
}

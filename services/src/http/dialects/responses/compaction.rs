//! Compaction: a conversation becomes an item with a summary that the model wrote, from which a later request goes on.

use super::answer::{ResponseAnswer, ResponseFormat};
use super::items::{of_input, sealed};
use super::request::ResponsesBody;
use crate::actors::request::output::Output;
use crate::http::body::fields::missing;
use crate::http::reply::dialect::{Begun, Dialect, WholeReply};
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::engine_error;
use crate::limits::COMPACTION_TOKENS;
use serde_json::{Value, json};

/// What the model is asked behind the conversation.
const REQUEST: &str = "Summarise this conversation for somebody who has to go on with it and cannot read it. Keep the \
                       user's aims and wishes, what was decided and done, names, numbers, dates, files and code that \
                       matter, and what is left to do. Write the summary alone.";

/// Replies that are compactions.
pub(super) struct CompactionFormat(pub(super) ResponseFormat);

/// A compaction as it is made.
pub(super) struct CompactionAnswer(ResponseAnswer);

impl ResponsesBody {
    /// Asks for a summary of the conversation.
    ///
    /// # Errors
    /// If no model is named, or the reply is to be a stream.
    pub(super) fn compacted(mut self) -> Result<Self, ApiError> {
        let fields = &mut self.fields;
        if !fields.has("model") {
            return Err(missing("model", "a model's name"));
        }
        fields.fixed("stream", false, "a compaction comes in one piece")?;
        let mut items = fields.any("input").map_or(Ok(Vec::new()), of_input)?;
        if items.is_empty() && self.previous.is_none() {
            return Err(ApiError::invalid("input", "`input` must not be empty: there is nothing to compact"));
        }
        items.push(json!({"type": "message", "role": "user", "content": REQUEST}));
        fields.set("input", items.into());
        fields.set("tool_choice", "none".into());
        fields.set("store", false.into());
        fields.set_unless_given("max_output_tokens", COMPACTION_TOKENS.into());
        fields.set_unless_given("reasoning", json!({"effort": "none"}));
        Ok(self)
    }
}

impl Dialect for CompactionFormat {
    type Stream = ResponseAnswer;
    type Whole = CompactionAnswer;

    fn streamed(self, begun: Begun) -> ResponseAnswer {
        self.0.streamed(begun)
    }

    fn collected(self, begun: Begun) -> CompactionAnswer {
        CompactionAnswer(self.0.collected(begun))
    }
}

impl WholeReply for CompactionAnswer {
    fn of(&mut self, output: Output) -> Result<Option<Value>, ApiError> {
        self.0.of(output)?.map(|response| compaction(&response)).transpose()
    }
}

/// The compaction that a response with a summary is.
fn compaction(response: &Value) -> Result<Value, ApiError> {
    let items = response["output"].as_array().into_iter().flatten();
    let parts = items
        .filter(|item| item["type"] == "message")
        .flat_map(|item| item["content"].as_array().into_iter().flatten());
    let summary: String = parts.filter_map(|part| part["text"].as_str()).collect();
    if summary.trim().is_empty() {
        return Err(engine_error("the model wrote no summary".into()));
    }
    let id = response["id"].as_str().unwrap_or_default().trim_start_matches("resp_");
    Ok(json!({
        "id": response["id"],
        "object": "response.compaction",
        "created_at": response["created_at"],
        "output": [{"id": format!("cmp_{id}"), "type": "compaction", "encrypted_content": sealed(&summary)}],
        "usage": response["usage"],
    }))
}

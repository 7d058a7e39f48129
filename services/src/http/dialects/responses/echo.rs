//! What a response says of its request: fields as they came, and for those that did not come what was done.

use crate::http::body::fields::Fields;
use crate::text::template::written;
use chimere_engine::sampling::SamplingParams;
use serde_json::{Map, Value as Json, json};

/// Fields that are said as they came.
const ECHOED: [&str; 11] = [
    "instructions",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "safety_identifier",
    "temperature",
    "tool_choice",
    "top_logprobs",
    "top_p",
];
/// Fields that are null where they did not come.
const NULL: [&str; 5] =
    ["instructions", "max_output_tokens", "max_tool_calls", "prompt_cache_key", "safety_identifier"];

/// The fields that came.
pub(super) fn as_it_came(fields: &Fields) -> Map<String, Json> {
    fields.copied(&ECHOED)
}

/// Adds what Open Responses wants of each response: null where nothing was asked for, and how tokens were drawn.
pub(super) fn complete(echo: &mut Map<String, Json>, sampling: &SamplingParams) {
    for name in NULL {
        echo.entry(name).or_insert(Json::Null);
    }
    for (name, value) in [
        ("temperature", sampling.temperature),
        ("top_p", sampling.top_p),
        ("presence_penalty", sampling.presence_penalty),
        ("frequency_penalty", sampling.frequency_penalty),
    ] {
        echo.entry(name).or_insert_with(|| short(value));
    }
    echo.entry("top_logprobs").or_insert_with(|| json!(0));
    echo.entry("metadata").or_insert_with(|| json!({}));
}

/// A declared tool. A function has all its fields, and a server not what it is told of the caller: a response is kept
/// longer than its request.
pub(super) fn tool(declared: &Json) -> Json {
    let mut tool = written::plain(declared);
    if let Some(tool) = tool.as_object_mut() {
        tool.shift_remove("authorization");
    }
    let function = tool.as_object_mut().filter(|tool| tool.get("type").is_some_and(|kind| kind == "function"));
    if let Some(function) = function {
        for name in ["description", "parameters", "strict"] {
            function.entry(name).or_insert(Json::Null);
        }
    }
    tool
}

/// A number with the digits that tell it from its neighbours, and no more.
fn short(value: f32) -> Json {
    value.to_string().parse::<f64>().map_or(Json::Null, Json::from)
}

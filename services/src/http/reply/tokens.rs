//! Tokens with their log-probabilities, as OpenAI's dialects write them.

use crate::actors::request::output::{Scored, ShownToken};
use crate::http::wire::json::logprob;
use serde_json::{Value, json};

/// A token that was chosen, with the most probable ones in its place.
pub(in crate::http) fn scored(scored: &Scored) -> Value {
    let mut entry = shown(&scored.token);
    entry["top_logprobs"] = scored.top.iter().map(shown).collect();
    entry
}

fn shown(token: &ShownToken) -> Value {
    json!({"token": token.text, "logprob": logprob(token.logprob), "bytes": token.bytes})
}

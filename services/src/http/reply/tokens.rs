//! Tokens with their log-probabilities, and how many there were, as OpenAI's dialects write them.

use crate::actors::request::output::{RequestUsage, Scored, ShownToken};
use crate::http::wire::json::logprob;
use chimere_engine::ids::TokenId;
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

/// How many tokens a request had, under OpenAI's names.
pub(in crate::http) fn usage(account: &RequestUsage) -> Value {
    json!({
        "prompt_tokens": account.prompt_tokens,
        "completion_tokens": account.completion_tokens,
        "total_tokens": account.prompt_tokens + account.completion_tokens,
        "prompt_tokens_details": { "cached_tokens": account.cached_tokens },
        "completion_tokens_details": { "reasoning_tokens": account.reasoning_tokens },
    })
}

/// The ids of a prompt that was not computed, as vLLM's renderer tells them.
pub(in crate::http) fn rendered(request_id: &str, model: &str, ids: &[TokenId]) -> Value {
    json!({"request_id": request_id, "model": model, "token_ids": ids})
}

//! Prompts that no template is laid around: texts, token ids, or both in a row.

use super::fields::{at_most, integer, wrong_type};
use super::generation::token_ids;
use crate::http::wire::error::ApiError;
use crate::turn::options::Prompt;
use chimere_engine::ids::TokenId;
use serde_json::Value as Json;

/// One text or several, as strings or as token ids. An array with a number in it is one.
pub(in crate::http) fn prompts(
    path: &str,
    value: Json,
    vocab: u32,
    max: usize,
    wanted: &str,
) -> Result<Vec<Prompt>, ApiError> {
    let list = match value {
        Json::Array(list) if !list.is_empty() && !list.iter().any(Json::is_number) => list,
        single => return Ok(vec![prompt(path, single, vocab, wanted)?]),
    };
    at_most(path, list.len(), max)?;
    let wanted = "a string or an array of token ids";
    list.into_iter().enumerate().map(|(i, item)| prompt(&format!("{path}[{i}]"), item, vocab, wanted)).collect()
}

fn prompt(path: &str, value: Json, vocab: u32, wanted: &str) -> Result<Prompt, ApiError> {
    match value {
        Json::String(text) if text.is_empty() => Err(ApiError::invalid(path, format!("`{path}` must not be empty"))),
        Json::String(text) => Ok(Prompt::Text(text)),
        Json::Array(ids) if ids.is_empty() => Err(ApiError::invalid(path, format!("`{path}` must not be empty"))),
        Json::Array(items) if items.iter().any(Json::is_string) && items.iter().any(Json::is_number) => {
            mixed(path, items, vocab)
        }
        Json::Array(ids) => Ok(Prompt::Tokens(token_ids(path, &ids, vocab)?)),
        other => Err(wrong_type(path, wanted, &other)),
    }
}

/// Ids with texts between them, as llama.cpp's clients write control tokens around a text.
fn mixed(path: &str, items: Vec<Json>, vocab: u32) -> Result<Prompt, ApiError> {
    let mut parts = Vec::new();
    for (i, item) in items.into_iter().enumerate() {
        match item {
            Json::String(text) if text.is_empty() => {}
            Json::String(text) => parts.push(Prompt::Text(text)),
            number => {
                let id = integer(&format!("{path}[{i}]"), &number, 0..=i64::from(vocab) - 1)? as TokenId;
                match parts.last_mut() {
                    Some(Prompt::Tokens(ids)) => ids.push(id),
                    _ => parts.push(Prompt::Tokens(vec![id])),
                }
            }
        }
    }
    match parts.is_empty() {
        true => Err(ApiError::invalid(path, format!("`{path}` must not be empty"))),
        false => Ok(Prompt::Mixed(parts)),
    }
}

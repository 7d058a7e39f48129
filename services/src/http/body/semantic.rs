//! The field `engram.semantic`: examples for a chat, from a collection.

use super::fields::{Fields, missing};
use crate::http::wire::error::ApiError;
use crate::limits::SEMANTIC_K_MAX;
use crate::turn::options::SemanticRequest;

/// How many items are looked for where a request does not say.
const K: u32 = 4;

impl SemanticRequest {
    /// Takes the field of `engram`, if it is there.
    pub(super) fn take(engram: &mut Fields) -> Result<Option<Self>, ApiError> {
        let Some(mut fields) = engram.fields("semantic")? else { return Ok(None) };
        let path = fields.path("collection");
        let collection = text(&mut fields, "collection")?.ok_or_else(|| missing(&path, "the name of a collection"))?;
        let k = k(&mut fields)?;
        fields.finish()?;
        Ok(Some(Self { collection, k }))
    }
}

/// How many items are looked for.
pub(in crate::http) fn k(fields: &mut Fields) -> Result<u32, ApiError> {
    Ok(fields.integer("k", 1..=i64::from(SEMANTIC_K_MAX))?.map_or(K, |k| k as u32))
}

/// A string that is not empty.
pub(in crate::http) fn text(fields: &mut Fields, name: &'static str) -> Result<Option<String>, ApiError> {
    let path = fields.path(name);
    match fields.string(name)? {
        Some(text) if text.is_empty() => Err(ApiError::invalid(&path, format!("`{path}` must not be empty"))),
        text => Ok(text),
    }
}

/// Refused where there is no conversation to put examples into.
pub(in crate::http) fn refuse_semantic(asked: Option<&SemanticRequest>) -> Result<(), ApiError> {
    match asked {
        Some(_) => Err(ApiError::unsupported(
            "engram.semantic",
            "`engram.semantic` belongs to chats: a raw prompt has no turns",
        )),
        None => Ok(()),
    }
}

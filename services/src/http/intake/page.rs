//! How long a page of a list is and in which direction the list goes, as OpenAI's clients say it.

use crate::http::wire::error::ApiError;
use std::collections::HashMap;

/// The most entries of a page, and whether the newest come first, which they do unless the request says otherwise;
/// `usual` and `most` are the entries where it does not say, and at most.
pub(in crate::http) fn limit_and_order(
    query: &HashMap<String, String>,
    (usual, most): (usize, usize),
) -> Result<(usize, bool), ApiError> {
    let wrong = |name: &str, wanted: String, got: &str| {
        let shown: String = got.chars().take(64).collect();
        ApiError::invalid(name, format!("`{name}` must be {wanted}, got {shown:?}"))
    };
    let limit = query.get("limit").map_or(Ok(usual), |text| {
        let limit = text.parse().ok().filter(|limit| (1..=most).contains(limit));
        limit.ok_or_else(|| wrong("limit", format!("from 1 to {most}"), text))
    })?;
    match query.get("order").map(String::as_str) {
        None | Some("desc") => Ok((limit, true)),
        Some("asc") => Ok((limit, false)),
        Some(other) => Err(wrong("order", "\"asc\" or \"desc\"".into(), other)),
    }
}

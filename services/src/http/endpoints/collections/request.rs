//! What the endpoints of collections take.

use crate::http::body::fields::{Fields, at_most, missing};
use crate::http::body::semantic::{k, text};
use crate::http::wire::error::ApiError;
use crate::limits::{COLLECTION_ITEM_BYTES_MAX, EMBEDDING_INPUTS_MAX, ITEM_ID_BYTES_MAX};
use crate::semantic::{By, Item};
use std::collections::HashSet;

/// Items for a collection: at least one, ids all different.
pub fn parse_items(body: &[u8]) -> Result<Vec<Item>, ApiError> {
    let mut fields = Fields::of_body(body)?;
    let list = fields.list("items")?.filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| missing("items", "an array of items, not empty"))?;
    fields.finish()?;
    at_most("items", list.len(), EMBEDDING_INPUTS_MAX)?;
    let items = list.into_iter().enumerate().map(|(i, value)| item(Fields::nested(format!("items[{i}]"), value)?));
    let items: Vec<Item> = items.collect::<Result<_, _>>()?;
    let mut seen = HashSet::new();
    match items.iter().enumerate().find(|(_, item)| !seen.insert(&item.id)) {
        Some((i, item)) => {
            Err(ApiError::invalid(format!("items[{i}].id"), format!("`items` has the id {:?} twice", item.id)))
        }
        None => Ok(items),
    }
}

/// One without an id gets one.
fn item(mut fields: Fields) -> Result<Item, ApiError> {
    let id = match text(&mut fields, "id")? {
        Some(id) if id.len() > ITEM_ID_BYTES_MAX || id.contains('\0') => {
            let path = fields.path("id");
            let message =
                format!("`{path}` must have at most {ITEM_ID_BYTES_MAX} bytes, none of them zero, got {}", id.len());
            return Err(ApiError::invalid(path, message));
        }
        Some(id) => id,
        None => uuid::Uuid::new_v4().simple().to_string(),
    };
    let path = fields.path("text");
    let own = text(&mut fields, "text")?.ok_or_else(|| missing(&path, "a string"))?;
    let answer = text(&mut fields, "answer")?;
    fields.finish()?;
    let item = Item { id, text: own, answer };
    let got = item.text_bytes();
    if got > COLLECTION_ITEM_BYTES_MAX {
        let message =
            format!("`{path}` and its answer have {got} bytes, at most {COLLECTION_ITEM_BYTES_MAX} are taken");
        return Err(ApiError::invalid(path, message));
    }
    Ok(item)
}

/// A body that asks for nothing more than its path says.
pub fn parse_nothing(body: &[u8]) -> Result<(), ApiError> {
    if body.is_empty() { Ok(()) } else { Fields::of_body(body)?.finish() }
}

/// By what items are found, as clients say it.
const WAYS: [(&str, By); 3] = [("both", By::Both), ("meaning", By::Meaning), ("words", By::Words)];

/// What to look for in a collection.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchRequest {
    /// The text to compare with; it is never empty.
    pub query: String,
    /// The most items to find, at least 1.
    pub k: u32,
    /// Whether meaning, words or both decide what is near.
    pub by: By,
}

impl SearchRequest {
    /// Reads and checks a body.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let query = text(&mut fields, "query")?.ok_or_else(|| missing("query", "a string"))?;
        let k = k(&mut fields)?;
        let by = fields.choice("by", WAYS)?.unwrap_or_default();
        fields.finish()?;
        Ok(Self { query, k, by })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn refused(body: Value, param: &str, part: &str) {
        let error = parse_items(body.to_string().as_bytes()).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(param), "{error}");
        assert!(error.message.contains(part), "{error}");
    }

    #[test]
    fn items_have_texts_and_ids_of_their_own() {
        let items = parse_items(
            json!({"items": [{"text": "a"}, {"id": "x", "text": "b", "answer": "c"}]}).to_string().as_bytes(),
        )
        .unwrap();
        assert_eq!(items[1], Item { id: "x".into(), text: "b".into(), answer: Some("c".into()) });
        assert!(items[0].id.len() == 32 && items[0].answer.is_none());
        refused(json!({}), "items", "is missing");
        refused(json!({"items": []}), "items", "not empty");
        refused(json!({"items": ["a"]}), "items[0]", "must be an object");
        refused(json!({"items": [{"text": "a"}, {"id": "x"}]}), "items[1].text", "is missing");
        refused(json!({"items": [{"text": ""}]}), "items[0].text", "must not be empty");
        refused(json!({"items": [{"text": "a", "answer": ""}]}), "items[0].answer", "must not be empty");
        refused(json!({"items": [{"text": "a", "id": "x".repeat(129)}]}), "items[0].id", "at most 128 bytes");
        refused(json!({"items": [{"text": "a", "id": "x"}, {"text": "b", "id": "x"}]}), "items[1].id", "twice");
        refused(
            json!({"items": [{"text": "a".repeat(16_384), "answer": "b"}]}),
            "items[0].text",
            "have 16385 bytes, at most 16384",
        );
        refused(json!({"items": [{"text": "a", "txet": "b"}]}), "items[0].txet", "did you mean `items[0].text`");
        refused(json!({"items": vec![json!({"text": "a"}); 2049]}), "items", "2049 entries, at most 2048");
    }

    #[test]
    fn a_search_has_a_query_and_a_number() {
        let parse = |body: Value| SearchRequest::parse(body.to_string().as_bytes());
        assert_eq!(parse(json!({"query": "a"})), Ok(SearchRequest { query: "a".into(), k: 4, by: By::Both }));
        assert_eq!(parse(json!({"query": "a", "by": "words"})).unwrap().by, By::Words);
        assert_eq!(parse(json!({"query": "a", "by": "luck"})).unwrap_err().param.as_deref(), Some("by"));
        assert_eq!(parse(json!({"query": "a", "k": 17})).unwrap_err().param.as_deref(), Some("k"));
        assert_eq!(parse(json!({"k": 1})).unwrap_err().param.as_deref(), Some("query"));
    }

    #[test]
    fn nothing_is_an_empty_body_or_an_empty_object() {
        assert_eq!((parse_nothing(b""), parse_nothing(b"{}")), (Ok(()), Ok(())));
        assert!(parse_nothing(b"[]").is_err() && parse_nothing(b"{\"items\": []}").is_err());
    }
}

//! The body of `POST /v1/rerank`, as Cohere's, Jina's and vLLM's clients send it.

use super::request::bounded;
use crate::http::body::fields::{Fields, missing, wrong_type};
use crate::http::body::model::{ModelLimits, check_model};
use crate::http::wire::error::ApiError;
use crate::limits::{DECISION_INSTRUCTIONS_BYTES_MAX, RERANK_DOCUMENTS_MAX};
use crate::turn::decisions::RerankRequest;
use crate::turn::options::CacheRequest;
use serde_json::Value as Json;

/// Documents to rank, but for the scope of their cache.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::http) struct RerankBody {
    /// The query and its documents.
    pub(in crate::http) request: RerankRequest,
    /// Whether its prompts are looked up and kept.
    pub(in crate::http) cache: CacheRequest,
    /// Each result comes with its document.
    pub(in crate::http) return_documents: bool,
}

impl RerankBody {
    /// Reads and checks a body.
    pub(in crate::http) fn parse(body: &[u8], limits: &ModelLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        check_model(&mut fields, limits)?;
        let query = fields.string("query")?.ok_or_else(|| missing("query", "a string"))?;
        let query = bounded("query", query, DECISION_INSTRUCTIONS_BYTES_MAX)?;
        let list = fields.list("documents")?.ok_or_else(|| missing("documents", "an array of documents"))?;
        if !(1..=RERANK_DOCUMENTS_MAX).contains(&list.len()) {
            let got = list.len();
            let message = format!("`documents` must have 1 to {RERANK_DOCUMENTS_MAX} entries, got {got}");
            return Err(ApiError::invalid("documents", message).with_code("out_of_range"));
        }
        let documents = list.into_iter().enumerate().map(|(i, value)| document(format!("documents[{i}]"), value));
        let documents = documents.collect::<Result<_, _>>()?;
        let top_n = fields.integer("top_n", 1..=i64::MAX)?.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        let return_documents = fields.bool("return_documents")?.unwrap_or(false);
        let cache = CacheRequest::take(&mut fields)?;
        fields.string("user")?;
        fields.finish()?;
        let request = RerankRequest { query, documents, top_n, cache: None };
        Ok(Self { request, cache, return_documents })
    }
}

/// A text, by itself or in an object.
fn document(path: String, value: Json) -> Result<String, ApiError> {
    match value {
        Json::String(text) => bounded(&path, text, usize::MAX),
        Json::Object(_) => {
            let mut fields = Fields::nested(path, value)?;
            let path = fields.path("text");
            let text = fields.string("text")?.ok_or_else(|| missing(&path, "a string"))?;
            fields.ignore_rest();
            bounded(&path, text, usize::MAX)
        }
        other => Err(wrong_type(&path, "a string or an object with `text`", &other)),
    }
}

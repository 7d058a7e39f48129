//! What the endpoints of vector stores take.

use crate::documents::{Attribute, AttributeFilter, Attributes, Chunking, NewMember, NewStore, StoreChange};
use crate::http::body::documents::filter;
use crate::http::body::documents::{attribute, shorter};
use crate::http::body::fields::{Fields, at_most, missing, wrong_type};
use crate::http::wire::error::ApiError;
use crate::limits;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

const NO_EXPIRY: &str = "is not supported: a store stays until it is removed";

/// Reads a new store.
pub(super) fn new_store(body: &[u8]) -> Result<NewStore, ApiError> {
    let mut fields = Fields::of_body(body)?;
    fields.refuse("expires_after", NO_EXPIRY)?;
    let (name, description) = (short(&mut fields, "name")?.unwrap_or_default(), short(&mut fields, "description")?);
    let metadata = metadata(&mut fields)?.unwrap_or_default();
    let (ids, chunking) = (file_ids(&mut fields)?.unwrap_or_default(), chunking(&mut fields)?);
    fields.finish()?;
    let files = ids.into_iter().map(|file_id| NewMember { file_id, chunking, attributes: Attributes::new() });
    Ok(NewStore { name, description, metadata, files: files.collect() })
}

/// A change of a store.
pub(super) fn store_change(body: &[u8]) -> Result<StoreChange, ApiError> {
    let mut fields = Fields::of_body(body)?;
    fields.refuse("expires_after", NO_EXPIRY)?;
    let change = StoreChange { name: short(&mut fields, "name")?, metadata: metadata(&mut fields)? };
    fields.finish()?;
    Ok(change)
}

/// A file for a store.
pub(super) fn new_member(body: &[u8]) -> Result<NewMember, ApiError> {
    member(Fields::of_body(body)?)
}

fn member(mut fields: Fields) -> Result<NewMember, ApiError> {
    let path = fields.path("file_id");
    let file_id = fields.string("file_id")?.ok_or_else(|| missing(&path, "the id of a file"))?;
    let attributes = attributes(&mut fields)?.unwrap_or_default();
    let chunking = chunking(&mut fields)?;
    fields.finish()?;
    Ok(NewMember { file_id, attributes, chunking })
}

/// Other attributes for a file of a store.
pub(super) fn new_attributes(body: &[u8]) -> Result<Attributes, ApiError> {
    let mut fields = Fields::of_body(body)?;
    let attributes = attributes(&mut fields)?.unwrap_or_default();
    fields.finish()?;
    Ok(attributes)
}

/// Files for a store, all alike or each for itself.
pub(super) fn new_batch(body: &[u8]) -> Result<Vec<NewMember>, ApiError> {
    let mut fields = Fields::of_body(body)?;
    let (ids, each) = (file_ids(&mut fields)?, fields.list("files")?);
    let (attributes, chunking) = (attributes(&mut fields)?.unwrap_or_default(), chunking(&mut fields)?);
    fields.finish()?;
    let files: Vec<NewMember> = match (ids, each) {
        (Some(_), Some(_)) => {
            return Err(ApiError::invalid("files", "`files` and `file_ids` exclude each other: give one of them"));
        }
        (Some(ids), None) => {
            let new = |file_id| NewMember { file_id, attributes: attributes.clone(), chunking };
            ids.into_iter().map(new).collect()
        }
        (None, each) => {
            let each = each.ok_or_else(|| missing("file_ids", "an array of ids of files"))?;
            at_most("files", each.len(), limits::STORE_BATCH_FILES_MAX)?;
            let files = each.into_iter().enumerate();
            files.map(|(i, value)| member(Fields::nested(format!("files[{i}]"), value)?)).collect::<Result<_, _>>()?
        }
    };
    distinct(&files)?;
    Ok(files)
}

/// A file is in a store once.
fn distinct(files: &[NewMember]) -> Result<(), ApiError> {
    let mut seen = HashSet::new();
    match files.iter().find(|new| !seen.insert(&new.file_id)) {
        Some(twice) => Err(ApiError::invalid("file_ids", format!("the file {:?} is named twice", twice.file_id))),
        None if files.is_empty() => Err(missing("file_ids", "an array of ids of files, not empty")),
        None => Ok(()),
    }
}

fn file_ids(fields: &mut Fields) -> Result<Option<Vec<String>>, ApiError> {
    let Some(list) = fields.list("file_ids")? else { return Ok(None) };
    at_most("file_ids", list.len(), limits::STORE_BATCH_FILES_MAX)?;
    let mut ids = Vec::with_capacity(list.len());
    for (i, value) in list.into_iter().enumerate() {
        match value {
            Value::String(id) => ids.push(id),
            other => return Err(wrong_type(&format!("file_ids[{i}]"), "a string", &other)),
        }
    }
    Ok(Some(ids))
}

fn short(fields: &mut Fields, name: &'static str) -> Result<Option<String>, ApiError> {
    let path = fields.path(name);
    let text = fields.string(name)?;
    text.map(|text| shorter(&path, text, limits::STORE_NAME_CHARS_MAX)).transpose()
}

/// Reads pairs of texts.
fn metadata(fields: &mut Fields) -> Result<Option<BTreeMap<String, String>>, ApiError> {
    let path = fields.path("metadata");
    let pairs = pairs(fields, "metadata")?.map(|pairs| {
        let text = |(key, value)| match value {
            Attribute::Text(text) => Ok((key, text)),
            other => {
                let got = serde_json::to_value(&other).unwrap_or_default();
                Err(wrong_type(&format!("{path}.{key}"), "a string", &got))
            }
        };
        pairs.into_iter().map(text).collect()
    });
    pairs.transpose()
}

fn attributes(fields: &mut Fields) -> Result<Option<Attributes>, ApiError> {
    pairs(fields, "attributes")
}

fn pairs(fields: &mut Fields, name: &'static str) -> Result<Option<Attributes>, ApiError> {
    let path = fields.path(name);
    let Some(map) = fields.object(name)? else { return Ok(None) };
    at_most(&path, map.len(), limits::ATTRIBUTES_MAX)?;
    let pair = |(key, value): (String, Value)| {
        let key = shorter(&format!("{path}, a key"), key, limits::ATTRIBUTE_KEY_CHARS_MAX)?;
        let value = attribute(&format!("{path}.{key}"), value)?;
        Ok((key, value))
    };
    map.into_iter().map(pair).collect::<Result<_, _>>().map(Some)
}

/// How files are cut.
fn chunking(fields: &mut Fields) -> Result<Chunking, ApiError> {
    let Some(mut strategy) = fields.fields("chunking_strategy")? else { return Ok(Chunking::Auto) };
    let path = strategy.path("type");
    let is_static = strategy.choice("type", [("auto", false), ("static", true)])?;
    let is_static = is_static.ok_or_else(|| missing(&path, "\"auto\" or \"static\""))?;
    let path = strategy.path("static");
    let sizes = strategy.fields("static")?;
    strategy.finish()?;
    if !is_static {
        return Ok(Chunking::Auto);
    }
    let mut sizes = sizes.ok_or_else(|| missing(&path, "an object"))?;
    let range = limits::CHUNK_TOKENS_RANGE;
    let path = sizes.path("max_chunk_size_tokens");
    let tokens = sizes.integer("max_chunk_size_tokens", i64::from(*range.start())..=i64::from(*range.end()))?;
    let tokens = tokens.ok_or_else(|| missing(&path, "the most tokens of a passage"))?;
    let overlap = sizes.integer("chunk_overlap_tokens", 0..=tokens / 2)?;
    sizes.finish()?;
    let tokens = tokens as u32;
    Ok(Chunking::Static { tokens, overlap: overlap.map_or_else(|| Chunking::usual_overlap(tokens), |n| n as u32) })
}

/// What is looked for in a store.
#[derive(Debug, PartialEq)]
pub(super) struct StoreSearchRequest {
    /// One or several, none of them empty.
    pub(super) queries: Vec<String>,
    /// The most passages that are wanted.
    pub(super) k: usize,
    pub(super) filter: Option<AttributeFilter>,
    /// Passages below it are left out.
    pub(super) threshold: f64,
    /// How much vectors count, if the request says.
    pub(super) weight: Option<f32>,
}

/// Passages that a search finds where it does not say.
const K: usize = 10;

impl StoreSearchRequest {
    /// Reads and checks a body.
    pub(super) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let queries = queries(&mut fields)?;
        let k = fields.integer("max_num_results", 1..=limits::STORE_RESULTS_MAX as i64)?.map_or(K, |k| k as usize);
        let filter = filter(&mut fields)?;
        fields.fixed("rewrite_query", false, "queries are searched for as they are written")?;
        let (threshold, weight) = match fields.fields("ranking_options")? {
            Some(mut options) => {
                // There is one ranking, which each of these names.
                options.choice("ranker", [("none", ()), ("auto", ()), ("default-2024-11-15", ())])?;
                let threshold = options.number("score_threshold", 0.0..=1.0)?.unwrap_or(0.0);
                let weight = vector_weight(&mut options)?;
                options.finish()?;
                (threshold, weight)
            }
            None => (0.0, None),
        };
        fields.finish()?;
        Ok(Self { queries, k, filter, threshold, weight })
    }
}

/// The weight of vectors as their share of both weights.
fn vector_weight(options: &mut Fields) -> Result<Option<f32>, ApiError> {
    let Some(mut weights) = options.fields("hybrid_search")? else { return Ok(None) };
    let mut weight = |name| {
        let path = weights.path(name);
        weights.number(name, 0.0..=limits::SEARCH_WEIGHT_MAX)?.ok_or_else(|| missing(&path, "a number"))
    };
    let (vectors, words) = (weight("embedding_weight")?, weight("text_weight")?);
    let path = weights.path("text_weight");
    weights.finish()?;
    if vectors + words <= 0.0 {
        let message = format!("`{path}` and the weight of embeddings are both 0: one of them must be greater");
        return Err(ApiError::invalid(&path, message));
    }
    Ok(Some((vectors / (vectors + words)) as f32))
}

fn queries(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let value = fields.any("query").ok_or_else(|| missing("query", "a string or an array of strings"))?;
    let queries = match value {
        Value::String(query) => vec![query],
        Value::Array(list) => {
            at_most("query", list.len(), limits::STORE_QUERIES_MAX)?;
            let text = |(i, value)| match value {
                Value::String(query) => Ok(query),
                other => Err(wrong_type(&format!("query[{i}]"), "a string", &other)),
            };
            list.into_iter().enumerate().map(text).collect::<Result<_, _>>()?
        }
        other => return Err(wrong_type("query", "a string or an array of strings", &other)),
    };
    if queries.is_empty() || queries.iter().any(|query| query.trim().is_empty()) {
        return Err(ApiError::invalid("query", "`query` must not be empty"));
    }
    let (got, max) = (queries.iter().map(String::len).sum::<usize>(), limits::STORE_QUERY_BYTES_MAX);
    if got > max {
        return Err(ApiError::invalid("query", format!("`query` has {got} bytes, at most {max} are taken")));
    }
    Ok(queries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bytes(body: &Value) -> Vec<u8> {
        body.to_string().into_bytes()
    }

    #[track_caller]
    fn refused<T: std::fmt::Debug>(parse: fn(&[u8]) -> Result<T, ApiError>, body: &Value, param: &str) {
        let error = parse(&bytes(body)).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(param), "{body}: {error}");
    }

    #[test]
    fn a_store_begins_with_a_name_pairs_and_files() {
        let body = json!({"name": "ours", "metadata": {"a": "b"}, "file_ids": ["file-1"],
            "chunking_strategy": {"type": "static",
                "static": {"max_chunk_size_tokens": 800, "chunk_overlap_tokens": 400}}});
        let new = new_store(&bytes(&body)).unwrap();
        assert_eq!((new.name.as_str(), new.metadata["a"].as_str(), new.files.len()), ("ours", "b", 1));
        assert_eq!(new.files[0].chunking, Chunking::Static { tokens: 800, overlap: 400 });
        assert_eq!(new_store(b"{}"), Ok(NewStore::default()));
        refused(new_store, &json!({"expires_after": {"anchor": "last_active_at", "days": 1}}), "expires_after");
        refused(new_store, &json!({"metadata": {"a": 1}}), "metadata.a");
        refused(new_store, &json!({"nmae": "a"}), "nmae");
        refused(new_store, &json!({"file_ids": [1]}), "file_ids[0]");
        let chunking = |tokens: u32, overlap: u32| {
            json!({"file_id": "f", "chunking_strategy": {"type": "static",
            "static": {"max_chunk_size_tokens": tokens, "chunk_overlap_tokens": overlap}}})
        };
        refused(new_member, &chunking(99, 0), "chunking_strategy.static.max_chunk_size_tokens");
        refused(new_member, &chunking(4097, 0), "chunking_strategy.static.max_chunk_size_tokens");
        refused(new_member, &chunking(100, 51), "chunking_strategy.static.chunk_overlap_tokens");
        refused(store_change, &json!({"name": "a".repeat(257)}), "name");
    }

    #[test]
    fn a_batch_has_files_that_are_alike_or_each_its_own() {
        let alike = json!({"file_ids": ["a", "b"], "attributes": {"x": 1, "y": true, "z": "t"}});
        let files = new_batch(&bytes(&alike)).unwrap();
        assert_eq!((files.len(), files[1].attributes["x"].clone()), (2, Attribute::Number(1.0)));
        let each = json!({"files": [{"file_id": "a"}, {"file_id": "b", "attributes": {"x": "1"}}]});
        assert_eq!(new_batch(&bytes(&each)).unwrap()[1].attributes["x"], Attribute::Text("1".into()));
        refused(new_batch, &json!({"file_ids": ["a"], "files": [{"file_id": "a"}]}), "files");
        refused(new_batch, &json!({"file_ids": ["a", "a"]}), "file_ids");
        refused(new_batch, &json!({"file_ids": []}), "file_ids");
        refused(new_batch, &json!({}), "file_ids");
        refused(new_batch, &json!({"file_ids": vec!["a"; 2001]}), "file_ids");
        refused(new_attributes, &json!({"attributes": {"a": []}}), "attributes.a");
        refused(new_attributes, &json!({"attributes": {"a": "b".repeat(513)}}), "attributes.a");
    }

    #[test]
    fn a_search_has_queries_a_number_and_a_threshold() {
        let parse = |body: Value| StoreSearchRequest::parse(&bytes(&body));
        let asked = parse(json!({"query": ["a", "b"], "max_num_results": 50, "rewrite_query": false,
            "ranking_options": {"ranker": "auto", "score_threshold": 0.5}}))
        .unwrap();
        assert_eq!((asked.queries.len(), asked.k, asked.threshold), (2, 50, 0.5));
        let hybrid = |weights: Value| json!({"query": "a", "ranking_options": {"hybrid_search": weights}});
        let weight =
            |vectors, words| parse(hybrid(json!({"embedding_weight": vectors, "text_weight": words}))).unwrap().weight;
        assert_eq!((weight(3, 1), weight(0, 1), weight(1, 0)), (Some(0.75), Some(0.0), Some(1.0)));
        let plain = parse(json!({"query": "a"})).unwrap();
        assert_eq!((plain.k, plain.weight), (10, None));
        for (body, param) in [
            (json!({}), "query"),
            (json!({"query": " "}), "query"),
            (json!({"query": []}), "query"),
            (json!({"query": vec!["a"; 9]}), "query"),
            (json!({"query": "a".repeat(16_385)}), "query"),
            (json!({"query": [1]}), "query[0]"),
            (json!({"query": "a", "max_num_results": 51}), "max_num_results"),
            (json!({"query": "a", "rewrite_query": true}), "rewrite_query"),
            (json!({"query": "a", "ranking_options": {"score_threshold": 2}}), "ranking_options.score_threshold"),
            (json!({"query": "a", "ranking_options": {"ranker": "best"}}), "ranking_options.ranker"),
            (hybrid(json!({"embedding_weight": 1})), "ranking_options.hybrid_search.text_weight"),
            (hybrid(json!({"embedding_weight": 0, "text_weight": 0})), "ranking_options.hybrid_search.text_weight"),
            (
                hybrid(json!({"embedding_weight": -1, "text_weight": 1})),
                "ranking_options.hybrid_search.embedding_weight",
            ),
            (hybrid(json!({"rank": 1})), "ranking_options.hybrid_search.embedding_weight"),
        ] {
            assert_eq!(parse(body).unwrap_err().param.as_deref(), Some(param));
        }
    }
}

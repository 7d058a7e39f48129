//! Files and vector stores as `/openapi.json` describes them.

use crate::limits;
use serde_json::{Value, json};

/// Path, method, what it does, and the schema of its body.
pub(in crate::http::endpoints) const ENDPOINTS: &[(&str, &str, &str, Option<&str>)] = &[
    ("/v1/files", "get", "List the files", None),
    ("/v1/files", "post", "Take a file", Some("File")),
    ("/v1/files/{file}", "get", "Show a file", None),
    ("/v1/files/{file}", "delete", "Remove a file", None),
    ("/v1/files/{file}/content", "get", "The bytes of a file", None),
    ("/v1/vector_stores", "get", "List the vector stores", None),
    ("/v1/vector_stores", "post", "Make a vector store", Some("Store")),
    ("/v1/vector_stores/{store}", "get", "Show a vector store", None),
    ("/v1/vector_stores/{store}", "post", "Change a vector store", Some("StoreChange")),
    ("/v1/vector_stores/{store}", "delete", "Remove a vector store", None),
    ("/v1/vector_stores/{store}/search", "post", "Find passages", Some("StoreSearch")),
    ("/v1/vector_stores/{store}/selftest", "post", "Test the vectors of a vector store", Some("Nothing")),
    ("/v1/vector_stores/{store}/files", "get", "List the files of a vector store", None),
    ("/v1/vector_stores/{store}/files", "post", "Put a file into a vector store", Some("StoreFile")),
    ("/v1/vector_stores/{store}/files/{file}", "get", "Show where a file stands", None),
    ("/v1/vector_stores/{store}/files/{file}", "post", "Give a file other attributes", Some("StoreAttributes")),
    ("/v1/vector_stores/{store}/files/{file}", "delete", "Take a file out of a vector store", None),
    ("/v1/vector_stores/{store}/files/{file}/content", "get", "The text of a file", None),
    ("/v1/vector_stores/{store}/file_batches", "post", "Put files into a vector store", Some("StoreBatch")),
    ("/v1/vector_stores/{store}/file_batches/{batch}", "get", "Show where files stand", None),
    ("/v1/vector_stores/{store}/file_batches/{batch}/cancel", "post", "Give up files", Some("Nothing")),
    ("/v1/vector_stores/{store}/file_batches/{batch}/files", "get", "List the files of a batch", None),
];

/// The schemas of the bodies, by name.
pub(in crate::http::endpoints) fn schemas() -> Vec<(&'static str, Value)> {
    let strict = |properties: Value, required: &[&str]| {
        let closed = json!({"type": "object", "additionalProperties": false});
        let (mut schema, own) = (closed, json!({"properties": properties, "required": required}));
        if let (Value::Object(schema), Value::Object(own)) = (&mut schema, own) {
            schema.extend(own);
        }
        schema
    };
    let object = || json!({"type": ["object", "null"]});
    let name = || json!({"type": ["string", "null"], "maxLength": limits::STORE_NAME_CHARS_MAX});
    let pairs = || json!({"type": ["object", "null"], "maxProperties": limits::ATTRIBUTES_MAX});
    let several =
        |items: Value| json!({"type": ["array", "null"], "items": items, "maxItems": limits::STORE_BATCH_FILES_MAX});
    let text = || json!({"type": "string", "minLength": 1});
    let file = json!({"file_id": text(), "attributes": pairs(), "chunking_strategy": object()});
    let queries = json!({"type": "array", "items": text(), "minItems": 1, "maxItems": limits::STORE_QUERIES_MAX});
    vec![
        (
            "File",
            strict(
                json!({"file": {"type": "string", "format": "binary"},
                    "purpose": {"enum": ["assistants", "user_data"]}}),
                &["file", "purpose"],
            ),
        ),
        (
            "Store",
            strict(
                json!({"name": name(), "description": name(), "metadata": pairs(), "file_ids": several(text()),
                    "chunking_strategy": object()}),
                &[],
            ),
        ),
        ("StoreChange", strict(json!({"name": name(), "metadata": pairs()}), &[])),
        ("StoreFile", strict(file.clone(), &["file_id"])),
        ("StoreAttributes", strict(json!({"attributes": pairs()}), &[])),
        (
            "StoreBatch",
            strict(
                json!({"file_ids": several(text()), "files": several(strict(file, &["file_id"])),
                    "attributes": pairs(), "chunking_strategy": object()}),
                &[],
            ),
        ),
        (
            "StoreSearch",
            strict(
                json!({"query": {"anyOf": [text(), queries]}, "filters": object(),
                    "rewrite_query": {"enum": [false, null]}, "ranking_options": object(),
                    "max_num_results": {"type": ["integer", "null"], "minimum": 1,
                        "maximum": limits::STORE_RESULTS_MAX}}),
                &["query"],
            ),
        ),
    ]
}

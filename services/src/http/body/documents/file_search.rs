//! The tool `file_search`, which the service runs itself before an answer.

use super::filters::filter;
use crate::http::body::fields::{Fields, at_most, missing};
use crate::http::wire::error::ApiError;
use crate::limits::{FILE_SEARCH_STORES_MAX, STORE_RESULTS_MAX};
use crate::text::template::written;
use crate::turn::options::{FileSearchRequest, StoreReading};
use serde_json::Value as Json;

/// The type of the tool.
pub(in crate::http) const FILE_SEARCH: &str = "file_search";
/// Passages that are read where a request does not say how many.
const RESULTS: u32 = 8;

/// Whether a tool is a search of files.
pub(in crate::http::body) fn is_file_search(tool: &Json) -> bool {
    tool["type"] == FILE_SEARCH
}

/// The search of files among a request's tools, which come with their places.
pub(in crate::http::body) fn the_file_search(tools: Vec<(usize, Json)>) -> Result<Option<FileSearchRequest>, ApiError> {
    let mut search = None;
    for (i, tool) in tools {
        let path = format!("tools[{i}]");
        if search.replace(one(&path, tool)?).is_some() {
            let message = format!("`{path}` is a second file_search: name all stores in one");
            return Err(ApiError::invalid(&path, message));
        }
    }
    Ok(search)
}

/// One search, whose fields stand beside its type or, as those of functions do, in an object of its name.
fn one(path: &str, tool: Json) -> Result<FileSearchRequest, ApiError> {
    // Numbers in tools keep their digits, because templates show them. Those of this one are read here.
    let mut fields = Fields::nested(path.to_owned(), written::plain(&tool))?;
    fields.string("type")?;
    if let Some(inner) = fields.fields(FILE_SEARCH)? {
        fields.ignore_rest();
        fields = inner;
    }
    let stores_path = fields.path("vector_store_ids");
    let list = fields.list("vector_store_ids")?.ok_or_else(|| missing(&stores_path, "an array of ids"))?;
    at_most(&stores_path, list.len(), FILE_SEARCH_STORES_MAX)?;
    let id = |value: Json| value.as_str().map(str::to_owned).ok_or_else(|| missing(&stores_path, "an array of ids"));
    let stores = list.into_iter().map(id).collect::<Result<Vec<_>, _>>()?;
    if stores.is_empty() {
        return Err(ApiError::invalid(&stores_path, format!("`{stores_path}` must name a store")));
    }
    let most = fields.integer("max_num_results", 1..=STORE_RESULTS_MAX as i64)?;
    let filter = filter(&mut fields)?;
    let reading = fields.choice("mode", [("passages", StoreReading::Passages), ("whole", StoreReading::Whole)])?;
    let verbatim = fields.choice("quotes", [("free", false), ("verbatim", true)])?.unwrap_or(false);
    let sufficiency_min = fields.number("sufficiency_min", 0.0..=1.0)?.unwrap_or(0.0);
    let score_min = ranking(&mut fields)?;
    fields.finish()?;
    Ok(FileSearchRequest {
        field: path.to_owned(),
        stores,
        reading: reading.unwrap_or(StoreReading::Passages),
        k: most.map_or(RESULTS, |most| most as u32),
        filter,
        score_min,
        verbatim,
        sufficiency_min,
    })
}

/// The least score of a passage. How the legs of a search are weighed is the store's own matter.
fn ranking(fields: &mut Fields) -> Result<f32, ApiError> {
    let Some(mut options) = fields.fields("ranking_options")? else { return Ok(0.0) };
    let threshold = options.number("score_threshold", 0.0..=1.0)?;
    options.ignore_rest();
    Ok(threshold.unwrap_or(0.0) as f32)
}

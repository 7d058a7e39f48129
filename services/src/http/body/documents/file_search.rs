//! The tool `file_search`, which the service runs itself: before an answer, or within it where the model writes the
//! queries.

use super::filters::filter;
use crate::http::body::fields::{Fields, at_most, missing, wrong_type};
use crate::http::wire::error::ApiError;
use crate::limits::{FILE_SEARCH_STORES_MAX, STORE_RESULTS_MAX};
use crate::text::template::written;
use crate::turn::options::{FileSearchRequest, Generation, QueryWriter, StoreReading};
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
    let id = |(i, value): (usize, Json)| match value {
        Json::String(id) => Ok(id),
        other => Err(wrong_type(&format!("{stores_path}[{i}]"), "a string", &other)),
    };
    let stores = list.into_iter().enumerate().map(id).collect::<Result<Vec<_>, _>>()?;
    if stores.is_empty() {
        return Err(ApiError::invalid(&stores_path, format!("`{stores_path}` must name a store")));
    }
    let most = fields.integer("max_num_results", 1..=STORE_RESULTS_MAX as i64)?;
    let filter = filter(&mut fields)?;
    let reading = fields.choice("mode", [("passages", StoreReading::Passages), ("whole", StoreReading::Whole)])?;
    let verbatim = fields.choice("quotes", [("free", false), ("verbatim", true)])?.unwrap_or(false);
    let sufficiency_min = fields.number("sufficiency_min", 0.0..=1.0)?.unwrap_or(0.0);
    let queries = fields.choice("queries", [("question", QueryWriter::User), ("written", QueryWriter::Model)])?;
    let queries = queries.unwrap_or(QueryWriter::User);
    let score_min = ranking(&mut fields)?;
    fields.finish()?;
    let reading = reading.unwrap_or(StoreReading::Passages);
    if queries == QueryWriter::Model {
        // Nothing is searched for in a text that is read as a whole; and the passages that a quote may be of have to be
        // known before the answer begins.
        refuse_beside(path, "mode", "whole", reading == StoreReading::Whole)?;
        refuse_beside(path, "quotes", "verbatim", verbatim)?;
        refuse_beside(path, "sufficiency_min", &sufficiency_min.to_string(), sufficiency_min > 0.0)?;
    }
    Ok(FileSearchRequest {
        field: path.to_owned(),
        stores,
        reading,
        k: most.map_or(RESULTS, |most| most as u32),
        filter,
        score_min,
        verbatim,
        sufficiency_min,
        queries,
    })
}

/// Refuses a value of another field, if it is `there`, where the model writes the queries.
fn refuse_beside(tool: &str, field: &str, value: &str, there: bool) -> Result<(), ApiError> {
    let path = format!("{tool}.queries");
    let message = format!("`{path}` cannot be \"written\" beside `{tool}.{field}`: {value:?}");
    if there { Err(ApiError::invalid(&path, message)) } else { Ok(()) }
}

/// Refuses what a turn of several generations cannot do; `asks` is the tool and its field that want one.
pub(in crate::http::body) fn check_rounds(
    asks: Option<(&str, &str)>,
    generation: &Generation,
    continues: bool,
) -> Result<(), ApiError> {
    let Some((tool, field)) = asks else { return Ok(()) };
    let value = if field == "queries" { "written" } else { "mcp" };
    check_answer(&format!("{tool}.{field}"), &format!("cannot be {value:?}"), generation, continues)
}

/// Refuses an answer within which no calls can be run, for a field that would have them run.
pub(in crate::http::body) fn check_answer(
    path: &str,
    why: &str,
    generation: &Generation,
    continues: bool,
) -> Result<(), ApiError> {
    let refused = [
        ("`n` above 1: the calls of one answer are run", generation.spec.engine.choices > 1),
        ("a form of the answer: the model could not call", generation.form.is_some()),
        ("an answer that goes on with the last message", continues),
    ];
    match refused.into_iter().find(|(_, there)| *there) {
        Some((other, _)) => Err(ApiError::invalid(path, format!("`{path}` {why} beside {other}"))),
        None => Ok(()),
    }
}

/// The least score of a passage. How the legs of a search are weighed is the store's own matter.
fn ranking(fields: &mut Fields) -> Result<f32, ApiError> {
    let Some(mut options) = fields.fields("ranking_options")? else { return Ok(0.0) };
    let threshold = options.number("score_threshold", 0.0..=1.0)?;
    options.ignore_rest();
    Ok(threshold.unwrap_or(0.0) as f32)
}

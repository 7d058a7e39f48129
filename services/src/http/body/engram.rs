//! The field `engram`: which tables, how strongly, where, and texts to make a table of for this request alone.

use super::fields::{Fields, at_most, missing, wrong_type};
use crate::engram::{ModeName, Overrides, PhaseName};
use crate::http::wire::error::ApiError;
use crate::limits;
use crate::turn::options::{DocumentRequest, EngramRequest, SemanticRequest};
use chimere_engine::engram::{ALPHA_MAX, LAMBDA_MAX};
use serde_json::Value as Json;

impl EngramRequest {
    /// Takes the field; absent it says nothing.
    pub(super) fn take(body: &mut Fields) -> Result<Self, ApiError> {
        let Some(mut fields) = body.fields("engram")? else { return Ok(Self::default()) };
        let tables = strings(&mut fields, "tables", limits::ENGRAM_TABLES_MAX)?;
        let documents = documents(&mut fields)?;
        let sources = fields.bool("sources")?.unwrap_or(false);
        let modes = [("auto", ModeName::Auto), ("mixture", ModeName::Mixture), ("bias", ModeName::Bias)];
        let mode = fields.choice("mode", modes)?;
        let phase = fields.choice("phase", [("answer", PhaseName::Answer), ("all", PhaseName::All)])?;
        let alpha = fields.number("alpha", 0.0..=f64::from(ALPHA_MAX))?.map(|x| x as f32);
        // 0.95 as the nearest f32 lies a little below it, and f64 has both.
        let lambda = fields.number("lambda", 0.0..=LAMBDA_RANGE_END)?.map(|x| (x as f32).min(LAMBDA_MAX));
        let min_count = fields.integer("min_count", 1..=i64::from(u32::MAX))?.map(|n| n as u32);
        let semantic = SemanticRequest::take(&mut fields)?;
        fields.finish()?;
        let mode = mode_of(mode, alpha, lambda)?;
        Ok(Self { settings: Overrides { tables, mode, alpha, lambda, min_count, phase }, documents, sources, semantic })
    }
}

/// What people write for [`LAMBDA_MAX`].
const LAMBDA_RANGE_END: f64 = 0.95;

/// Each strength belongs to a mode.
fn mode_of(mode: Option<ModeName>, alpha: Option<f32>, lambda: Option<f32>) -> Result<Option<ModeName>, ApiError> {
    let belongs = |field: &str, to: &str| {
        Err(ApiError::invalid(
            field,
            format!("`{field}` belongs to `engram.mode` {to:?}: give the strength of one mode only"),
        ))
    };
    match (mode, alpha, lambda) {
        (None | Some(ModeName::Bias), Some(_), Some(_)) | (Some(ModeName::Bias | ModeName::Auto), _, Some(_)) => {
            belongs("engram.lambda", "mixture")
        }
        (Some(ModeName::Mixture | ModeName::Auto), Some(_), _) => belongs("engram.alpha", "bias"),
        (None, Some(_), None) => Ok(Some(ModeName::Bias)),
        (None, None, Some(_)) => Ok(Some(ModeName::Mixture)),
        (mode, _, _) => Ok(mode),
    }
}

/// Texts, or objects with a text and what it is called.
fn documents(fields: &mut Fields) -> Result<Vec<DocumentRequest>, ApiError> {
    let path = fields.path("documents");
    let Some(list) = fields.list("documents")? else { return Ok(Vec::new()) };
    at_most(&path, list.len(), limits::ENGRAM_DOCUMENTS_MAX)?;
    list.into_iter().enumerate().map(|(i, item)| document(format!("{path}[{i}]"), item)).collect()
}

fn document(path: String, item: Json) -> Result<DocumentRequest, ApiError> {
    let empty = |path: &str| ApiError::invalid(path, format!("`{path}` must not be empty"));
    let mut fields = match item {
        Json::String(text) if text.is_empty() => return Err(empty(&path)),
        Json::String(text) => return Ok(DocumentRequest { text, ..DocumentRequest::default() }),
        Json::Object(_) => Fields::nested(path.clone(), item)?,
        other => return Err(wrong_type(&path, "a string or an object with a \"text\"", &other)),
    };
    let (id, title) = (fields.string("id")?, fields.string("title")?);
    let path = fields.path("text");
    let text = fields.string("text")?.ok_or_else(|| missing(&path, "a string"))?;
    fields.finish()?;
    for (name, given) in [("id", &id), ("title", &title)] {
        let (max, got) = (limits::ENGRAM_DOCUMENT_NAME_BYTES_MAX, given.as_ref().map_or(0, String::len));
        if got > max {
            let path = path.replace("text", name);
            return Err(ApiError::invalid(&path, format!("`{path}` has {got} bytes, at most {max} are taken")));
        }
    }
    if text.is_empty() { Err(empty(&path)) } else { Ok(DocumentRequest { id, title, text }) }
}

/// The texts of an array, none of which is empty.
pub(in crate::http) fn strings(
    fields: &mut Fields,
    name: &'static str,
    max: usize,
) -> Result<Option<Vec<String>>, ApiError> {
    let path = fields.path(name);
    let Some(list) = fields.list(name)? else { return Ok(None) };
    at_most(&path, list.len(), max)?;
    let text = |(i, item): (usize, Json)| match item {
        Json::String(s) if s.is_empty() => {
            Err(ApiError::invalid(format!("{path}[{i}]"), format!("`{path}[{i}]` must not be empty")))
        }
        Json::String(s) => Ok(s),
        other => Err(wrong_type(&format!("{path}[{i}]"), "a string", &other)),
    };
    list.into_iter().enumerate().map(text).collect::<Result<_, _>>().map(Some)
}

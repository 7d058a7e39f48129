//! What an answer has to look like: `response_format`, vLLM's `structured_outputs`, the older `guided_` fields, and
//! llama.cpp's `json_schema` and `grammar`.

use super::fields::{Fields, missing, wrong_type};
use super::model::ModelLimits;
use crate::http::wire::error::ApiError;
use crate::text::grammar::AnswerForm;
use crate::text::template::written;
use crate::turn::options::AskedForm;
use chimere_engine::ids::TokenId;
use serde_json::{Value as Json, json};

const SCHEMA: &str = "response_format.json_schema.schema";
/// What vLLM had before `structured_outputs`.
const GUIDED: [&str; 4] = ["guided_json", "guided_regex", "guided_choice", "guided_grammar"];

/// What llama.cpp has. Its programs are used to objects that have no fields but those of the schema.
const LLAMA: [(&str, ReadForm); 2] =
    [("json_schema", |field, value| json_of(field, value, (false, true))), ("grammar", gbnf_of)];

/// Reads the value of a field with this path.
type ReadForm = fn(&'static str, Json) -> Result<AnswerForm, ApiError>;

/// One form, or none; two of them contradict each other.
pub(super) fn take(fields: &mut Fields) -> Result<Option<AskedForm>, ApiError> {
    let mut forms: Vec<AskedForm> = response_format(fields)?.into_iter().collect();
    if let Some(mut outputs) = fields.fields("structured_outputs")? {
        forms.extend(structured_outputs(&mut outputs)?);
        outputs.finish()?;
    }
    let readers: [ReadForm; 4] = [|field, value| json_of(field, value, (false, false)), regex_of, choice_of, lark_of];
    for (field, read) in GUIDED.into_iter().zip(readers).chain(LLAMA) {
        if let Some(value) = fields.any(field) {
            forms.push(AskedForm { field, form: read(field, value)? });
        }
    }
    if let [one, two, ..] = &forms[..] {
        let message =
            format!("`{}` and `{}` both say what the answer is to be: give one of them", one.field, two.field);
        return Err(ApiError::invalid(two.field, message));
    }
    Ok(forms.pop())
}

/// An answer under a grammar ends where the grammar does, so the ids that end one must be able to.
pub(super) fn check_ends(field: &str, end_ids: &[TokenId], limits: &ModelLimits) -> Result<(), ApiError> {
    if limits.end_ids.iter().any(|id| end_ids.contains(id)) {
        return Ok(());
    }
    let message = format!("`ignore_eos` and `{field}` contradict each other: an answer of a form has an end");
    Err(ApiError::invalid("ignore_eos", message))
}

fn response_format(fields: &mut Fields) -> Result<Option<AskedForm>, ApiError> {
    let Some(mut format) = fields.fields("response_format")? else { return Ok(None) };
    let path = format.path("type");
    let wanted = "\"text\", \"json_object\" or \"json_schema\"";
    let form = match format.string("type")?.as_deref() {
        Some("text") => None,
        Some("json_object") => Some(json_object(&mut format)?),
        Some("json_schema") => Some(json_schema(&mut format)?),
        Some(other) => return Err(ApiError::invalid(&path, format!("`{path}` must be {wanted}, got {other:?}"))),
        None => return Err(missing(&path, wanted)),
    };
    format.finish()?;
    Ok(form)
}

/// Any object, or what llama.cpp's programs give a schema of beside it.
fn json_object(format: &mut Fields) -> Result<AskedForm, ApiError> {
    let field = "response_format.schema";
    if let Some(schema) = format.any("schema") {
        return Ok(AskedForm { field, form: json_of(field, schema, (false, true))? });
    }
    let form = AnswerForm::Json { schema: json!({"type": "object"}), compact: false, closed: false };
    Ok(AskedForm { field: "response_format", form })
}

fn json_schema(format: &mut Fields) -> Result<AskedForm, ApiError> {
    let path = format.path("json_schema");
    let mut asked = format.fields("json_schema")?.ok_or_else(|| missing(&path, "an object with a `schema`"))?;
    asked.string("name")?;
    asked.string("description")?;
    // The answer keeps to the schema in both cases. Small models seldom end an object that they may add fields to, so
    // only a schema that says so, or a request that says that it is not strict, leaves objects open.
    let closed = asked.bool("strict")?.unwrap_or(true);
    let schema = asked.any("schema").ok_or_else(|| missing(SCHEMA, "a JSON schema"))?;
    asked.finish()?;
    Ok(AskedForm { field: SCHEMA, form: json_of(SCHEMA, schema, (false, closed))? })
}

fn structured_outputs(outputs: &mut Fields) -> Result<Vec<AskedForm>, ApiError> {
    let compact = outputs.bool("disable_any_whitespace")?.unwrap_or(false);
    // There is one way of doing it here, so nothing is fallen back to.
    outputs.bool("disable_fallback")?;
    let closed = outputs.bool("disable_additional_properties")?.unwrap_or(false);
    for name in ["structural_tag", "whitespace_pattern"] {
        outputs.refuse(name, "is not supported")?;
    }
    let mut forms = Vec::new();
    let mut add = |field, form| forms.push(AskedForm { field, form });
    if let Some(value) = outputs.any("json") {
        add("structured_outputs.json", json_of("structured_outputs.json", value, (compact, closed))?);
    }
    if outputs.bool("json_object")? == Some(true) {
        add("structured_outputs.json_object", AnswerForm::Json { schema: json!({"type": "object"}), compact, closed });
    }
    if let Some(value) = outputs.any("regex") {
        add("structured_outputs.regex", regex_of("structured_outputs.regex", value)?);
    }
    if let Some(value) = outputs.any("choice") {
        add("structured_outputs.choice", choice_of("structured_outputs.choice", value)?);
    }
    if let Some(value) = outputs.any("grammar") {
        add("structured_outputs.grammar", lark_of("structured_outputs.grammar", value)?);
    }
    Ok(forms)
}

/// A schema, which some programs send as a text; without white space, and with closed objects, if it is to be.
fn json_of(field: &'static str, value: Json, (compact, closed): (bool, bool)) -> Result<AnswerForm, ApiError> {
    let schema = match value {
        Json::String(text) => written::parse(&text)
            .map_err(|e| ApiError::invalid(field, format!("`{field}` must be a JSON schema in a string: {e}")))?,
        other => other,
    };
    if written::is_object(&schema) || schema.is_boolean() {
        return Ok(AnswerForm::Json { schema, compact, closed });
    }
    Err(wrong_type(field, "a JSON schema, which is an object", &schema))
}

fn regex_of(field: &'static str, value: Json) -> Result<AnswerForm, ApiError> {
    text(field, "an expression in a string", value).map(AnswerForm::Regex)
}

fn lark_of(field: &'static str, value: Json) -> Result<AnswerForm, ApiError> {
    text(field, "a grammar in a string", value).map(AnswerForm::Lark)
}

fn gbnf_of(field: &'static str, value: Json) -> Result<AnswerForm, ApiError> {
    text(field, "a grammar in a string", value).map(AnswerForm::Gbnf)
}

fn choice_of(field: &'static str, value: Json) -> Result<AnswerForm, ApiError> {
    let Json::Array(items) = value else { return Err(wrong_type(field, "an array of strings", &value)) };
    if items.is_empty() {
        return Err(ApiError::invalid(field, format!("`{field}` must not be empty")));
    }
    let texts = items.into_iter().enumerate().map(|(i, item)| match item {
        Json::String(text) if !text.is_empty() => Ok(text),
        other => Err(wrong_type(&format!("{field}[{i}]"), "a string that is not empty", &other)),
    });
    texts.collect::<Result<_, _>>().map(AnswerForm::Choice)
}

fn text(field: &'static str, wanted: &str, value: Json) -> Result<String, ApiError> {
    match value {
        Json::String(text) if !text.is_empty() => Ok(text),
        other => Err(wrong_type(field, wanted, &other)),
    }
}

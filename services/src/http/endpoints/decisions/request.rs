//! The body of `POST /v1/decisions`, in the shape of OpenAI's.

use crate::decide::{DecisionOption, DecisionQuestion, OptionValue, QuestionKind};
use crate::http::body::fields::{Fields, missing, wrong_type};
use crate::http::body::model::{ModelLimits, check_model};
use crate::http::body::turns::{BETWEEN, TurnsBuilder, text_of};
use crate::http::wire::error::ApiError;
use crate::limits::{
    DECISION_INSTRUCTIONS_BYTES_MAX, DECISION_NAME_BYTES_MAX, DECISION_OPTION_BYTES_MAX, DECISION_OPTIONS_MAX,
    DECISION_ORDERS_MAX, DECISION_QUESTIONS_MAX,
};
use crate::text::{Message, Role};
use crate::turn::decisions::DecisionRequest;
use crate::turn::options::CacheRequest;
use serde_json::Value as Json;
use std::collections::HashMap;

/// Questions, but for the scope of their cache.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::http) struct DecisionBody {
    /// The questions and their input.
    pub(in crate::http) request: DecisionRequest,
    /// Whether its prompts are looked up and kept.
    pub(in crate::http) cache: CacheRequest,
}

impl DecisionBody {
    /// Reads and checks a body.
    pub(in crate::http) fn parse(body: &[u8], limits: &ModelLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        check_model(&mut fields, limits)?;
        let input = input(&mut fields)?;
        let questions = questions(&mut fields)?;
        let orders = fields.integer("orders", 1..=i64::from(DECISION_ORDERS_MAX))?.map(|n| n as u32);
        let raw = fields.bool("raw")?.unwrap_or(false);
        let cache = CacheRequest::take(&mut fields)?;
        // They say nothing here that the key does not say.
        fields.same(&["prompt_cache_key", "prompt_cache_options", "safety_identifier", "user"]);
        fields.finish()?;
        Ok(Self { request: DecisionRequest { input, questions, orders, raw, cache: None }, cache })
    }
}

/// What the questions are about.
pub(in crate::http::endpoints) fn input(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    let (path, wanted) = (fields.path("input"), "a string or an array of messages");
    match fields.any("input").ok_or_else(|| missing(&path, wanted))? {
        Json::String(text) if text.is_empty() => Err(empty(&path)),
        Json::String(text) => Ok(vec![Message::new(Role::User, text)]),
        Json::Array(items) => messages(&path, items),
        other => Err(wrong_type(&path, wanted, &other)),
    }
}

/// The questions of a request.
pub(in crate::http::endpoints) fn questions(fields: &mut Fields) -> Result<Vec<DecisionQuestion>, ApiError> {
    let path = fields.path("questions");
    let list = fields.list("questions")?.ok_or_else(|| missing(&path, "an array of questions"))?;
    counted(&path, list.len(), 1..=DECISION_QUESTIONS_MAX)?;
    list.into_iter().enumerate().map(|(i, value)| question(format!("{path}[{i}]"), value)).collect()
}

fn empty(path: &str) -> ApiError {
    ApiError::invalid(path, format!("`{path}` must not be empty"))
}

fn counted(path: &str, got: usize, range: std::ops::RangeInclusive<usize>) -> Result<(), ApiError> {
    if range.contains(&got) {
        return Ok(());
    }
    let message = format!("`{path}` must have {} to {} entries, got {got}", range.start(), range.end());
    Err(ApiError::invalid(path, message).with_code("out_of_range"))
}

/// Messages of a conversation, which may end with an answer that is to be judged.
fn messages(path: &str, items: Vec<Json>) -> Result<Vec<Message>, ApiError> {
    if items.is_empty() {
        return Err(empty(path));
    }
    let mut turns = TurnsBuilder::default();
    for (i, item) in items.into_iter().enumerate() {
        message(&mut turns, format!("{path}[{i}]"), item)?;
    }
    Ok(turns.end())
}

fn message(turns: &mut TurnsBuilder, path: String, item: Json) -> Result<(), ApiError> {
    let mut fields = Fields::nested(path, item)?;
    fields.choice("type", [("message", ())])?;
    let (role_path, path) = (fields.path("role"), fields.path("content"));
    let role = fields.string("role")?.ok_or_else(|| missing(&role_path, "a role"))?;
    let content = fields.any("content").ok_or_else(|| missing(&path, "a string or an array of parts"))?;
    let text = text_of(&path, content, BETWEEN)?;
    match role.as_str() {
        "system" | "developer" => turns.system(text),
        "user" => turns.user(text),
        "assistant" => turns.text(&text),
        other => {
            let message = format!("`{role_path}` must be user, assistant, system or developer, got {other:?}");
            return Err(ApiError::invalid(&role_path, message));
        }
    }
    fields.ignore_rest();
    Ok(())
}

fn question(path: String, value: Json) -> Result<DecisionQuestion, ApiError> {
    let mut fields = Fields::nested(path, value)?;
    let kinds = [QuestionKind::Predicate, QuestionKind::Choice, QuestionKind::Score].map(|kind| (kind.name(), kind));
    let path = fields.path("type");
    let kind = fields.choice("type", kinds)?.ok_or_else(|| missing(&path, "predicate, choice or score"))?;
    let path = fields.path("name");
    let name = fields.string("name")?.map(|name| bounded(&path, name, DECISION_NAME_BYTES_MAX)).transpose()?;
    let path = fields.path("instructions");
    let instructions = fields.any("instructions").ok_or_else(|| missing(&path, "a string or an array of parts"))?;
    let instructions = bounded(&path, text_of(&path, instructions, BETWEEN)?, DECISION_INSTRUCTIONS_BYTES_MAX)?;
    let question = match kind {
        QuestionKind::Predicate => DecisionQuestion::predicate(name, instructions),
        QuestionKind::Choice => {
            DecisionQuestion { name, instructions, kind, options: options(&mut fields, "choices", choice)? }
        }
        QuestionKind::Score => {
            DecisionQuestion { name, instructions, kind, options: options(&mut fields, "levels", level)? }
        }
    };
    fields.finish()?;
    Ok(question)
}

/// The options of a question, of which no two are alike.
fn options(
    fields: &mut Fields,
    field: &'static str,
    one: impl Fn(String, Json) -> Result<DecisionOption, ApiError>,
) -> Result<Vec<DecisionOption>, ApiError> {
    let path = fields.path(field);
    let list = fields.list(field)?.ok_or_else(|| missing(&path, "an array of options"))?;
    counted(&path, list.len(), 2..=DECISION_OPTIONS_MAX)?;
    let options = list.into_iter().enumerate().map(|(i, value)| one(format!("{path}[{i}]"), value));
    let options: Vec<DecisionOption> = options.collect::<Result<_, _>>()?;
    let mut seen = HashMap::new();
    for (i, option) in options.iter().enumerate() {
        if let Some(before) = seen.insert(&option.value, i) {
            let path = format!("{path}[{i}]");
            return Err(ApiError::invalid(&path, format!("`{path}` is the same as entry {before}: options differ")));
        }
    }
    Ok(options)
}

/// An option by itself or with a description.
fn choice(path: String, value: Json) -> Result<DecisionOption, ApiError> {
    if !value.is_object() {
        return Ok(DecisionOption { value: option_value(&path, value)?, description: None });
    }
    let mut fields = Fields::nested(path, value)?;
    let path = fields.path("value");
    let value = fields.any("value").ok_or_else(|| missing(&path, "a string or a boolean"))?;
    described(fields, option_value(&path, value)?)
}

/// A level by itself or with a description.
fn level(path: String, value: Json) -> Result<DecisionOption, ApiError> {
    if let Json::String(label) = value {
        let value = OptionValue::Text(bounded(&path, label, DECISION_OPTION_BYTES_MAX)?);
        return Ok(DecisionOption { value, description: None });
    }
    let mut fields = Fields::nested(path, value)?;
    let path = fields.path("label");
    let label = fields.string("label")?.ok_or_else(|| missing(&path, "a string"))?;
    described(fields, OptionValue::Text(bounded(&path, label, DECISION_OPTION_BYTES_MAX)?))
}

fn described(mut fields: Fields, value: OptionValue) -> Result<DecisionOption, ApiError> {
    let path = fields.path("description");
    let description = fields.string("description")?.map(|text| bounded(&path, text, DECISION_OPTION_BYTES_MAX));
    fields.finish()?;
    Ok(DecisionOption { value, description: description.transpose()? })
}

fn option_value(path: &str, value: Json) -> Result<OptionValue, ApiError> {
    match value {
        Json::String(text) => Ok(OptionValue::Text(bounded(path, text, DECISION_OPTION_BYTES_MAX)?)),
        Json::Bool(flag) => Ok(OptionValue::Flag(flag)),
        other => Err(wrong_type(path, "a string or a boolean", &other)),
    }
}

/// A text that is not empty, of at most so many bytes.
pub(in crate::http::endpoints) fn bounded(path: &str, text: String, bytes_max: usize) -> Result<String, ApiError> {
    match text.len() {
        0 => Err(empty(path)),
        got if got > bytes_max => {
            let message = format!("`{path}` must have at most {bytes_max} bytes, got {got}");
            Err(ApiError::invalid(path, message).with_code("out_of_range"))
        }
        _ => Ok(text),
    }
}

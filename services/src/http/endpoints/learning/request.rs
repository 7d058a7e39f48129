//! The body of `POST /v1/feedback`, and the query of an export, checked.

use crate::http::body::fields::{Fields, at_most, missing, wrong_type};
use crate::http::wire::error::ApiError;
use crate::learning::jsonl::LineShape;
use crate::learning::{ExampleSet, Feedback};
use crate::limits::{
    LEARNING_CORRECTION_CHARS_MAX, LEARNING_LABEL_CHARS_MAX, LEARNING_LABELS_MAX, LEARNING_REASON_CHARS_MAX,
};
use serde_json::Value as Json;
use std::collections::HashMap;

/// What somebody says of which answer.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::http::endpoints) struct FeedbackRequest {
    /// Id of the reply that was given.
    pub(in crate::http::endpoints) id: String,
    /// Rating and words of whoever read it.
    pub(in crate::http::endpoints) feedback: Feedback,
}

impl FeedbackRequest {
    /// Reads and checks a body.
    pub(in crate::http::endpoints) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let id = match (fields.string("response_id")?, fields.string("completion_id")?) {
            (Some(id), None) | (None, Some(id)) => id,
            (None, None) => {
                return Err(missing("response_id", "the `id` of an answer, or `completion_id` that of a chat's"));
            }
            _ => return Err(ApiError::invalid("completion_id", "give `response_id` or `completion_id`, not both")),
        };
        let rating = fields.integer("rating", -1..=1)?.map(|rating| rating as i8);
        let correction = text(&mut fields, "correction", LEARNING_CORRECTION_CHARS_MAX)?;
        let reason = text(&mut fields, "reason", LEARNING_REASON_CHARS_MAX)?;
        let labels = labels(&mut fields)?;
        fields.finish()?;
        if rating.is_none() && correction.is_none() {
            return Err(missing("rating", "-1, 0 or 1, unless there is a `correction`"));
        }
        Ok(Self { id, feedback: Feedback { rating, correction, reason, labels } })
    }
}

/// A text that says something and is not too long.
fn text(fields: &mut Fields, name: &'static str, most: usize) -> Result<Option<String>, ApiError> {
    let Some(text) = fields.string(name)? else { return Ok(None) };
    let characters = text.chars().count();
    if text.trim().is_empty() || characters > most {
        let message =
            format!("`{name}` must have from 1 to {most} characters, not all of them blanks, got {characters}");
        return Err(ApiError::invalid(name, message).with_code("out_of_range"));
    }
    Ok(Some(text))
}

fn labels(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let list = fields.list("labels")?.unwrap_or_default();
    at_most("labels", list.len(), LEARNING_LABELS_MAX)?;
    let label = |(at, label): (usize, Json)| {
        let path = format!("labels[{at}]");
        let Json::String(label) = label else { return Err(wrong_type(&path, "a string", &label)) };
        let characters = label.chars().count();
        if (1..=LEARNING_LABEL_CHARS_MAX).contains(&characters) {
            return Ok(label);
        }
        let message = format!("`{path}` must have from 1 to {LEARNING_LABEL_CHARS_MAX} characters, got {characters}");
        Err(ApiError::invalid(path, message).with_code("out_of_range"))
    };
    list.into_iter().enumerate().map(label).collect()
}

/// Which examples are exported, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExportQuery {
    /// The shape of a line.
    pub(super) shape: LineShape,
    /// The sets that are exported.
    pub(super) sets: Vec<ExampleSet>,
}

impl ExportQuery {
    /// Of a query. What judges is exported by itself, marked as what it is; what is in the vault only in an archive.
    pub(super) fn parse(query: &HashMap<String, String>) -> Result<Self, ApiError> {
        let shapes = [
            ("messages", LineShape::Messages),
            ("preference", LineShape::Preference),
            ("label", LineShape::Label),
            ("archive", LineShape::Archive),
        ];
        let shape = one_of(query, "format", &shapes)?.unwrap_or(LineShape::Messages);
        let sets = ExampleSet::ALL.map(|set| (set.name(), set));
        let set = one_of(query, "set", &sets)?;
        if set == Some(ExampleSet::Vault) && shape != LineShape::Archive {
            let message = "`set` vault is exported only with `format=archive`: nothing may be trained on it";
            return Err(ApiError::invalid("set", message));
        }
        let all = if shape == LineShape::Archive { ExampleSet::ALL.to_vec() } else { vec![ExampleSet::Train] };
        Ok(Self { shape, sets: set.map_or(all, |set| vec![set]) })
    }
}

/// A parameter that is one of some words.
fn one_of<T: Copy>(
    query: &HashMap<String, String>,
    name: &'static str,
    known: &[(&'static str, T)],
) -> Result<Option<T>, ApiError> {
    let Some(word) = query.get(name) else { return Ok(None) };
    let found = known.iter().find(|(own, _)| own == word).map(|(_, value)| *value);
    let words: Vec<&str> = known.iter().map(|(own, _)| *own).collect();
    let shown: String = word.chars().take(40).collect();
    let wrong = || ApiError::invalid(name, format!("`{name}` must be one of {}, got {shown:?}", words.join(", ")));
    found.map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feedback_names_one_answer_and_says_something_of_it() {
        let parse = |body: &str| FeedbackRequest::parse(body.as_bytes());
        let good = parse(r#"{"completion_id": "c", "rating": -1, "correction": "so", "labels": ["a"]}"#).unwrap();
        assert_eq!((good.id.as_str(), good.feedback.rating, good.feedback.labels.len()), ("c", Some(-1), 1));
        assert!(parse(r#"{"response_id": "c", "correction": "so"}"#).is_ok());
        for (bad, field) in [
            (r#"{"rating": 1}"#, "response_id"),
            (r#"{"response_id": "a", "completion_id": "b", "rating": 1}"#, "completion_id"),
            (r#"{"response_id": "a"}"#, "rating"),
            (r#"{"response_id": "a", "rating": 2}"#, "rating"),
            (r#"{"response_id": "a", "correction": " "}"#, "correction"),
            (r#"{"response_id": "a", "rating": 1, "labels": [1]}"#, "labels[0]"),
            (r#"{"response_id": "a", "rating": 1, "labels": [""]}"#, "labels[0]"),
            (r#"{"response_id": "a", "rating": 1, "stars": 5}"#, "stars"),
        ] {
            assert_eq!(parse(bad).unwrap_err().param.as_deref(), Some(field), "{bad}");
        }
    }

    #[test]
    fn the_vault_is_exported_only_as_an_archive_and_what_judges_only_by_name() {
        let parse = |pairs: &[(&str, &str)]| {
            let query = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            ExportQuery::parse(&query).map(|query| query.sets)
        };
        assert_eq!(parse(&[]), Ok(vec![ExampleSet::Train]));
        assert_eq!(parse(&[("set", "gate"), ("format", "label")]), Ok(vec![ExampleSet::Gate]));
        assert_eq!(parse(&[("format", "archive")]), Ok(ExampleSet::ALL.to_vec()));
        assert!(parse(&[("set", "vault")]).is_err() && parse(&[("set", "all")]).is_err());
        assert!(parse(&[("format", "csv")]).unwrap_err().message.contains("messages, preference, label, archive"));
    }
}

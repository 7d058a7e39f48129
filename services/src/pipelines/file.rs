//! A pipeline's file as it is typed: every key has a field here, so that any other is refused.

use serde::Deserialize;
use std::collections::BTreeMap;

/// All keys of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPipeline {
    #[serde(default)]
    pub(super) description: String,
    #[serde(default)]
    pub(super) experimental: bool,
    #[serde(default)]
    pub(super) budget: RawBudget,
    pub(super) steps: Vec<RawStep>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBudget {
    pub(super) tokens: Option<i64>,
    pub(super) milliseconds: Option<i64>,
}

/// One of the kinds of steps, and a name for it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStep {
    pub(super) name: Option<String>,
    pub(super) when: Option<RawWhen>,
    pub(super) retrieve: Option<RawRetrieve>,
    pub(super) enough: Option<RawEnough>,
    pub(super) generate: Option<RawGenerate>,
    pub(super) parallel: Option<Vec<RawGenerate>>,
    pub(super) check: Option<RawCheck>,
    pub(super) call: Option<RawCall>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWhen {
    pub(super) regex: Option<String>,
    pub(super) file_type: Option<Vec<String>>,
    pub(super) decision: Option<String>,
    pub(super) min: Option<f64>,
    #[serde(default)]
    pub(super) then: Vec<RawStep>,
    #[serde(default, rename = "else")]
    pub(super) otherwise: Vec<RawStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRetrieve {
    pub(super) store: Option<String>,
    #[serde(default)]
    pub(super) web: bool,
    pub(super) k: Option<i64>,
    pub(super) rerank: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEnough {
    pub(super) min: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCall {
    pub(super) tool: String,
    pub(super) arguments: Option<toml::Value>,
    #[serde(rename = "else")]
    pub(super) otherwise: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGenerate {
    pub(super) name: Option<String>,
    pub(super) system: Option<String>,
    pub(super) suffix: Option<String>,
    pub(super) thinking: Option<bool>,
    pub(super) temperature: Option<f64>,
    pub(super) tokens: Option<i64>,
    pub(super) form: Option<RawForm>,
    pub(super) best_of: Option<RawBestOf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawForm {
    pub(super) schema: Option<String>,
    pub(super) regex: Option<String>,
    pub(super) choice: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBestOf {
    pub(super) n: i64,
    pub(super) by: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCheck {
    pub(super) schema: Option<String>,
    pub(super) regex: Option<String>,
    pub(super) cited: Option<i64>,
    pub(super) tool: Option<String>,
    pub(super) arguments: Option<toml::Value>,
    pub(super) decision: Option<String>,
    pub(super) min: Option<f64>,
    pub(super) retry: Option<i64>,
    pub(super) why: Option<String>,
    #[serde(rename = "else")]
    pub(super) otherwise: Option<String>,
}

/// Reads a file's text. An error has the line.
pub(super) fn read(text: &str) -> Result<RawPipeline, String> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let message = error.message().trim().replace('\n', " ");
        line.map_or(message.clone(), |line| format!("line {line}: {message}"))
    })
}

/// The one of some alternatives that is there, by its key.
pub(super) fn only_one<'a>(path: &str, given: &BTreeMap<&'a str, bool>) -> Result<&'a str, String> {
    let there: Vec<&str> = given.iter().filter(|(_, there)| **there).map(|(key, _)| *key).collect();
    let all = given.keys().copied().collect::<Vec<_>>().join(", ");
    match there[..] {
        [one] => Ok(one),
        [] => Err(format!("{path} wants one of {all}, got none")),
        _ => Err(format!("{path} wants one of {all}, got {}", there.join(" and "))),
    }
}

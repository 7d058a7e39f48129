//! How long to think: `reasoning_effort` and `reasoning` as OpenAI's clients and routers to other models write it,
//! `thinking` as Anthropic's clients do. All of them mean the same, so two that contradict each other are refused.

use super::fields::{Fields, missing};
use super::generation::token_limit;
use super::model::ModelLimits;
use crate::http::wire::error::ApiError;
use crate::text::thinking::{Effort, Reasoning, ThinkingMode, Thoughts};
use serde_json::{Map, Value as Json};

const EFFORTS: &str = "\"none\", \"minimal\", \"low\", \"medium\", \"high\", \"xhigh\" or \"auto\"";
/// What the template is told.
const SWITCH: &str = "enable_thinking";

/// One thing that was said, and where.
struct FieldValue<T> {
    path: String,
    value: T,
}

/// What a field says about whether to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Will {
    None,
    Some(Effort),
    /// As much as the model likes.
    Enabled,
    Auto,
}

/// Everything that was said.
#[derive(Default)]
struct Heard {
    will: Option<FieldValue<Will>>,
    tokens: Option<FieldValue<u32>>,
    adaptive: Option<bool>,
}

/// Takes the fields; `None` if there are none. The template's switch in `options` is set to match.
pub(super) fn take(
    fields: &mut Fields,
    limits: &ModelLimits,
    options: &mut Map<String, Json>,
) -> Result<Option<Reasoning>, ApiError> {
    let mut heard = Heard::default();
    let path = fields.path("reasoning_effort");
    if let Some(word) = fields.string("reasoning_effort")? {
        heard.wills(&path, effort(&path, &word)?)?;
    }
    if let Some(object) = fields.fields("reasoning")? {
        reasoning(object, &mut heard)?;
    }
    if let Some(object) = fields.fields("thinking")? {
        thinking(object, &mut heard)?;
    }
    let Some(path) = heard.path() else { return Ok(None) };
    let Some(thoughts) = &limits.thinking else {
        if heard.asks_for_none() {
            return Ok(None);
        }
        return Err(ApiError::unsupported(&path, format!("`{path}` is not supported: {} does not think", limits.name)));
    };
    let meant = heard.meant(thoughts)?;
    set_switch(&path, meant.mode, limits, options)?;
    Ok(Some(meant))
}

fn effort(path: &str, word: &str) -> Result<Will, ApiError> {
    Ok(match word {
        "none" => Will::None,
        "minimal" => Will::Some(Effort::Minimal),
        "low" => Will::Some(Effort::Low),
        "medium" => Will::Some(Effort::Medium),
        // Some models have a step above high; here high has no bound of its own unless the configuration sets one.
        "high" | "xhigh" | "max" => Will::Some(Effort::High),
        "auto" => Will::Auto,
        other => return Err(ApiError::invalid(path, format!("`{path}` must be {EFFORTS}, got {other:?}"))),
    })
}

fn reasoning(mut fields: Fields, heard: &mut Heard) -> Result<(), ApiError> {
    let path = fields.path("effort");
    if let Some(word) = fields.string("effort")? {
        heard.wills(&path, effort(&path, &word)?)?;
    }
    let path = fields.path("enabled");
    if let Some(enabled) = fields.bool("enabled")? {
        heard.wills(&path, if enabled { Will::Enabled } else { Will::None })?;
    }
    let path = fields.path("max_tokens");
    if let Some(tokens) = token_limit(&mut fields, "max_tokens", 0)? {
        heard.bounds(&path, tokens)?;
    }
    let path = fields.path("adaptive");
    if let Some(adaptive) = fields.bool("adaptive")? {
        heard.adaptive = Some(adaptive);
        heard.wills(&path, heard.will.as_ref().map_or(Will::Enabled, |will| will.value))?;
    }
    let path = fields.path("exclude");
    if fields.bool("exclude")? == Some(true) {
        return Err(ApiError::unsupported(&path, format!("`{path}` is not supported: reasoning is part of the reply")));
    }
    for name in ["summary", "generate_summary"] {
        fields.refuse(name, "is not supported: reasoning is given as it is")?;
    }
    fields.finish()
}

fn thinking(mut fields: Fields, heard: &mut Heard) -> Result<(), ApiError> {
    let path = fields.path("type");
    let will = match fields.string("type")?.as_deref() {
        Some("enabled") => Will::Enabled,
        Some("disabled") => Will::None,
        Some("adaptive") => Will::Auto,
        Some(other) => {
            let wanted = "\"enabled\", \"disabled\" or \"adaptive\"";
            return Err(ApiError::invalid(&path, format!("`{path}` must be {wanted}, got {other:?}")));
        }
        None => return Err(missing(&path, "\"enabled\", \"disabled\" or \"adaptive\"")),
    };
    heard.wills(&path, will)?;
    let path = fields.path("budget_tokens");
    if let Some(tokens) = token_limit(&mut fields, "budget_tokens", 1)? {
        heard.bounds(&path, tokens)?;
    }
    fields.finish()
}

impl Heard {
    /// Two fields may say the same, and one may say more exactly what the other says too.
    fn wills(&mut self, path: &str, value: Will) -> Result<(), ApiError> {
        match &self.will {
            Some(before) if before.value == value || value == Will::Enabled && before.value != Will::None => Ok(()),
            Some(before) if before.value != Will::Enabled || value == Will::None => {
                Err(contradiction(path, &before.path))
            }
            _ => {
                self.will = Some(FieldValue { path: path.to_owned(), value });
                Ok(())
            }
        }
    }

    fn bounds(&mut self, path: &str, value: u32) -> Result<(), ApiError> {
        match &self.tokens {
            Some(before) if before.value != value => Err(contradiction(path, &before.path)),
            _ => {
                self.tokens = Some(FieldValue { path: path.to_owned(), value });
                Ok(())
            }
        }
    }

    /// Not to think, which a model that cannot does anyway.
    fn asks_for_none(&self) -> bool {
        self.will.as_ref().is_some_and(|will| will.value == Will::None) && self.tokens.is_none()
    }

    /// A field to name in errors, if any came.
    fn path(&self) -> Option<String> {
        self.will.as_ref().map(|s| s.path.clone()).or_else(|| self.tokens.as_ref().map(|s| s.path.clone()))
    }

    /// A number of tokens wins over what an effort costs.
    fn meant(&self, thoughts: &Thoughts) -> Result<Reasoning, ApiError> {
        let will = self.will.as_ref().map_or(Will::Enabled, |s| s.value);
        let tokens = self.tokens.as_ref().map(|s| s.value);
        if let (Will::None, Some(will), Some(tokens)) = (will, &self.will, self.tokens.as_ref().filter(|t| t.value > 0))
        {
            return Err(contradiction(&tokens.path, &will.path));
        }
        let mode = match will {
            _ if tokens == Some(0) => ThinkingMode::Off,
            Will::None => ThinkingMode::Off,
            Will::Auto => ThinkingMode::Auto,
            Will::Some(_) | Will::Enabled => ThinkingMode::On,
        };
        let of_effort = if let Will::Some(effort) = will { thoughts.tokens_of(effort) } else { None };
        let adaptive = self.adaptive.unwrap_or(mode == ThinkingMode::Auto) && mode != ThinkingMode::Off;
        Ok(Reasoning { mode, tokens_max: tokens.or(of_effort), adaptive })
    }
}

fn contradiction(path: &str, earlier: &str) -> ApiError {
    ApiError::invalid(path, format!("`{path}` contradicts `{earlier}`: give one of them, or the same in both"))
}

/// Tells the template, where it asks, unless the request has told it otherwise.
fn set_switch(
    path: &str,
    mode: ThinkingMode,
    limits: &ModelLimits,
    options: &mut Map<String, Json>,
) -> Result<(), ApiError> {
    if !limits.template_options.iter().any(|name| name == SWITCH) {
        return Ok(());
    }
    let thinks = Json::Bool(mode != ThinkingMode::Off);
    match options.insert(SWITCH.to_owned(), thinks.clone()) {
        Some(before) if before != thinks => Err(contradiction(path, &format!("chat_template_kwargs.{SWITCH}"))),
        _ => Ok(()),
    }
}

//! `POST /v1/chat/completions`.

use super::fields::{Fields, missing};
use super::generation::{Generation, output_limit};
use super::{ModelLimits, check_model, messages, reasoning, tools};
use crate::http::error::ApiError;
use crate::limits::TOP_LOGPROBS_MAX;
use crate::text::Conversation;
use crate::text::thinking::Reasoning;
use crate::text::tools::Tools;
use serde_json::{Map, Value as Json};

/// A chat request, checked; only the template may still object to the conversation.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// What the body says about generating.
    pub generation: Generation,
    /// What to render. Without tools when `tool_choice` is `none`, so that the model does not know of any.
    pub conversation: Conversation,
    /// The tools whose calls are to be found in the output, if any.
    pub tools: Option<Tools>,
    /// What it says about thinking, if anything.
    pub reasoning: Option<Reasoning>,
}

impl ChatRequest {
    /// Reads and checks a body.
    pub fn parse(body: &[u8], limits: &ModelLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        check_model(&mut fields, limits)?;
        let list = fields.list("messages")?.ok_or_else(|| missing("messages", "an array of messages"))?;
        let messages = messages::checked(list)?;
        let tools = tools::take(&mut fields)?;
        let max_tokens = max_tokens(&mut fields)?;
        let logprobs = logprobs(&mut fields)?;
        let mut options = template_options(&mut fields, limits)?;
        let reasoning = reasoning::take(&mut fields, limits, &mut options)?;
        let generation = Generation::take(&mut fields, limits, max_tokens, logprobs)?;
        response_format(&mut fields)?;
        fields.finish()?;
        let (declared, tools) = tools.map_or_else(Default::default, |t| (t.declared, Some(t.tools)));
        Ok(Self { generation, conversation: Conversation { messages, tools: declared, options }, tools, reasoning })
    }
}

/// The new name and the old one mean the same.
fn max_tokens(fields: &mut Fields) -> Result<Option<u32>, ApiError> {
    let (old, new) = (output_limit(fields, "max_tokens", 1)?, output_limit(fields, "max_completion_tokens", 1)?);
    match (old, new) {
        (Some(old), Some(new)) if old != new => Err(ApiError::invalid(
            "max_tokens",
            format!("`max_tokens` is {old} and `max_completion_tokens` is {new}: give one of them, or the same value"),
        )),
        _ => Ok(new.or(old)),
    }
}

/// How many alternatives to report, if any log-probabilities are wanted.
fn logprobs(fields: &mut Fields) -> Result<Option<u8>, ApiError> {
    let wanted = fields.bool("logprobs")?.unwrap_or(false);
    let top = fields.integer("top_logprobs", 0..=i64::from(TOP_LOGPROBS_MAX))?;
    match (wanted, top) {
        (false, Some(1..)) => Err(ApiError::invalid("top_logprobs", "`top_logprobs` is only allowed with `logprobs: true`")),
        (false, _) => Ok(None),
        (true, top) => Ok(Some(top.unwrap_or(0) as u8)),
    }
}

/// Shared with completions: only text can be asked for.
pub(super) fn response_format(fields: &mut Fields) -> Result<(), ApiError> {
    let Some(mut format) = fields.fields("response_format")? else { return Ok(()) };
    let path = format.path("type");
    match format.string("type")?.as_deref() {
        Some("text") => format.finish(),
        Some(kind @ ("json_object" | "json_schema")) => {
            Err(ApiError::unsupported("response_format", format!("`response_format` of type {kind:?} is not supported yet")))
        }
        Some(other) => Err(ApiError::invalid(&path, format!("`{path}` must be \"text\", got {other:?}"))),
        None => Err(missing(&path, "\"text\"")),
    }
}

/// Variables for the template. One that the template never reads would be dropped in silence, so it is refused.
pub(super) fn template_options(fields: &mut Fields, limits: &ModelLimits) -> Result<Map<String, Json>, ApiError> {
    let mut options = fields.object("chat_template_kwargs")?.unwrap_or_default();
    options.retain(|_, value| !value.is_null());
    for (name, value) in &options {
        let path = format!("chat_template_kwargs.{name}");
        if !limits.template_options.contains(name) {
            let known = limits.template_options.join(", ");
            let known = if known.is_empty() { "nothing".to_owned() } else { known };
            return Err(ApiError::unsupported(
                &path,
                format!("`{path}` is not read by this model's template, which reads {known}"),
            ));
        }
        // Templates compare it with `is false`, which any other value passes unseen.
        if name == "enable_thinking" && !value.is_boolean() {
            return Err(super::fields::wrong_type(&path, "a boolean", value));
        }
    }
    Ok(options)
}

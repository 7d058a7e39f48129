//! `POST /v1/chat/completions`.

use super::documents::{check_answer, check_rounds};
use super::fields::{Fields, missing, wrong_type};
use super::generation::output_limit;
use super::model::{ModelLimits, take_model};
use super::tools::{AskedTools, check_approvals};
use super::{messages, reasoning, structured, tools};
use crate::http::wire::error::ApiError;
use crate::limits::TOP_LOGPROBS_MAX;
use crate::text::{Conversation, Message, RawJson, Role};
use crate::turn::options::{ChatRequest, Generation};
use serde_json::{Map, Value as Json};

impl ChatRequest {
    /// Reads and checks a body.
    pub fn parse(body: &[u8], limits: &ModelLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let addressee = take_model(&mut fields, limits)?;
        let list = fields.list("messages")?.ok_or_else(|| missing("messages", "an array of messages"))?;
        Self::about(messages::checked(list)?, fields, limits)?.through(addressee)
    }

    /// Of a conversation that was checked, and all else that a body says. Other dialects call fields what they are
    /// called here and come this way too, so that nothing is decided twice.
    pub(in crate::http) fn about(
        messages: Vec<Message>,
        mut fields: Fields,
        limits: &ModelLimits,
    ) -> Result<Self, ApiError> {
        let continues = continues(&mut fields, &messages)?;
        let remembered = fields.peek("store") != Some(&Json::Bool(false));
        let AskedTools { functions: mut tools, file_search, mcp } = tools::take(&mut fields, limits.web)?;
        check_approvals(&messages, &mcp)?;
        let max_tokens = max_tokens(&mut fields)?;
        let logprobs = logprobs(&mut fields)?;
        let report = report(&mut fields, logprobs.is_some())?;
        let mut options = template_options(&mut fields, limits)?;
        let reasoning = reasoning::take(&mut fields, limits, &mut options)?;
        let mut generation = Generation::take(&mut fields, limits, max_tokens, logprobs)?;
        if report {
            generation.report();
        }
        if tools.as_ref().is_some_and(|tools| tools.calls.is_some()) {
            structured::check_ends("tool_choice", &generation.spec.engine.end_ids, limits)?;
        }
        fields.finish()?;
        if let Some(search) = &file_search {
            check_rounds(search.rounds(), &generation, continues)?;
        }
        if let Some(server) = mcp.first() {
            check_rounds(Some((&server.field, "type")), &generation, continues)?;
        }
        let web = tools.as_mut().and_then(|tools| tools.web.take());
        if let Some(web) = &web {
            check_answer(&web.field, "has the service run calls, which is not done", &generation, continues)?;
        }
        let (declared, tools, calls, hosted) =
            tools.map_or_else(Default::default, |t| (t.declared, Some(t.tools), t.calls, t.hosted));
        let conversation =
            Conversation { messages, tools: declared.into_iter().map(RawJson).collect(), options, continues };
        let (sources, pipeline) = (Vec::new(), None);
        Ok(Self {
            generation,
            conversation,
            tools,
            calls,
            reasoning,
            sources,
            file_search,
            pipeline,
            web,
            hosted,
            mcp,
            remembered,
        })
    }
}

/// Whether the answer goes on with the last message, which must be one that can be gone on with.
fn continues(fields: &mut Fields, messages: &[Message]) -> Result<bool, ApiError> {
    let field = "continue_final_message";
    if fields.bool(field)? != Some(true) {
        return Ok(false);
    }
    if fields.bool("add_generation_prompt")? == Some(true) {
        return Err(ApiError::invalid(
            field,
            format!("`{field}` contradicts `add_generation_prompt`: give one of them"),
        ));
    }
    let last = messages.last().filter(|last| last.role == Role::Assistant && last.tool_calls.is_empty());
    let wanted = "wants the last message to be the assistant's, without `tool_calls`";
    last.map(|_| true).ok_or_else(|| ApiError::invalid(field, format!("`{field}` {wanted}")))
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
        (false, Some(1..)) => {
            Err(ApiError::invalid("top_logprobs", "`top_logprobs` is only allowed with `logprobs: true`"))
        }
        (false, _) => Ok(None),
        (true, top) => Ok(Some(top.unwrap_or(0) as u8)),
    }
}

/// Whether each token comes with what else stood behind it.
fn report(fields: &mut Fields, logprobs: bool) -> Result<bool, ApiError> {
    let wanted = fields.bool("report")?.unwrap_or(false);
    if wanted && !logprobs {
        return Err(ApiError::invalid("report", "`report` is only allowed with `logprobs: true`"));
    }
    Ok(wanted)
}

/// Variables for the template. One that the template never reads would be dropped in silence, so it is refused.
pub(in crate::http) fn template_options(
    fields: &mut Fields,
    limits: &ModelLimits,
) -> Result<Map<String, Json>, ApiError> {
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
            return Err(wrong_type(&path, "a boolean", value));
        }
    }
    Ok(options)
}

//! The model that requests are checked against, what every dialect asks of it, and the pipelines that conversations
//! name in its place.

use super::fields::Fields;
use crate::http::wire::error::ApiError;
use crate::pipelines::{NamedPipeline, Pipelines};
use crate::text::Thoughts;
use crate::turn::options::ChatRequest;
use actix_web::http::StatusCode;
use chimere_engine::format::GenerationDefaults;
use chimere_engine::ids::TokenId;
use std::sync::Arc;

/// Characters of a model's name that the answer shows where there is none of that name.
const NAME_CHARS_SHOWN: usize = 64;

/// What a request is checked against.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelLimits {
    /// The name under which the model is served.
    pub name: String,
    /// Other names that it answers to.
    pub aliases: Vec<String>,
    /// Rows of the model's vocabulary.
    pub vocab: u32,
    /// Numbers of a hidden state.
    pub width: u32,
    /// Most choices of one request.
    pub choices_max: u32,
    /// Ids that end a generation.
    pub end_ids: Vec<TokenId>,
    /// What the release recommends, where it does.
    pub defaults: GenerationDefaults,
    /// Names that `chat_template_kwargs` may set, from [`crate::text::ChatTemplate::options`].
    pub template_options: Vec<String>,
    /// Experts that the model uses for a token; `None` for a dense one.
    pub experts: Option<u32>,
    /// How the model thinks; `None` for one that does not.
    pub thinking: Option<Thoughts>,
    /// Pipelines, which answer conversations under names of their own.
    pub pipelines: Pipelines,
}

impl ModelLimits {
    /// All names that the model answers to, its own first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name).chain(&self.aliases).map(String::as_str)
    }

    /// Whether a name means this model. People and programs write names in capitals as they like.
    pub fn answers_to(&self, name: &str) -> bool {
        self.names().any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// Fields of ours that every dialect of conversations takes beside its own.
pub(in crate::http) const OURS: [&str; 19] = [
    "cache",
    "cache_prompt",
    "cache_salt",
    "chat_template_kwargs",
    "drafts",
    "engram",
    "frequency_penalty",
    "ignore_eos",
    "logit_bias",
    "logprobs_mode",
    "min_p",
    "min_tokens",
    "moe",
    "presence_penalty",
    "priority",
    "repetition_penalty",
    "seed",
    "stop_token_ids",
    "top_k",
];

/// The model's name, if the request gives one, must be ours, and no pipeline's. An empty one says nothing.
pub(in crate::http) fn check_model(fields: &mut Fields, limits: &ModelLimits) -> Result<(), ApiError> {
    check_name(fields.string("model")?, limits)
}

/// As [`check_model`], of a name that was taken out of a body.
pub(in crate::http) fn check_name(name: Option<String>, limits: &ModelLimits) -> Result<(), ApiError> {
    match name {
        Some(name) if !name.is_empty() && !limits.answers_to(&name) => match limits.pipelines.find(&name) {
            Some(pipeline) => Err(no_conversation(&pipeline.name)),
            None => Err(unknown_model(&name, limits)),
        },
        _ => Ok(()),
    }
}

/// A pipeline where something else than a conversation is wanted.
fn no_conversation(pipeline: &str) -> ApiError {
    let message =
        format!("`{pipeline}` is a pipeline, which answers conversations alone (such as /v1/chat/completions)");
    ApiError::unsupported("model", message)
}

/// A model that is not served here.
pub(in crate::http) fn unknown_model(name: &str, limits: &ModelLimits) -> ApiError {
    let pipelines = limits.pipelines.names();
    let all = limits.names().chain(pipelines.iter().map(String::as_str));
    let ours: Vec<String> = all.map(|name| format!("`{name}`")).collect();
    let shown: String = name.chars().take(NAME_CHARS_SHOWN).collect();
    let message = format!("the model `{shown}` does not exist here; this server has {}", ours.join(", "));
    let error = ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", message)
        .with_code("model_not_found")
        .rejected_as("model_not_found");
    ApiError { param: Some("model".into()), ..error }
}

/// The pipeline that a body's `model` names; `None` for the model itself. No other name is known.
pub(in crate::http) fn take_model(
    fields: &mut Fields,
    limits: &ModelLimits,
) -> Result<Option<Arc<NamedPipeline>>, ApiError> {
    match fields.string("model")? {
        Some(name) if !name.is_empty() && !limits.answers_to(&name) => named(&name, limits).map(Some),
        _ => Ok(None),
    }
}

/// The pipeline of a name that is not the model's.
pub(in crate::http) fn named(name: &str, limits: &ModelLimits) -> Result<Arc<NamedPipeline>, ApiError> {
    limits.pipelines.find(name).ok_or_else(|| unknown_model(name, limits))
}

impl ChatRequest {
    /// This request, to be answered by a pipeline if there is one.
    pub(in crate::http) fn through(self, pipeline: Option<Arc<NamedPipeline>>) -> Result<Self, ApiError> {
        let Some(pipeline) = pipeline else { return Ok(self) };
        let name = &pipeline.name;
        let choices = self.generation.spec.engine.choices;
        if choices != 1 {
            let message = format!("`n` must be 1 for the pipeline `{name}`, got {choices}");
            return Err(ApiError::invalid("n", message));
        }
        if self.conversation.continues {
            let message = format!("the last message is gone on with, which the pipeline `{name}` cannot do");
            return Err(ApiError::unsupported("messages", message));
        }
        if let Some(search) = &self.file_search {
            let message =
                format!("`{}` is not taken by the pipeline `{name}`: its file says what it searches", search.field);
            return Err(ApiError::unsupported(&search.field, message));
        }
        if let Some(form) = self.generation.form.as_ref().filter(|_| pipeline.forms_its_answer()) {
            let message =
                format!("`{}` is not taken by the pipeline `{name}`: its answer has a form already", form.field);
            return Err(ApiError::unsupported(form.field, message));
        }
        Ok(Self { pipeline: Some(pipeline), ..self })
    }
}

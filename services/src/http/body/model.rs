//! The model that requests are checked against, and what every dialect asks of it.

mod addressee;

pub(in crate::http) use addressee::{Addressee, take_adapter, take_model};

use super::fields::Fields;
use crate::adapters::Adapters;
use crate::http::edge::keys::auth::Viewer;
use crate::http::wire::error::ApiError;
use crate::pipelines::Pipelines;
use crate::text::Thoughts;
use crate::web::WebOffer;
use actix_web::http::StatusCode;
use chimere_engine::adapter::Adapter;
use chimere_engine::format::GenerationDefaults;
use chimere_engine::ids::TokenId;
use std::borrow::Cow;
use std::sync::Arc;

/// Characters of a model's name that the answer shows where there is none of that name.
const NAME_CHARS_SHOWN: usize = 64;

/// What a request is checked against.
#[derive(Clone, Debug)]
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
    /// Adapters, which change what the model answers, under names of their own.
    pub adapters: Adapters,
    /// What requests may ask for of the web.
    pub web: WebOffer,
}

impl ModelLimits {
    /// All names that the model answers to, its own first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name).chain(&self.aliases).map(String::as_str)
    }

    /// All names that conversations may be held under.
    pub fn all_names(&self) -> Vec<String> {
        let more = self.adapters.names().into_iter().chain(self.pipelines.names());
        self.names().map(str::to_owned).chain(more).collect()
    }

    /// These without adapters that are others' alone, and without the web for a key that may not use it.
    pub fn seen_by(&self, viewer: &Viewer) -> Cow<'_, Self> {
        let web = if viewer.tools.allow_web() { self.web } else { WebOffer::default() };
        match self.adapters.seen_by(viewer.asker) {
            None if web == self.web => Cow::Borrowed(self),
            None => Cow::Owned(Self { web, ..self.clone() }),
            Some(adapters) => Cow::Owned(Self { adapters, web, ..self.clone() }),
        }
    }

    /// The adapter that a name means: its own, or the model's with its own behind a colon.
    pub fn adapter(&self, name: &str) -> Option<Arc<Adapter>> {
        let behind = name.split_once(':').filter(|(base, _)| self.answers_to(base)).map(|(_, own)| own);
        self.adapters.find(behind.unwrap_or(name))
    }

    /// Whether a name means this model. People and programs write names in capitals as they like.
    pub fn answers_to(&self, name: &str) -> bool {
        self.names().any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// Fields of ours that every dialect of conversations takes beside its own.
pub(in crate::http) const OURS: [&str; 20] = [
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
    "scale",
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
            None if limits.adapter(&name).is_some() => Err(no_text(&name)),
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

/// An adapter where no text is written.
fn no_text(adapter: &str) -> ApiError {
    ApiError::unsupported("model", format!("`{adapter}` is an adapter, which conversations and completions alone take"))
}

/// A model that is not served here.
pub(in crate::http) fn unknown_model(name: &str, limits: &ModelLimits) -> ApiError {
    let ours: Vec<String> = limits.all_names().iter().map(|name| format!("`{name}`")).collect();
    let shown: String = name.chars().take(NAME_CHARS_SHOWN).collect();
    let message = format!("the model `{shown}` does not exist here; this server has {}", ours.join(", "));
    let error = ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", message)
        .with_code("model_not_found")
        .rejected_as("model_not_found");
    ApiError { param: Some("model".into()), ..error }
}

//! The body of `POST /v1/completions`.

use crate::http::body::fields::{Fields, missing};
use crate::http::body::generation::output_limit;
use crate::http::body::model::ModelLimits;
use crate::http::body::model::take_adapter;
use crate::http::body::prompt::prompts;
use crate::http::body::semantic::refuse_semantic;
use crate::http::wire::error::ApiError;
use crate::limits::{PROMPTS_MAX, TOP_LOGPROBS_MAX};
use crate::turn::options::Generation;
use crate::turn::options::Prompt;
use chimere_engine::scheduler::PromptScores;
use std::sync::Arc;

/// A completion request, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRequest {
    /// How to generate. `max_tokens` may be 0: then prompts are only scored.
    pub generation: Generation,
    /// At least one; choices are numbered prompt by prompt.
    pub prompts: Vec<Prompt>,
    /// Begin every choice with its prompt, and score the prompt if log-probabilities are wanted.
    pub echo: bool,
}

impl CompletionRequest {
    /// Reads and checks a body.
    pub fn parse(body: &[u8], limits: &ModelLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let adapter = take_adapter(&mut fields, limits)?;
        let wanted = "a string, an array of strings, an array of token ids or an array of these";
        let prompt = fields.any("prompt").ok_or_else(|| missing("prompt", wanted))?;
        let prompts = prompts("prompt", prompt, limits.vocab, PROMPTS_MAX, wanted)?;
        let echo = fields.bool("echo")?.unwrap_or(false);
        let max_tokens = output_limit(&mut fields, "max_tokens", 0)?;
        let logprobs = fields.integer("logprobs", 0..=i64::from(TOP_LOGPROBS_MAX))?.map(|n| n as u8);
        let mut generation = Generation::take(&mut fields, limits, max_tokens, logprobs)?.by(adapter)?;
        Arc::make_mut(&mut generation.spec.engine).score_prompt = logprobs.filter(|_| echo).map(PromptScores::whole);
        refuse_semantic(generation.engram.semantic.as_ref())?;
        fields.refuse("suffix", "is not supported: the model does not fill in")?;
        fields.finish()?;
        Ok(Self { generation, prompts, echo })
    }
}

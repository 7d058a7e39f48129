//! `POST /v1/completions`.

use super::answer::{Completion, Echo};
use super::app::App;
use super::error::ApiError;
use super::generate::{Plan, generate};
use super::request::{CompletionRequest, Prompt};
use super::text::{ids_of, too_long};
use crate::actors::reader::{Plain, Reader};
use crate::text::Tokenizer;
use actix_web::{HttpRequest, HttpResponse, web};
use chimere_engine::ids::TokenId;
use std::sync::Arc;

/// Continues texts.
pub(super) async fn completions(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let body = app.body(payload, &request).await?;
    let CompletionRequest { generation, prompts, echo } = CompletionRequest::parse(&body, &app.limits)?;
    let mut ids: Vec<Arc<[TokenId]>> = Vec::with_capacity(prompts.len());
    let mut echoes = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        let (tokens, text) = match prompt {
            Prompt::Text(text) => {
                app.text.may_fit(&text, app.room(&generation)).map_err(|e| too_long("prompt", &e))?;
                (ids_of(&app, text.clone(), true).await?, Some(text))
            }
            Prompt::Tokens(tokens) => (tokens, None),
        };
        echoes.push(echo.then(|| echo_of(app.text.tokenizer(), &tokens, text)));
        ids.push(tokens.into());
    }
    // Only now: what waits for a text thread is as large as its body, and bodies are bounded together.
    drop(body);
    let logprobs = generation.sampling.logprobs;
    let plan = Plan {
        prompts: ids,
        prompt_field: "prompt",
        score_prompt: logprobs.filter(|_| echo),
        thinking: None,
        probe: None,
        examples: None,
        reader: Box::new(|_| Box::new(Plain) as Box<dyn Reader>),
        shape: Completion::new(logprobs.is_some(), echoes, generation.choices),
        id_prefix: "cmpl",
        generation,
    };
    generate(&app, &request, plan).await
}

fn echo_of(tokenizer: &Tokenizer, tokens: &[TokenId], text: Option<String>) -> Echo {
    let first = tokens.first().map_or_else(Vec::new, |&id| tokenizer.bytes(id).to_vec());
    Echo { text: text.unwrap_or_else(|| tokenizer.decode(tokens, true)), first }
}

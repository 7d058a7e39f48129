//! `POST /v1/completions`.

use crate::http::app::App;
use crate::http::dialects::openai::completion::{Completion, Echo};
use crate::http::dialects::openai::request::CompletionRequest;
use crate::http::generate::{EndpointJob, generate};
use crate::http::intake::{Taken, take};
use crate::http::text::prompt_ids;
use crate::http::wire::error::ApiError;
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
    let parse = |body: &[u8], app: &App| CompletionRequest::parse(body, &app.limits);
    let Taken { asked: CompletionRequest { mut generation, prompts, echo }, room, .. } =
        take(&app, &request, payload, parse).await?;
    let holder = app.holder(&request);
    let mut ids: Vec<Arc<[TokenId]>> = Vec::with_capacity(prompts.len());
    let mut echoes = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        let (tokens, text) = prompt_ids(&app, holder, prompt, app.room(&generation)).await?;
        echoes.push(echo.then(|| echo_of(app.text.tokenizer(), &tokens, text)));
        ids.push(tokens.into());
    }
    let grammar = app.grammars.grammar_of(holder, generation.form.take(), None, None).await?;
    // Only now: what waits for a thread is as large as its body was when it was taken apart.
    drop(room);
    let asked = &generation.spec.engine;
    let shape = Completion::new(asked.sampling.logprobs.is_some(), echoes, asked.choices);
    let endpoint = EndpointJob::of_texts(ids, generation, grammar, shape, "cmpl-");
    generate(&app, &request, endpoint).await
}

fn echo_of(tokenizer: &Tokenizer, tokens: &[TokenId], text: Option<String>) -> Echo {
    let first = tokens.first().map_or_else(Vec::new, |&id| tokenizer.bytes(id).to_vec());
    Echo { text: text.unwrap_or_else(|| tokenizer.decode(tokens, true)), first }
}

//! `POST /v1/chat/completions` and `POST /v1/completions`.

use super::chat::Chat;
use super::completion::{Completion, Echo};
use super::request::CompletionRequest;
use crate::http::app::App;
use crate::http::intake::bodies::{ParsedBody, SeenApp, take};
use crate::http::intake::written::written;
use crate::http::reply::converse::{converse, go_on_from};
use crate::http::reply::tokens::rendered;
use crate::http::wire::error::ApiError;
use crate::http::wire::reply::RequestName;
use crate::http::wire::routing::only;
use crate::text::Tokenizer;
use crate::turn::options::ChatRequest;
use crate::turn::prompts::prompt_ids;
use actix_web::{HttpRequest, HttpResponse, web};
use chimere_engine::ids::TokenId;
use std::sync::Arc;

/// The paths of chat and of completions.
pub(in crate::http::dialects) fn routes(config: &mut web::ServiceConfig) {
    config.service(only("/v1/chat/completions", "POST", web::post().to(chat)));
    config.service(only("/v1/completions", "POST", web::post().to(completions)));
    config.service(only("/v1/completions/render", "POST", web::post().to(render)));
}

/// Answers a conversation with one choice or several.
async fn chat(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let taken = take(&app, &request, payload, |body, app| ChatRequest::parse(body, &app.limits)).await?;
    let shape = Chat { logprobs: taken.asked.generation.spec.engine.sampling.logprobs.is_some() };
    converse(&app, &request, taken, shape, "chatcmpl-").await
}

/// Continues one text or several.
async fn completions(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let parse = |body: &[u8], app: &SeenApp<'_>| CompletionRequest::parse(body, &app.limits);
    let ParsedBody { asked: CompletionRequest { generation, prompts, echo }, room, .. } =
        take(&app, &request, payload, parse).await?;
    let holder = app.holder(&request);
    let mut ids: Vec<Arc<[TokenId]>> = Vec::with_capacity(prompts.len());
    let mut echoes = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        let (tokens, text) = prompt_ids(&app.turns, holder, prompt, app.turns.room(&generation.spec.engine)).await?;
        echoes.push(echo.then(|| echo_of(app.turns.text.tokenizer(), &tokens, text)));
        ids.push(tokens.into());
    }
    let asked = &generation.spec.engine;
    let shape = Completion::new(asked.sampling.logprobs.is_some(), echoes, asked.choices);
    go_on_from(&app, &request, (ids, generation, room), shape, "cmpl-").await
}

/// The ids of the texts that would be continued, without an answer.
async fn render(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let parse = |body: &[u8], app: &SeenApp<'_>| CompletionRequest::parse(body, &app.limits);
    let ParsedBody { asked: CompletionRequest { generation, prompts, .. }, bytes, room: _room } =
        take(&app, &request, payload, parse).await?;
    let (holder, mut all) = (app.holder(&request), Vec::with_capacity(prompts.len()));
    for prompt in prompts {
        all.push(prompt_ids(&app.turns, holder, prompt, app.turns.room(&generation.spec.engine)).await?.0);
    }
    let (name, model) = (RequestName::of(&request), app.limits.name.clone());
    let write = move || serde_json::to_vec(&all.iter().map(|ids| rendered(&name, &model, ids)).collect::<Vec<_>>());
    written(&app, holder, bytes, write).await
}

fn echo_of(tokenizer: &Tokenizer, tokens: &[TokenId], text: Option<String>) -> Echo {
    let first = tokens.first().map_or_else(Vec::new, |&id| tokenizer.bytes(id).to_vec());
    Echo { text: text.unwrap_or_else(|| tokenizer.decode(tokens, true)), first }
}

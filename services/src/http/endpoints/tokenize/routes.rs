//! `POST /tokenize` and `/detokenize`, in vLLM's and llama.cpp's shapes, `GET /tokenizer_info`, and the prompt of a
//! chat.

use super::request::{DetokenizeRequest, TokenizeInput, TokenizeRequest, TokensShape};
use crate::http::app::App;
use crate::http::intake::bodies::{ParsedBody, SeenApp, take};
use crate::http::intake::written::written;
use crate::http::reply::converse::prompt_of_chat;
use crate::http::wire::error::ApiError;
use crate::http::wire::routing::{only, read};
use crate::text::ChatPrompt;
use crate::text::template::ChatTemplate;
use crate::turn::options::ChatRequest;
use crate::turn::prompts::{ids_of, prompt_of};
use actix_web::{HttpRequest, HttpResponse, web};
use chimere_engine::ids::TokenId;
use serde::Serialize;
use serde_json::json;
use std::borrow::Cow;

/// What is asked of texts and their tokens.
pub(in crate::http::endpoints) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(only("/v1/chat/completions/input_tokens", "POST", web::post().to(input_tokens)))
        .service(only("/tokenizer_info", "GET", read().to(tokenizer_info)))
        .service(only("/tokenize", "POST", web::post().to(tokenize)))
        .service(only("/apply-template", "POST", web::post().to(apply_template)))
        .service(only("/detokenize", "POST", web::post().to(detokenize)));
}

/// The facts of a tokenizer that a program needs beside its tokens, under the names of `tokenizer_config.json`, as vLLM
/// gives them.
async fn tokenizer_info(app: web::Data<App>) -> HttpResponse {
    let (text, tokenizer) = (&app.turns.text, app.turns.text.tokenizer());
    let end = app.limits.end_ids.first().map(|id| tokenizer.text(*id));
    HttpResponse::Ok().json(json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": app.turns.handles.context,
        "bos_token": null,
        "eos_token": end,
        "pad_token": null,
        "unk_token": null,
        "add_bos_token": false,
        "chat_template": text.template().and_then(ChatTemplate::source),
    }))
}

/// Counts and shows the tokens of a text or of a conversation.
async fn tokenize(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let parse = |body: &[u8], app: &SeenApp<'_>| TokenizeRequest::parse(body, &app.limits);
    let ParsedBody { asked: TokenizeRequest { input, shape }, bytes, room: _room } =
        take(&app, &request, payload, parse).await?;
    let holder = app.holder(&request);
    let tokens = match input {
        TokenizeInput::Text { text, parse_special } => ids_of(&app.turns, holder, text, parse_special).await?,
        TokenizeInput::Chat(conversation) => prompt_of(&app.turns, holder, conversation, bytes, usize::MAX).await?.ids,
    };
    let (tokenizer, max_model_len) = (app.turns.text.tokenizer().clone(), app.turns.handles.context);
    written(&app, holder, bytes, move || match shape {
        TokensShape::Vllm { strings } => {
            let token_strs = strings.then(|| tokens.iter().map(|&id| tokenizer.text(id)).collect::<Vec<_>>());
            serde_json::to_vec(&Tokens { count: tokens.len(), max_model_len, tokens: &tokens, token_strs })
        }
        TokensShape::Llama { pieces: false } => serde_json::to_vec(&json!({"tokens": tokens})),
        TokensShape::Llama { pieces: true } => {
            let piece = |&id: &TokenId| json!({"id": id, "piece": piece_of(tokenizer.bytes(id))});
            serde_json::to_vec(&json!({"tokens": tokens.iter().map(piece).collect::<Vec<_>>()}))
        }
    })
    .await
}

/// A token as llama.cpp shows it: its text, or its bytes where they are no text of their own.
fn piece_of(bytes: &[u8]) -> serde_json::Value {
    std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text))
}

/// The text of some tokens, control tokens written out, under vLLM's name and under llama.cpp's.
async fn detokenize(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let parse = |body: &[u8], app: &SeenApp<'_>| DetokenizeRequest::parse(body, &app.limits);
    let ParsedBody { asked: DetokenizeRequest { tokens }, bytes, room: _room } =
        take(&app, &request, payload, parse).await?;
    let tokenizer = app.turns.text.tokenizer().clone();
    written(&app, app.holder(&request), bytes, move || {
        let text = tokenizer.decode(&tokens, true);
        serde_json::to_vec(&json!({"prompt": text, "content": text}))
    })
    .await
}

/// How many tokens a chat request's prompt has, without an answer.
async fn input_tokens(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let (prompt, _) = chat_prompt(&app, &request, payload).await?;
    Ok(HttpResponse::Ok().json(json!({"object": "response.input_tokens", "input_tokens": prompt.ids.len()})))
}

/// A chat request's prompt as text, control tokens written out.
async fn apply_template(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let (prompt, bytes) = chat_prompt(&app, &request, payload).await?;
    let tokenizer = app.turns.text.tokenizer().clone();
    let write = move || serde_json::to_vec(&json!({"prompt": tokenizer.decode(&prompt.ids, true)}));
    written(&app, app.holder(&request), bytes, write).await
}

/// What chat would read, and the bytes of the body that asked for it.
async fn chat_prompt(
    app: &web::Data<App>,
    request: &HttpRequest,
    payload: web::Payload,
) -> Result<(ChatPrompt, usize), ApiError> {
    let parse = |body: &[u8], app: &SeenApp<'_>| ChatRequest::parse(body, &app.limits);
    let ParsedBody { asked, bytes, room: _room } = take(app, request, payload, parse).await?;
    Ok((prompt_of_chat(app, request, (asked, bytes)).await?, bytes))
}

/// The reply of `/tokenize`.
#[derive(Serialize)]
struct Tokens<'a> {
    count: usize,
    max_model_len: u32,
    tokens: &'a [TokenId],
    token_strs: Option<Vec<Cow<'a, str>>>,
}

//! `POST /tokenize` and `/detokenize`, in vLLM's and llama.cpp's shapes, and prompts made on the text threads.

use crate::holder::Holder;
use crate::http::app::App;
use crate::http::body::chat::ChatRequest;
use crate::http::body::prompt::Prompt;
use crate::http::endpoints::tokenize::request::{DetokenizeRequest, TokenizeInput, TokenizeRequest, TokensShape};
use crate::http::intake::{Taken, take};
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::{busy, too_long};
use crate::text::{ChatPrompt, Conversation, Lanes, PromptError};
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use chimere_engine::ids::TokenId;
use serde::Serialize;
use serde_json::json;
use std::borrow::Cow;

/// Texts up to this many bytes are tokenized where they are: a change of threads would take longer.
pub(super) const INLINE_BYTES: usize = 2 << 10;

/// Counts and shows the tokens of a text or of a conversation.
pub(super) async fn tokenize(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let parse = |body: &[u8], app: &App| TokenizeRequest::parse(body, &app.limits);
    let Taken { asked: TokenizeRequest { input, shape }, bytes, room: _room } =
        take(&app, &request, payload, parse).await?;
    let holder = app.holder(&request);
    let tokens = match input {
        TokenizeInput::Text { text, parse_special } => ids_of(&app, holder, text, parse_special).await?,
        TokenizeInput::Chat(conversation) => prompt_of(&app, holder, conversation, bytes, usize::MAX).await?.ids,
    };
    let (tokenizer, max_model_len) = (app.text.tokenizer().clone(), app.handles.context);
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
pub(super) async fn detokenize(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let parse = |body: &[u8], app: &App| DetokenizeRequest::parse(body, &app.limits);
    let Taken { asked: DetokenizeRequest { tokens }, bytes, room: _room } =
        take(&app, &request, payload, parse).await?;
    let tokenizer = app.text.tokenizer().clone();
    written(&app, app.holder(&request), bytes, move || {
        let text = tokenizer.decode(&tokens, true);
        serde_json::to_vec(&json!({"prompt": text, "content": text}))
    })
    .await
}

/// How many tokens a chat request's prompt has, without an answer. Examples that would be looked for are not in it.
pub(super) async fn input_tokens(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let (prompt, _) = chat_prompt(&app, &request, payload).await?;
    Ok(HttpResponse::Ok().json(json!({"object": "response.input_tokens", "input_tokens": prompt.ids.len()})))
}

/// A chat request's prompt as text, control tokens written out.
pub(super) async fn apply_template(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let (prompt, bytes) = chat_prompt(&app, &request, payload).await?;
    let tokenizer = app.text.tokenizer().clone();
    let write = move || serde_json::to_vec(&json!({"prompt": tokenizer.decode(&prompt.ids, true)}));
    written(&app, app.holder(&request), bytes, write).await
}

/// What chat would read, and the bytes of the body that asked for it.
async fn chat_prompt(
    app: &web::Data<App>,
    request: &HttpRequest,
    payload: web::Payload,
) -> Result<(ChatPrompt, usize), ApiError> {
    let parse = |body: &[u8], app: &App| ChatRequest::parse(body, &app.limits);
    let Taken { asked, bytes, room: _room } = take(app, request, payload, parse).await?;
    Ok((prompt_of(app, app.holder(request), asked.conversation, bytes, usize::MAX).await?, bytes))
}

/// The reply of `/tokenize`.
#[derive(Serialize)]
struct Tokens<'a> {
    count: usize,
    max_model_len: u32,
    tokens: &'a [TokenId],
    token_strs: Option<Vec<Cow<'a, str>>>,
}

/// A reply that takes as long to write as its body of this many bytes took to read.
pub(super) async fn written(
    app: &App,
    holder: Holder,
    bytes: usize,
    write: impl FnOnce() -> serde_json::Result<Vec<u8>> + Send + 'static,
) -> Result<HttpResponse, ApiError> {
    let text = work(&app.lanes, holder, bytes, bytes <= INLINE_BYTES, write)
        .await?
        .map_err(|e| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", e.to_string()))?;
    Ok(HttpResponse::Ok().content_type("application/json").body(text))
}

/// Token ids of a text; `special` takes added tokens that are written out for what they are.
pub(super) async fn ids_of(app: &App, holder: Holder, text: String, special: bool) -> Result<Vec<TokenId>, ApiError> {
    let tokenizer = app.text.tokenizer().clone();
    let bytes = text.len();
    let encode = move || if special { tokenizer.encode(&text) } else { tokenizer.encode_plain(&text) };
    work(&app.lanes, holder, bytes, bytes <= INLINE_BYTES, encode).await
}

/// Does what takes as long as a text of so many bytes: `here` if that is short, else on a text thread, in the holder's
/// turn.
pub(super) async fn work<T: Send + 'static>(
    lanes: &Lanes,
    holder: Holder,
    bytes: usize,
    here: bool,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    if here { Ok(job()) } else { lanes.for_bytes(bytes).run(holder, job).await.map_err(busy) }
}

/// Bytes of texts that stood in a field, none of which may be larger than `room` tokens can be.
pub(super) fn fitting<'a>(
    app: &App,
    field: &'static str,
    texts: impl IntoIterator<Item = &'a str>,
    room: usize,
) -> Result<usize, ApiError> {
    texts.into_iter().try_fold(0, |bytes, text| {
        app.text.may_fit(text, room).map_err(|e| too_long(field, &e))?;
        Ok(bytes + text.len())
    })
}

/// Token ids of a prompt that no template is laid around, and its text where it came as one. No text in it may be
/// larger than `room` tokens can be.
pub(super) async fn prompt_ids(
    app: &App,
    holder: Holder,
    prompt: Prompt,
    room: usize,
) -> Result<(Vec<TokenId>, Option<String>), ApiError> {
    let bytes = fitting(app, "prompt", prompt.texts(), room)?;
    let text = if let Prompt::Text(text) = &prompt { Some(text.clone()) } else { None };
    let tokenizer = app.text.tokenizer().clone();
    let encode = move || prompt.into_ids(&|text| tokenizer.encode(text));
    Ok((work(&app.lanes, holder, bytes, bytes <= INLINE_BYTES, encode).await?, text))
}

/// The prompt of a conversation that came in a body of this many bytes, if it may have at most `tokens_max` tokens.
pub(super) async fn prompt_of(
    app: &App,
    holder: Holder,
    conversation: Conversation,
    bytes: usize,
    tokens_max: usize,
) -> Result<ChatPrompt, ApiError> {
    let text = app.text.clone();
    let job = move || text.chat_prompt(&conversation, tokens_max);
    app.lanes.for_bytes(bytes).run(holder, job).await.map_err(busy)?.map_err(|e| match e {
        PromptError::Template(e) => ApiError::invalid("messages", e.to_string()),
        PromptError::TooLong(e) => too_long("messages", &e),
    })
}

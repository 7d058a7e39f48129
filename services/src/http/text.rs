//! `POST /tokenize` and `/detokenize`, in vLLM's shapes, and prompts made on the text threads.

use super::app::App;
use super::error::ApiError;
use super::generate::count_rejected;
use super::request::{DetokenizeRequest, TokenizeInput, TokenizeRequest};
use crate::text::pool::PoolError;
use crate::text::{ChatPrompt, Conversation};
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use chimere_engine::ids::TokenId;
use serde_json::json;
use std::time::Duration;

/// Texts up to this many bytes are tokenized where they are: that takes less time than a change of threads is worth avoiding.
const INLINE_BYTES: usize = 2 << 10;

/// Counts and shows the tokens of a text or of a conversation.
pub(super) async fn tokenize(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let body = app.body(payload, super::announced(&request)).await?;
    let TokenizeRequest { input, token_strings } = TokenizeRequest::parse(&body, &app.limits)?;
    let tokens = match input {
        TokenizeInput::Text { text, parse_special } => ids_of(&app, text, parse_special).await?,
        TokenizeInput::Chat(conversation) => prompt_of(&app, conversation).await?.ids,
    };
    let tokenizer = app.text.tokenizer();
    let strings = token_strings.then(|| tokens.iter().map(|&id| tokenizer.text(id)).collect::<Vec<_>>());
    let reply = json!({
        "count": tokens.len(),
        "max_model_len": app.around.context,
        "tokens": tokens,
        "token_strs": strings,
    });
    Ok(HttpResponse::Ok().json(reply))
}

/// The text of some tokens, control tokens written out.
pub(super) async fn detokenize(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let body = app.body(payload, super::announced(&request)).await?;
    let DetokenizeRequest { tokens } = DetokenizeRequest::parse(&body, &app.limits)?;
    Ok(HttpResponse::Ok().json(json!({"prompt": app.text.tokenizer().decode(&tokens, true)})))
}

/// Token ids of a text; `special` takes added tokens that are written out for what they are.
pub(super) async fn ids_of(app: &App, text: String, special: bool) -> Result<Vec<TokenId>, ApiError> {
    let tokenizer = app.text.tokenizer().clone();
    let inline = text.len() <= INLINE_BYTES;
    let encode = move || if special { tokenizer.encode(&text) } else { tokenizer.encode_plain(&text) };
    if inline { Ok(encode()) } else { app.pool.run(encode).await.map_err(busy) }
}

/// The prompt of a conversation.
pub(super) async fn prompt_of(app: &App, conversation: Conversation) -> Result<ChatPrompt, ApiError> {
    let text = app.text.clone();
    let prompt = app.pool.run(move || text.chat_prompt(&conversation)).await.map_err(busy)?;
    prompt.map_err(|e| ApiError::invalid("messages", e.to_string()))
}

fn busy(error: PoolError) -> ApiError {
    match error {
        PoolError::Full { .. } => {
            count_rejected("text_threads_busy");
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", error.to_string());
            error.with_code("queue_full").with_retry_after(Duration::from_secs(1))
        }
        PoolError::Panicked => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", error.to_string()),
    }
}

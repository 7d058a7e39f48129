//! Prompts of texts and of conversations, made where they are if that is short, else on the threads of texts.

use crate::holder::Holder;
use crate::http::app::App;
use crate::http::body::prompt::Prompt;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::{busy, too_long};
use crate::text::{ChatPrompt, Conversation, Lanes, PromptError};
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use chimere_engine::ids::TokenId;

/// Texts up to this many bytes are tokenized where they are: a change of threads would take longer.
pub(in crate::http) const INLINE_BYTES: usize = 2 << 10;

/// Does what takes as long as a text of so many bytes: `here` if that is short, else on a text thread, in the holder's
/// turn.
pub(in crate::http) async fn work<T: Send + 'static>(
    lanes: &Lanes,
    holder: Holder,
    bytes: usize,
    here: bool,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    if here { Ok(job()) } else { lanes.for_bytes(bytes).run(holder, job).await.map_err(busy) }
}

/// Token ids of a text; `special` takes added tokens that are written out for what they are.
pub(in crate::http) async fn ids_of(
    app: &App,
    holder: Holder,
    text: String,
    special: bool,
) -> Result<Vec<TokenId>, ApiError> {
    let tokenizer = app.text.tokenizer().clone();
    let bytes = text.len();
    let encode = move || if special { tokenizer.encode(&text) } else { tokenizer.encode_plain(&text) };
    work(&app.lanes, holder, bytes, bytes <= INLINE_BYTES, encode).await
}

/// Bytes of texts that stood in a field, none of which may be larger than `room` tokens can be.
pub(in crate::http) fn fitting<'a>(
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
pub(in crate::http) async fn prompt_ids(
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
pub(in crate::http) async fn prompt_of(
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

/// A reply that takes as long to write as its body of this many bytes took to read.
pub(in crate::http) async fn written(
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

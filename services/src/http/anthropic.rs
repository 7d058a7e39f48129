//! `POST /v1/messages` and `POST /v1/messages/count_tokens`, as Anthropic's clients send them.

use crate::http::app::App;
use crate::http::chat::converse;
use crate::http::dialects::anthropic::answer::MessageFormat;
use crate::http::dialects::anthropic::request::MessagesRequest;
use crate::http::intake::{Taken, take};
use crate::http::text::prompt_of;
use crate::http::wire::error::ApiError;
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::json;

/// Answers a conversation.
pub(super) async fn messages(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let parse = |body: &[u8], app: &App| MessagesRequest::parse(body, &app.limits);
    let Taken { asked: MessagesRequest { chat, shows_thoughts }, bytes, room } =
        take(&app, &request, payload, parse).await?;
    let shape = MessageFormat { stop: chat.generation.spec.stop.clone(), shows_thoughts };
    converse(&app, &request, Taken { asked: chat, bytes, room }, shape, "msg_").await
}

/// How many tokens a request's prompt has, without an answer.
pub(super) async fn count_tokens(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let parse = |body: &[u8], app: &App| MessagesRequest::parse(body, &app.limits);
    let Taken { asked, bytes, room: _room } = take(&app, &request, payload, parse).await?;
    let prompt = prompt_of(&app, app.holder(&request), asked.chat.conversation, bytes, usize::MAX).await?;
    Ok(HttpResponse::Ok().json(json!({"input_tokens": prompt.ids.len()})))
}

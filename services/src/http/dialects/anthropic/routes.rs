//! `POST /v1/messages` and `POST /v1/messages/count_tokens`, as Anthropic's clients send them.

use super::answer::MessageFormat;
use super::request::MessagesRequest;
use crate::http::app::App;
use crate::http::intake::bodies::{ParsedBody, SeenApp, take};
use crate::http::reply::converse::{converse, prompt_of_chat};
use crate::http::wire::error::ApiError;
use crate::http::wire::routing::only;
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::json;

/// What Anthropic's clients call.
pub(in crate::http::dialects) fn routes(config: &mut web::ServiceConfig) {
    config.service(only("/v1/messages", "POST", web::post().to(messages)));
    config.service(only("/v1/messages/count_tokens", "POST", web::post().to(count_tokens)));
}

/// Answers a conversation with a message.
async fn messages(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let parse = |body: &[u8], app: &SeenApp<'_>| MessagesRequest::parse(body, &app.limits);
    let ParsedBody { asked: MessagesRequest { chat, shows_thoughts }, bytes, room } =
        take(&app, &request, payload, parse).await?;
    let shape = MessageFormat { stop: chat.generation.spec.stop.clone(), shows_thoughts };
    converse(&app, &request, ParsedBody { asked: chat, bytes, room }, shape, "msg_").await
}

/// How many tokens a request's prompt has, without an answer.
async fn count_tokens(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let parse = |body: &[u8], app: &SeenApp<'_>| MessagesRequest::parse(body, &app.limits);
    let ParsedBody { asked, bytes, room: _room } = take(&app, &request, payload, parse).await?;
    let prompt = prompt_of_chat(&app, &request, (asked.chat, bytes)).await?;
    Ok(HttpResponse::Ok().json(json!({"input_tokens": prompt.ids.len()})))
}

//! From a request to its turn, in any dialect, and from the turn to its answer.

use super::dialect::Dialect;
use super::generate::generate;
use crate::http::app::App;
use crate::http::edge::shares::Share;
use crate::http::intake::bodies::ParsedBody;
use crate::http::intake::caller::{cache_scope, turn_caller};
use crate::http::wire::error::ApiError;
use crate::turn::Turn;
use crate::turn::options::{ChatRequest, Generation};
use actix_web::{HttpRequest, HttpResponse};
use chimere_engine::ids::TokenId;
use std::sync::Arc;

/// Answers a conversation with one generation.
pub(in crate::http) async fn converse<S: Dialect>(
    app: &App,
    request: &HttpRequest,
    taken: ParsedBody<ChatRequest>,
    shape: S,
    id_prefix: &'static str,
) -> Result<HttpResponse, ApiError> {
    let ParsedBody { asked: chat, bytes, room } = taken;
    let (caller, cache) = (turn_caller(app, request)?, cache_scope(request, &chat.generation.cache));
    let turn = Turn::of_chat(&app.turns, caller, cache, (chat, bytes));
    answer(app, request, (turn, room), shape, id_prefix).await
}

/// Goes on from prompts that no template is laid around.
pub(in crate::http) async fn go_on_from<S: Dialect>(
    app: &App,
    request: &HttpRequest,
    (prompts, generation, room): (Vec<Arc<[TokenId]>>, Generation, Option<Share>),
    shape: S,
    id_prefix: &'static str,
) -> Result<HttpResponse, ApiError> {
    let (caller, cache) = (turn_caller(app, request)?, cache_scope(request, &generation.cache));
    let turn = Turn::of_texts(&app.turns, caller, cache, (prompts, generation));
    answer(app, request, (turn, room), shape, id_prefix).await
}

async fn answer<S: Dialect>(
    app: &App,
    request: &HttpRequest,
    (mut turn, room): (Turn<'_>, Option<Share>),
    shape: S,
    id_prefix: &'static str,
) -> Result<HttpResponse, ApiError> {
    turn.prepare().await?;
    // Only now: what waits for a thread or a trial is as large as its body was when it was taken apart.
    drop(room);
    generate(app, request, turn.complete().await?, shape, id_prefix).await
}

//! From a request to its turn, in any dialect, and from the turn to its answer.

use super::dialect::Dialect;
use super::generate::{KeptOfRequest, generate};
use super::piped::piped;
use super::remembered::RememberedAnswer;
use crate::http::app::App;
use crate::http::edge::shares::Share;
use crate::http::intake::bodies::ParsedBody;
use crate::http::intake::caller::{cache_scope, turn_caller};
use crate::http::wire::error::ApiError;
use crate::text::ChatPrompt;
use crate::turn::options::{ChatRequest, Generation};
use crate::turn::{LaterRounds, Preparation, host_tools};
use actix_web::{HttpRequest, HttpResponse};
use chimere_engine::ids::TokenId;
use std::sync::Arc;

/// Answers a conversation: by a pipeline if it names one, else with one generation, or with as many as the calls take
/// that the service runs itself.
pub(in crate::http) async fn converse<S: Dialect>(
    app: &App,
    request: &HttpRequest,
    taken: ParsedBody<ChatRequest>,
    shape: S,
    id_prefix: &'static str,
) -> Result<HttpResponse, ApiError> {
    let mut taken = taken;
    let remembered = RememberedAnswer::of(app, request, (&taken.asked, taken.bytes))?;
    if let Some(pipeline) = taken.asked.pipeline.take() {
        return piped(app, request, (pipeline, taken, remembered), shape, id_prefix).await;
    }
    let ParsedBody { asked: mut chat, bytes, room } = taken;
    let (caller, cache) = (turn_caller(app, request)?, cache_scope(request, &chat.generation.cache));
    let lists = host_tools(&app.turns, &caller, &mut chat).await?;
    let mut later = LaterRounds::of(&app.turns, &caller, cache, (&chat, bytes), lists);
    if let Some(later) = &mut later {
        later.answer_approved(&mut chat.conversation.messages).await?;
    }
    let preparation = Preparation::of_chat(&app.turns, caller, cache, (chat, bytes));
    answer(app, request, (preparation, later, (room, remembered)), shape, id_prefix).await
}

/// The prompt behind which the answer of a conversation would begin.
pub(in crate::http) async fn prompt_of_chat(
    app: &App,
    request: &HttpRequest,
    (mut chat, bytes): (ChatRequest, usize),
) -> Result<ChatPrompt, ApiError> {
    let (caller, cache) = (turn_caller(app, request)?, cache_scope(request, &chat.generation.cache));
    host_tools(&app.turns, &caller, &mut chat).await?;
    // Nothing is run to count tokens: a call that was approved just now has no result yet.
    chat.conversation
        .messages
        .iter_mut()
        .for_each(|message| message.content = message.content.take().or(Some(String::new())));
    Ok(Preparation::of_chat(&app.turns, caller, cache, (chat, bytes)).prompt().await?)
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
    let preparation = Preparation::of_texts(&app.turns, caller, cache, (prompts, generation));
    answer(app, request, (preparation, None, (room, None)), shape, id_prefix).await
}

async fn answer<S: Dialect>(
    app: &App,
    request: &HttpRequest,
    (mut preparation, mut later, (room, remembered)): (Preparation<'_>, Option<Box<LaterRounds>>, KeptOfRequest),
    shape: S,
    id_prefix: &'static str,
) -> Result<HttpResponse, ApiError> {
    preparation.prepare().await?;
    if let (Some(later), Some(kept)) = (&mut later, preparation.take_conversation()) {
        later.remember(kept);
    }
    // Only now: what waits for a thread or a trial is as large as its body was when it was taken apart. A turn of
    // several rounds keeps its conversation, and the room for it.
    let kept = (room.filter(|_| later.is_some()), remembered);
    generate(app, request, (preparation.complete().await?, later, kept), shape, id_prefix).await
}

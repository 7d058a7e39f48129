//! An answer that a pipeline gives: the way of every answer, with several generations in the place of one.

use super::dialect::{Begun, Dialect};
use super::generate::{envelope, out, trace};
use super::remembered::RememberedAnswer;
use crate::http::app::App;
use crate::http::intake::bodies::ParsedBody;
use crate::http::intake::caller::{cache_scope, turn_caller};
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::{engine_error, refused};
use crate::pipelines::NamedPipeline;
use crate::turn::options::ChatRequest;
use crate::turn::{PipelineTurn, RefusedTurn, StartedTurn};
use actix_web::{HttpRequest, HttpResponse};
use std::sync::Arc;

/// Answers a conversation by a pipeline.
pub(super) async fn piped<S: Dialect>(
    app: &App,
    request: &HttpRequest,
    (pipeline, taken, remembered): (Arc<NamedPipeline>, ParsedBody<ChatRequest>, Option<Box<RememberedAnswer>>),
    shape: S,
    id_prefix: &'static str,
) -> Result<HttpResponse, ApiError> {
    let ParsedBody { asked: chat, bytes, room } = taken;
    let (caller, cache) = (turn_caller(app, request)?, cache_scope(request, &chat.generation.cache));
    let (stream, stream_options) = (chat.generation.spec.stream, chat.generation.spec.stream_options);
    let (name, model) = (caller.name.clone(), pipeline.name.to_string());
    let trace = trace(app, request, stream);
    let started = PipelineTurn::start(&app.turns, (caller, cache), (pipeline, chat, bytes), trace).await;
    let StartedTurn { outputs, prompt_tokens, seed } = started.map_err(|why| match why {
        RefusedTurn::Turn(error) => error.into(),
        RefusedTurn::Scheduler(refusal) => refused(refusal, "messages"),
        RefusedTurn::Engine(why) => engine_error(why),
    })?;
    tracing::info!(request = &*name, pipeline = model, prompt_tokens, stream, "accepted");
    let envelope = super::dialect::Envelope { model, ..envelope(app, id_prefix, seed) };
    let (searches, tools) = (Vec::new(), Default::default());
    let begun = Begun { envelope, choices: 1, stream_options, prompt_tokens, searches, tools };
    out(app, (outputs, (room, remembered), stream), shape, begun).await
}

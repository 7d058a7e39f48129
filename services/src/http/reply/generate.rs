//! The one path of every answer, chat or not, streamed or not: submit its first generation, wait for the scheduler's
//! word, then answer.

use super::dialect::{Begun, Dialect, Envelope, Frames, WholeReply};
use super::remembered::{RememberedAnswer, RememberedOutputs};
use super::sse::Events;
use crate::actors::request::RequestActor;
use crate::actors::request::generation_request::GenerationRequest;
use crate::clock::unix_seconds;
use crate::http::app::App;
use crate::http::edge::keys::auth::Caller;
use crate::http::edge::shares::Share;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::{engine_error, refused};
use crate::http::wire::reply::RequestName;
use crate::traces::{About, Remote, Trace};
use crate::turn::{LaterRounds, TurnOutputs};
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};
use chimere_engine::ids::TokenId;
use std::sync::Arc;

/// What is kept of a request until it is answered: the room for its body, and what is remembered of its answer.
pub(super) type KeptOfRequest = (Option<Share>, Option<Box<RememberedAnswer>>);

/// Runs a generation and answers it.
pub(super) async fn generate<S: Dialect>(
    app: &App,
    request: &HttpRequest,
    (mut generation, mut later, kept): (GenerationRequest, Option<Box<LaterRounds>>, KeptOfRequest),
    shape: S,
    id_prefix: &'static str,
) -> Result<HttpResponse, ApiError> {
    generation.trace = trace(app, request, generation.spec.stream);
    let (name, prompt_field) = (RequestName::of(request), generation.prompt_field);
    log_prompts(app, &name, &generation.prompts);
    let (prompts, prompt_tokens) = (generation.prompts.len(), generation.prompt_tokens());
    let choices = generation.choices();
    let (stream, stream_options) = (generation.spec.stream, generation.spec.stream_options);
    let engine = &generation.spec.engine;
    let model = engine.adapter.as_ref().map_or(&app.limits.name, |scaled| &scaled.adapter.name).clone();
    let envelope = Envelope { model, ..envelope(app, id_prefix, engine.sampling.seed) };
    let entries = generation.prompts.iter().map(|_| app.turns.live.enter(name.clone())).collect();
    if let Some(later) = &mut later {
        later.begin(&generation);
    }
    let tools = later.as_mut().map(|later| later.take_told()).unwrap_or_default();
    let searches = std::mem::take(&mut generation.searches);
    let outputs = RequestActor::submit(generation, entries, app.turns.handles.clone()).await.map_err(|refusal| {
        tracing::info!(request = &*name, prompt_tokens, why = %refusal, "refused");
        refused(refusal, prompt_field)
    })?;
    tracing::info!(request = &*name, prompts, prompt_tokens, choices, stream, "accepted");
    let outputs = match later {
        None => TurnOutputs::Once(outputs),
        Some(later) => later.outputs(outputs),
    };
    let begun = Begun { envelope, choices, stream_options, prompt_tokens, searches, tools };
    out(app, (outputs, kept, stream), shape, begun).await
}

/// The answer of a turn that was accepted, as it comes or when it is whole.
pub(super) async fn out<S: Dialect>(
    app: &App,
    (outputs, (room, remembered), stream): (TurnOutputs, KeptOfRequest, bool),
    shape: S,
    begun: Begun,
) -> Result<HttpResponse, ApiError> {
    let outputs = RememberedOutputs::new(outputs, remembered, &begun.envelope.id, &begun.envelope.model);
    if stream { Ok(streamed(app, (outputs, room), shape, begun)) } else { whole(outputs, shape, begun).await }
}

/// The trace of a request, if traces are wanted.
pub(super) fn trace(app: &App, request: &HttpRequest, stream: bool) -> Option<Trace> {
    app.traces.begin(remote(request), || About {
        path: request.path().to_owned(),
        name: RequestName::of(request),
        model: app.limits.name.clone(),
        arrived: Caller::of(request).arrived,
        stream,
    })
}

fn log_prompts(app: &App, name: &str, prompts: &[Arc<[TokenId]>]) {
    for prompt in prompts.iter().filter(|_| app.turns.log_prompts) {
        tracing::info!(request = name, prompt = app.turns.text.tokenizer().decode(prompt, true), "asked");
    }
}

/// An answer that goes out as it comes.
fn streamed<S: Dialect>(
    app: &App,
    outputs: (RememberedOutputs, Option<Share>),
    shape: S,
    begun: Begun,
) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, S::Stream::CONTENT_TYPE))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .insert_header(("x-accel-buffering", "no"))
        .body(Events::new(outputs, shape.streamed(begun), app.keep_alive))
}

/// An answer that goes out when it is whole.
async fn whole<S: Dialect>(mut outputs: RememberedOutputs, shape: S, begun: Begun) -> Result<HttpResponse, ApiError> {
    let mut whole = shape.collected(begun);
    while let Some(output) = outputs.next().await {
        if let Some(reply) = whole.of(output)? {
            return Ok(HttpResponse::Ok().json(reply));
        }
    }
    Err(engine_error("the answer broke off".into()))
}

/// What every piece of a reply says.
pub(super) fn envelope(app: &App, id_prefix: &str, seed: u64) -> Envelope {
    Envelope {
        id: format!("{id_prefix}{}", uuid::Uuid::new_v4().simple()),
        created: unix_seconds(),
        model: app.limits.name.clone(),
        fingerprint: app.fingerprint.clone(),
        // As the caller wrote it: negative seeds are taken too.
        seed: seed as i64,
    }
}

/// What a caller that traces says of its trace.
fn remote(request: &HttpRequest) -> Remote<'_> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    Remote { parent: header("traceparent"), state: header("tracestate") }
}

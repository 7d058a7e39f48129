//! The one path of every generation, chat or not, streamed or not: submit, wait for the scheduler's word, then answer.

use super::answer::{Chunks, Envelope, Shape, Whole, engine_error};
use super::app::{App, unavailable};
use super::auth::{Caller, Keys};
use super::error::ApiError;
use super::reply::RequestName;
use super::request::Generation;
use super::request_tables::tables_of;
use super::sse::Events;
use super::terms::terms_of;
use crate::actors::lone::LoneError;
use crate::actors::messages::Refusal;
use crate::actors::output::{ExamplesAccount, ProbeAccount};
use crate::actors::reader::Reader;
use crate::actors::request::{Job, RequestActor, ThinkingJob};
use crate::clock::unix_seconds;
use crate::traces::{About, Remote};
use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};
use chimere_engine::constraint::{Source, Sources};
use chimere_engine::ids::TokenId;
use chimere_engine::scheduler::Rejected;
use std::sync::Arc;

/// What an endpoint makes of a body, for [`generate`] to run and answer.
pub(super) struct EndpointJob<S> {
    /// How to generate.
    pub(super) generation: Generation,
    /// Token ids of each prompt.
    pub(super) prompts: Vec<Arc<[TokenId]>>,
    /// The field that the prompts came from, for errors.
    pub(super) prompt_field: &'static str,
    /// What the request said about thinking, if anything.
    pub(super) thinking: Option<ThinkingJob>,
    /// What trying an answer without a thought gave.
    pub(super) probe: Option<ProbeAccount>,
    /// Which examples were put into the prompt.
    pub(super) examples: Option<ExamplesAccount>,
    /// How the text of a choice, given its number, is understood.
    pub(super) reader: Box<dyn Fn(usize) -> Box<dyn Reader>>,
    /// How a choice looks.
    pub(super) shape: S,
    /// What ids begin with.
    pub(super) id_prefix: &'static str,
}

/// Runs a generation and answers it.
pub(super) async fn generate<S: Shape + Unpin + 'static>(
    app: &App,
    request: &HttpRequest,
    endpoint: EndpointJob<S>,
) -> Result<HttpResponse, ApiError> {
    app.check_open()?;
    let terms = terms_of(request)?;
    let EndpointJob { generation, prompts, prompt_field, thinking, probe, examples, reader, shape, id_prefix } = endpoint;
    let Generation { spec, seed, engram } = generation;
    // Drawn seeds keep to 53 bits, which every JSON reader takes exactly.
    let seed = seed.unwrap_or_else(|| rand::random::<u64>() >> 11);
    let tables = tables_of(app, engram, Keys::hash_of(request), &prompts, &spec.engine.end_ids).await?;
    let waits_for = if tables.is_empty() { Sources::NONE } else { Sources::only(Source::Tables) };
    let spec = spec.complete(seed, thinking.as_ref().and_then(ThinkingJob::rules), waits_for);
    let name = RequestName::of(request);
    let choices = prompts.len() * spec.engine.choices as usize;
    let envelope = Envelope {
        id: format!("{id_prefix}-{}", uuid::Uuid::new_v4().simple()),
        created: unix_seconds(),
        model: app.limits.name.clone(),
        fingerprint: app.fingerprint.clone(),
        // As the caller wrote it: negative seeds are taken too.
        seed: seed as i64,
    };
    if app.log_prompts {
        for prompt in &prompts {
            tracing::info!(request = &*name, prompt = app.text.tokenizer().decode(prompt, true), "asked");
        }
    }
    let trace = app.traces.begin(remote(request), || About {
        path: request.path().to_owned(),
        name: name.clone(),
        model: app.limits.name.clone(),
        arrived: Caller::of(request).arrived,
        stream: spec.stream,
    });
    let (count, prompt_tokens) = (prompts.len(), prompts.iter().map(|p| p.len()).sum::<usize>());
    let entries = prompts.iter().map(|_| app.live.enter(name.clone())).collect();
    let (stream, include_usage) = (spec.stream, spec.include_usage);
    let job = Job { prompts, spec, terms, thinking, probe, tables, trace, examples, reader };
    let mut outputs = RequestActor::submit(job, entries, app.around.clone()).await.map_err(|refusal| {
        tracing::info!(request = &*name, prompt_tokens, why = %refusal, "refused");
        refused(refusal, prompt_field)
    })?;
    tracing::info!(request = &*name, prompts = count, prompt_tokens, choices, stream, "accepted");
    if stream {
        let chunks = Chunks::new(envelope, shape, choices, include_usage);
        return Ok(HttpResponse::Ok()
            .insert_header((header::CONTENT_TYPE, "text/event-stream; charset=utf-8"))
            .insert_header((header::CACHE_CONTROL, "no-cache"))
            .insert_header(("x-accel-buffering", "no"))
            .body(Events::new(outputs, chunks, app.keep_alive)));
    }
    let mut whole = Whole::new(envelope, shape, choices);
    while let Some(output) = outputs.next().await {
        if let Some(reply) = whole.of(output)? {
            return Ok(HttpResponse::Ok().json(reply));
        }
    }
    Err(engine_error("the answer broke off".into()))
}

/// What a caller that traces says of its trace.
fn remote(request: &HttpRequest) -> Remote<'_> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    Remote { parent: header("traceparent"), state: header("tracestate") }
}

/// Why a request that no actor answers for has no result, as a client reads it.
pub(super) fn lone_error(error: LoneError, prompt_field: &'static str) -> ApiError {
    match error {
        LoneError::Refused(refusal) => refused(refusal, prompt_field),
        LoneError::Failed(why) => engine_error(why),
    }
}

/// The scheduler's no, as a client reads it.
fn refused(refusal: Refusal, prompt_field: &'static str) -> ApiError {
    let message = refusal.to_string();
    let reason = match refusal.reason {
        Rejected::QueueFull { .. } => "queue_full",
        Rejected::QueueTokensFull { .. } => "queue_tokens_full",
        Rejected::EmptyPrompt => "prompt_empty",
        Rejected::PromptTooLong { .. } => "prompt_too_long",
        Rejected::TooManyChoices { .. } => "too_many_choices",
        Rejected::TooManyPages { .. } => "too_many_pages",
        Rejected::KeyBusy { .. } => "key_busy",
        Rejected::KeyRate { .. } => "key_rate",
        Rejected::WaitTooLong { .. } => "wait_too_long",
        Rejected::DeadlineUnreachable { .. } => "deadline_unreachable",
        Rejected::Draining => "draining",
    };
    let error = match refusal.reason {
        Rejected::QueueFull { .. }
        | Rejected::QueueTokensFull { .. }
        | Rejected::KeyBusy { .. }
        | Rejected::KeyRate { .. }
        | Rejected::WaitTooLong { .. }
        | Rejected::DeadlineUnreachable { .. } => {
            // Two bounds of one queue read alike; each other reason has a word of its own.
            let code = if reason == "queue_tokens_full" { "queue_full" } else { reason };
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message).with_code(code);
            refusal.retry_after.into_iter().fold(error, ApiError::with_retry_after)
        }
        Rejected::EmptyPrompt => ApiError::invalid(prompt_field, message).with_code("empty_prompt"),
        Rejected::PromptTooLong { .. } => ApiError::invalid(prompt_field, message).with_code("context_length_exceeded"),
        Rejected::TooManyChoices { .. } => ApiError::invalid("n", message),
        Rejected::TooManyPages { .. } => ApiError::invalid("max_tokens", message).with_code("context_length_exceeded"),
        Rejected::Draining => unavailable(&message, "shutting_down"),
    };
    error.rejected_as(reason)
}

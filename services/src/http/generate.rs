//! The one path of every generation, chat or not, streamed or not: submit, wait for the scheduler's word, then answer.

use super::answer::{Begun, Dialect, Envelope, Frames, WholeReply, engine_error};
use super::app::{App, unavailable};
use super::auth::Caller;
use super::cache;
use super::error::ApiError;
use super::reply::RequestName;
use super::request::Generation;
use super::request_tables::tables_of;
use super::sse::Events;
use super::terms::terms_of;
use super::text::ids_of;
use crate::actors::direct::DirectError;
use crate::actors::messages::Refusal;
use crate::actors::output::{ExamplesAccount, ProbeAccount};
use crate::actors::reader::{Plain, Reader};
use crate::actors::request::{Job, Outputs, RequestActor, ThinkingJob};
use crate::clock::unix_seconds;
use crate::holder::Holder;
use crate::text::grammar::GrammarStart;
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
    /// Where turns begin in the only prompt of a conversation.
    pub(super) turns: Arc<[u32]>,
    /// The field that the prompts came from, for errors.
    pub(super) prompt_field: &'static str,
    /// What the request said about thinking, if anything.
    pub(super) thinking: Option<ThinkingJob>,
    /// What trying an answer without a thought gave.
    pub(super) probe: Option<ProbeAccount>,
    /// Which examples were put into the prompt.
    pub(super) examples: Option<ExamplesAccount>,
    /// What the output has to keep to.
    pub(super) grammar: Option<GrammarStart>,
    /// How the text of a choice, given its number, is understood.
    pub(super) reader: Box<dyn Fn(usize) -> Box<dyn Reader>>,
    /// How the answer looks.
    pub(super) shape: S,
    /// What its id begins with.
    pub(super) id_prefix: &'static str,
}

impl<S> EndpointJob<S> {
    /// Of texts that no template is laid around: nothing was said of thinking or examples.
    pub(super) fn of_texts(
        prompts: Vec<Arc<[TokenId]>>,
        generation: Generation,
        grammar: Option<GrammarStart>,
        shape: S,
        id_prefix: &'static str,
    ) -> Self {
        Self {
            prompts,
            turns: Arc::new([]),
            prompt_field: "prompt",
            thinking: None,
            probe: None,
            examples: None,
            grammar,
            reader: Box::new(|_| Box::new(Plain)),
            shape,
            id_prefix,
            generation,
        }
    }
}

/// Runs a generation and answers it.
pub(super) async fn generate<S: Dialect>(
    app: &App,
    request: &HttpRequest,
    endpoint: EndpointJob<S>,
) -> Result<HttpResponse, ApiError> {
    app.check_open()?;
    let (prompt_field, id_prefix) = (endpoint.prompt_field, endpoint.id_prefix);
    let (job, shape, seed) = job_of(app, request, endpoint).await?;
    let name = RequestName::of(request);
    log_prompts(app, &name, &job.prompts);
    let (prompts, prompt_tokens) = (job.prompts.len(), job.prompts.iter().map(|p| p.len()).sum());
    let choices = prompts * job.spec.engine.choices as usize;
    let (stream, include_usage) = (job.spec.stream, job.spec.include_usage);
    let envelope = envelope(app, id_prefix, seed);
    let entries = job.prompts.iter().map(|_| app.live.enter(name.clone())).collect();
    let outputs = RequestActor::submit(job, entries, app.handles.clone()).await.map_err(|refusal| {
        tracing::info!(request = &*name, prompt_tokens, why = %refusal, "refused");
        refused(refusal, prompt_field)
    })?;
    tracing::info!(request = &*name, prompts, prompt_tokens, choices, stream, "accepted");
    let begun = Begun { envelope, choices, include_usage, prompt_tokens };
    if stream { Ok(streamed(app, outputs, shape, begun)) } else { whole(outputs, shape, begun).await }
}

/// What the request actor is to do, how the answer looks, and the seed of its random numbers.
async fn job_of<S>(app: &App, request: &HttpRequest, endpoint: EndpointJob<S>) -> Result<(Job, S, u64), ApiError> {
    let terms = terms_of(request)?;
    let EndpointJob { generation, prompts, turns, thinking, probe, examples, grammar, reader, shape, .. } = endpoint;
    let Generation { spec, seed, engram, cache, prediction, .. } = generation;
    // Drawn seeds keep to 53 bits, which every JSON reader takes exactly.
    let seed = seed.unwrap_or_else(|| rand::random::<u64>() >> 11);
    let engram = tables_of(app, request, engram, &prompts, &spec.engine.end_ids).await?;
    let waits_for = late_sources(!engram.tables.is_empty(), grammar.is_some());
    let scope = cache::of_request(Caller::of(request).cache, &cache);
    let prediction = predicted(app, app.holder(request), prediction).await?;
    let rules = thinking.as_ref().and_then(ThinkingJob::rules);
    let spec = spec.complete(seed, rules, waits_for, scope, prediction);
    let trace = app.traces.begin(remote(request), || About {
        path: request.path().to_owned(),
        name: RequestName::of(request),
        model: app.limits.name.clone(),
        arrived: Caller::of(request).arrived,
        stream: spec.stream,
    });
    let job = Job { prompts, turns, spec, terms, thinking, probe, engram, grammar, trace, examples, reader };
    Ok((job, shape, seed))
}

fn log_prompts(app: &App, name: &str, prompts: &[Arc<[TokenId]>]) {
    for prompt in prompts.iter().filter(|_| app.log_prompts) {
        tracing::info!(request = name, prompt = app.text.tokenizer().decode(prompt, true), "asked");
    }
}

/// An answer that goes out as it comes.
fn streamed<S: Dialect>(app: &App, outputs: Outputs, shape: S, begun: Begun) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, S::Stream::CONTENT_TYPE))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .insert_header(("x-accel-buffering", "no"))
        .body(Events::new(outputs, shape.streamed(begun), app.keep_alive))
}

/// An answer that goes out when it is whole.
async fn whole<S: Dialect>(mut outputs: Outputs, shape: S, begun: Begun) -> Result<HttpResponse, ApiError> {
    let mut whole = shape.collected(begun);
    while let Some(output) = outputs.next().await {
        if let Some(reply) = whole.of(output)? {
            return Ok(HttpResponse::Ok().json(reply));
        }
    }
    Err(engine_error("the answer broke off".into()))
}

/// Tokens of what the answer may be; no answer is longer than the context.
async fn predicted(app: &App, holder: Holder, text: Option<String>) -> Result<Option<Arc<[TokenId]>>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let mut ids = ids_of(app, holder, text, false).await?;
    ids.truncate(app.handles.context as usize);
    Ok(Some(ids.into()))
}

/// What every piece of a reply says.
fn envelope(app: &App, id_prefix: &str, seed: u64) -> Envelope {
    Envelope {
        id: format!("{id_prefix}{}", uuid::Uuid::new_v4().simple()),
        created: unix_seconds(),
        model: app.limits.name.clone(),
        fingerprint: app.fingerprint.clone(),
        // As the caller wrote it: negative seeds are taken too.
        seed: seed as i64,
    }
}

/// Whose rules each row waits for.
fn late_sources(tables: bool, grammar: bool) -> Sources {
    let late = [(Source::Tables, tables), (Source::Grammar, grammar)];
    late.into_iter().filter(|(_, speaks)| *speaks).map(|(source, _)| source).collect()
}

/// What a caller that traces says of its trace.
fn remote(request: &HttpRequest) -> Remote<'_> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    Remote { parent: header("traceparent"), state: header("tracestate") }
}

/// Why a request that no actor answers for has no result, as a client reads it.
pub(super) fn direct_error(error: DirectError, prompt_field: &'static str) -> ApiError {
    match error {
        DirectError::Refused(refusal) => refused(refusal, prompt_field),
        DirectError::Failed(why) => engine_error(why),
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
        Rejected::PromptTooLong { got, max } => {
            let error = ApiError::invalid(prompt_field, message).with_code("context_length_exceeded");
            error.with_prompt(got as usize, max as usize)
        }
        Rejected::TooManyChoices { .. } => ApiError::invalid("n", message),
        Rejected::TooManyPages { .. } => ApiError::invalid("max_tokens", message).with_code("context_length_exceeded"),
        Rejected::Draining => unavailable(&message, "shutting_down"),
    };
    error.rejected_as(reason)
}

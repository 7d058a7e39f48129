//! The one path of every generation, chat or not, streamed or not: submit, wait for the scheduler's word, then answer.

use super::dialect::{Begun, Dialect, Envelope, Frames, WholeReply};
use super::sse::Events;
use super::tables::tables_of;
use crate::actors::generation_request::{GenerationRequest, ThinkingPlan};
use crate::actors::reader::{Plain, Reader};
use crate::actors::report::Report;
use crate::actors::request::{Outputs, RequestActor};
use crate::clock::unix_seconds;
use crate::holder::Holder;
use crate::http::app::App;
use crate::http::body::generation::Generation;
use crate::http::edge::keys::auth::Caller;
use crate::http::edge::keys::cache;
use crate::http::edge::keys::terms::terms_of;
use crate::http::intake::prompts::ids_of;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::{engine_error, refused};
use crate::http::wire::reply::RequestName;
use crate::text::grammar::GrammarStart;
use crate::traces::{About, Remote};
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};
use chimere_engine::constraint::{Source, Sources};
use chimere_engine::ids::TokenId;
use std::sync::Arc;

/// What an endpoint makes of a body, for [`generate`] to run and answer.
pub(in crate::http) struct EndpointJob<S> {
    /// What the body says about generating.
    pub(in crate::http) generation: Generation,
    /// Token ids of each prompt.
    pub(in crate::http) prompts: Vec<Arc<[TokenId]>>,
    /// Where turns begin in the only prompt of a conversation.
    pub(in crate::http) turns: Arc<[u32]>,
    /// The field that the prompts came from, for errors.
    pub(in crate::http) prompt_field: &'static str,
    /// What the request said about thinking, if anything.
    pub(in crate::http) thinking: Option<ThinkingPlan>,
    /// Reports on what was done for the prompts.
    pub(in crate::http) reports: Vec<Report>,
    /// What the output has to keep to.
    pub(in crate::http) grammar: Option<GrammarStart>,
    /// How the text of a choice, given its number, is understood.
    pub(in crate::http) reader: Box<dyn Fn(usize) -> Box<dyn Reader>>,
    /// How the answer looks.
    pub(in crate::http) shape: S,
    /// What its id begins with.
    pub(in crate::http) id_prefix: &'static str,
}

impl<S> EndpointJob<S> {
    /// Of texts that no template is laid around: nothing was said of thinking or examples.
    pub(in crate::http) fn of_texts(
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
            reports: Vec::new(),
            grammar,
            reader: Box::new(|_| Box::new(Plain)),
            shape,
            id_prefix,
            generation,
        }
    }
}

/// Runs a generation and answers it.
pub(in crate::http) async fn generate<S: Dialect>(
    app: &App,
    request: &HttpRequest,
    endpoint: EndpointJob<S>,
) -> Result<HttpResponse, ApiError> {
    app.check_open()?;
    let (prompt_field, id_prefix) = (endpoint.prompt_field, endpoint.id_prefix);
    let (generation, shape) = request_of(app, request, endpoint).await?;
    let name = RequestName::of(request);
    log_prompts(app, &name, &generation.prompts);
    let (prompts, prompt_tokens) = (generation.prompts.len(), generation.prompt_tokens());
    let choices = generation.choices();
    let (stream, include_usage) = (generation.spec.stream, generation.spec.include_usage);
    let envelope = envelope(app, id_prefix, generation.spec.engine.sampling.seed);
    let entries = generation.prompts.iter().map(|_| app.live.enter(name.clone())).collect();
    let outputs = RequestActor::submit(generation, entries, app.handles.clone()).await.map_err(|refusal| {
        tracing::info!(request = &*name, prompt_tokens, why = %refusal, "refused");
        refused(refusal, prompt_field)
    })?;
    tracing::info!(request = &*name, prompts, prompt_tokens, choices, stream, "accepted");
    let begun = Begun { envelope, choices, include_usage, prompt_tokens };
    if stream { Ok(streamed(app, outputs, shape, begun)) } else { whole(outputs, shape, begun).await }
}

/// What the request actor is to run, and how the answer looks.
async fn request_of<S>(
    app: &App,
    request: &HttpRequest,
    endpoint: EndpointJob<S>,
) -> Result<(GenerationRequest, S), ApiError> {
    let terms = terms_of(request)?;
    let EndpointJob { generation, prompts, turns, prompt_field, thinking, reports, grammar, reader, shape, .. } =
        endpoint;
    let Generation { spec, seed, engram, cache, prediction, .. } = generation;
    // Drawn seeds keep to 53 bits, which every JSON reader takes exactly.
    let seed = seed.unwrap_or_else(|| rand::random::<u64>() >> 11);
    let engram = tables_of(app, request, engram, &prompts, &spec.engine.end_ids).await?;
    let waits_for = late_sources(!engram.tables.is_empty(), grammar.is_some());
    let scope = cache::of_request(Caller::of(request).cache, cache.on, cache.salt.as_deref());
    let prediction = predicted(app, app.holder(request), prediction).await?;
    let rules = thinking.as_ref().and_then(ThinkingPlan::rules);
    let spec = spec.complete(seed, rules, waits_for, scope, prediction);
    let trace = app.traces.begin(remote(request), || About {
        path: request.path().to_owned(),
        name: RequestName::of(request),
        model: app.limits.name.clone(),
        arrived: Caller::of(request).arrived,
        stream: spec.stream,
    });
    let rules = GenerationRequest { thinking, engram, grammar, ..GenerationRequest::new(spec, terms) };
    Ok((GenerationRequest { prompts, prompt_field, turns, trace, reports, reader, ..rules }, shape))
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

/// The sources of rules that each row waits for.
fn late_sources(tables: bool, grammar: bool) -> Sources {
    let late = [(Source::Tables, tables), (Source::Grammar, grammar)];
    late.into_iter().filter(|(_, speaks)| *speaks).map(|(source, _)| source).collect()
}

/// What a caller that traces says of its trace.
fn remote(request: &HttpRequest) -> Remote<'_> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    Remote { parent: header("traceparent"), state: header("tracestate") }
}

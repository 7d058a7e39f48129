//! What the service says about itself: models, health, readiness, metrics.

use crate::actors::phase::Phase;
use crate::clock::rfc3339;
use crate::http::app::App;
use crate::http::body::model::Addressee;
use crate::http::body::model::unknown_model;
use crate::http::edge::keys::auth::viewer;
use crate::http::wire::error::ApiError;
use crate::http::wire::routing::{only, read};
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::{Value, json};

/// Models and the version.
pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(only("/v1/models", "GET", read().to(models)))
        .service(only("/v1/models/{id:.+}", "GET", read().to(model)))
        .service(only("/version", "GET", read().to(version)));
}

/// What probes and scrapers ask, for which no key is needed.
pub(in crate::http) fn probes(config: &mut web::ServiceConfig) {
    config
        .service(only("/health", "GET", read().to(health)))
        .service(only("/ready", "GET", read().to(ready)))
        .service(only("/metrics", "GET", read().to(metrics)));
}

/// `GET /v1/models`: the model that is served, under each of its names, pipelines, and the encoder where there is one;
/// to Anthropic's clients, which ask for no vectors, the first two in the shape of theirs.
async fn models(app: web::Data<App>, request: HttpRequest) -> HttpResponse {
    let limits = app.limits.seen_by(&viewer(&request));
    if !is_anthropics(&request) {
        let models = app.limits.names().map(|name| model_object(&app, name, app.turns.handles.context as usize));
        let more = [limits.adapters.names(), limits.pipelines.names()].concat();
        let more = more.iter().map(|name| child_object(&app, name));
        let data: Vec<Value> = models.chain(more).chain(encoder_object(&app)).collect();
        return HttpResponse::Ok().json(json!({"object": "list", "data": data}));
    }
    let names = limits.all_names();
    let data: Vec<Value> = names.iter().map(|name| anthropics_model(&app, name)).collect();
    HttpResponse::Ok()
        .json(json!({"data": data, "has_more": false, "first_id": names.first(), "last_id": names.last()}))
}

/// Whether a request comes from one of Anthropic's clients, all of which name the version of that API.
fn is_anthropics(request: &HttpRequest) -> bool {
    request.headers().contains_key("anthropic-version")
}

fn anthropics_model(app: &App, name: &str) -> Value {
    let max_input = app.turns.handles.context;
    json!({"type": "model", "id": name, "display_name": name, "created_at": rfc3339(app.created),
        "max_input_tokens": max_input, "max_tokens": max_input})
}

/// `GET /v1/models/{id}`: that model, or 404 under another name.
async fn model(app: web::Data<App>, request: HttpRequest, id: web::Path<String>) -> Result<HttpResponse, ApiError> {
    let encoder = app.turns.embedder.encoder().filter(|encoder| encoder.name().eq_ignore_ascii_case(&id));
    if let Some(object) = encoder.and_then(|_| encoder_object(&app)).filter(|_| !is_anthropics(&request)) {
        return Ok(HttpResponse::Ok().json(object));
    }
    let limits = app.limits.seen_by(&viewer(&request));
    if let Some(name) = Addressee::named(&id, &limits)?.name() {
        let object = if is_anthropics(&request) { anthropics_model(&app, &name) } else { child_object(&app, &name) };
        return Ok(HttpResponse::Ok().json(object));
    }
    let own = limits.names().find(|name| name.eq_ignore_ascii_case(&id));
    let name = own.ok_or_else(|| unknown_model(&id, &limits))?;
    let object = if is_anthropics(&request) {
        anthropics_model(&app, name)
    } else {
        model_object(&app, name, app.turns.handles.context as usize)
    };
    Ok(HttpResponse::Ok().json(object))
}

/// The encoder, which `/v1/embeddings` alone takes. Its type, in LM Studio's word, keeps it out of choices of a model
/// that answers.
fn encoder_object(app: &App) -> Option<Value> {
    let encoder = app.turns.embedder.encoder()?;
    let mut object = model_object(app, encoder.name(), encoder.tokens_max());
    object["type"] = "embeddings".into();
    Some(object)
}

/// An adapter of the served model, or a pipeline, whose generations are the model's.
fn child_object(app: &App, name: &str) -> Value {
    let mut object = model_object(app, name, app.turns.handles.context as usize);
    object["parent"] = app.limits.name.clone().into();
    object
}

fn model_object(app: &App, name: &str, tokens_max: usize) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": app.created,
        "owned_by": "chimere",
        "max_model_len": tokens_max,
    })
}

/// `GET /` and `HEAD /`, by which programs ask whether somebody is there.
pub(super) async fn here() -> HttpResponse {
    HttpResponse::Ok().json(json!({"status": "ok", "service": "chimere", "api": "/v1"}))
}

/// `GET /version`: the version of the service.
async fn version() -> HttpResponse {
    HttpResponse::Ok().json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// `GET /health`: 200 until the last engine is lost, then 503 with the reason. While some are lost and others live, it
/// says so.
async fn health(app: web::Data<App>) -> HttpResponse {
    let lost = app.phases.lost();
    match &*app.turns.phase.borrow() {
        Phase::Lost(why) => HttpResponse::ServiceUnavailable().json(json!({"status": "engine lost", "reason": why})),
        _ if lost.is_empty() => status(true, "ok"),
        _ => HttpResponse::Ok().json(json!({
            "status": "degraded", "replicas": app.turns.handles.dispatcher.replicas(), "lost": lost,
        })),
    }
}

/// `GET /ready`: 200 when a request would be answered, and as many replicas live as the operator wants.
async fn ready(app: web::Data<App>) -> HttpResponse {
    let living = app.turns.handles.dispatcher.replicas() - app.phases.lost().len();
    let word = match *app.turns.phase.borrow() {
        Phase::Starting => "starting",
        Phase::Ready if living < app.ready_replicas => "degraded",
        Phase::Ready => "ready",
        Phase::Draining | Phase::Drained => "draining",
        Phase::Lost(_) => "engine lost",
    };
    status(word == "ready", word)
}

fn status(good: bool, word: &str) -> HttpResponse {
    let code = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    HttpResponse::build(code).json(json!({"status": word}))
}

/// `GET /metrics`, in Prometheus' text format; 404 where none are kept.
async fn metrics(app: web::Data<App>) -> Result<HttpResponse, ApiError> {
    let off = || {
        ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", "server.metrics is false: no metrics are kept")
    };
    let recorder = app.recorder.as_ref().ok_or_else(off)?;
    let text = app.rendered.text(|| app.turns.handles.gateway.with_adapters(recorder.render())).await;
    Ok(HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(text))
}

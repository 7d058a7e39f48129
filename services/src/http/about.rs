//! What the service says about itself: models, health, readiness, metrics.

use super::app::App;
use super::error::ApiError;
use super::request::unknown_model;
use crate::actors::phase::Phase;
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use serde_json::{Value, json};

/// `GET /v1/models`: the models that are served, which is one.
pub(super) async fn models(app: web::Data<App>) -> HttpResponse {
    HttpResponse::Ok().json(json!({"object": "list", "data": [model_object(&app)]}))
}

/// `GET /v1/models/{id}`: that model, or 404 under another name.
pub(super) async fn model(app: web::Data<App>, id: web::Path<String>) -> Result<HttpResponse, ApiError> {
    if *id != app.limits.name {
        return Err(unknown_model(&id, &app.limits));
    }
    Ok(HttpResponse::Ok().json(model_object(&app)))
}

fn model_object(app: &App) -> Value {
    json!({
        "id": app.limits.name,
        "object": "model",
        "created": app.created,
        "owned_by": "chimere",
        "max_model_len": app.around.context,
    })
}

/// `GET /health`: 200 until the engine dies.
pub(super) async fn health(app: web::Data<App>) -> HttpResponse {
    let lost = matches!(*app.phase.borrow(), Phase::Lost(_));
    status(!lost, if lost { "engine lost" } else { "ok" })
}

/// `GET /ready`: 200 when a request would be answered.
pub(super) async fn ready(app: web::Data<App>) -> HttpResponse {
    let word = match *app.phase.borrow() {
        Phase::Starting => "starting",
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
pub(super) async fn metrics(app: web::Data<App>) -> Result<HttpResponse, ApiError> {
    let off = || ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", "server.metrics is false: no metrics are kept");
    let text = app.recorder.as_ref().ok_or_else(off)?.render();
    Ok(HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(text))
}

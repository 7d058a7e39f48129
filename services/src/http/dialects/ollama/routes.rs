//! Ollama's API under `/api/`: conversations, prompts and embeddings, and what its programs ask about models.

use super::answer::{Ollama, loaded};
use super::request::{OllamaRequest, parse_embed, parse_name};
use crate::actors::request::embed::Texts;
use crate::clock::{rfc3339, unix_seconds};
use crate::http::app::App;
use crate::http::body::embedding::EmbeddingRequest;
use crate::http::edge::keys::auth::viewer;
use crate::http::edge::keys::terms::terms_of;
use crate::http::edge::shares::Share;
use crate::http::intake::bodies::{ParsedBody, parsed, take};
use crate::http::reply::converse::{converse, go_on_from};
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::too_long;
use crate::http::wire::reply::RequestName;
use crate::http::wire::routing::{only, read};
use crate::limits::OLLAMA_VERSION;
use crate::turn::options::Generation;
use crate::turn::prompts::ids_of;
use crate::turn::vectors::{EmbeddingLayout, tokens, vectors};
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::time::Instant;

/// What Ollama's programs call.
pub(in crate::http::dialects) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(only("/api/chat", "POST", web::post().to(chat)))
        .service(only("/api/generate", "POST", web::post().to(prompt)))
        .service(only("/api/embed", "POST", web::post().to(embed)))
        .service(only("/api/embeddings", "POST", web::post().to(embeddings)))
        .service(only("/api/show", "POST", web::post().to(show)))
        .service(only("/api/pull", "POST", web::post().to(pull)))
        .service(only("/api/tags", "GET", read().to(tags)))
        .service(only("/api/ps", "GET", read().to(loaded_models)))
        .service(only("/api/version", "GET", read().to(version)));
}

/// `POST /api/chat`: answers a conversation.
async fn chat(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let taken = take(&app, &request, payload, |body, app| OllamaRequest::parse_chat(body, &app.limits)).await?;
    answer(&app, &request, taken, Ollama::Chat).await
}

/// `POST /api/generate`: answers a prompt.
async fn prompt(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let taken = take(&app, &request, payload, |body, app| OllamaRequest::parse_generate(body, &app.limits)).await?;
    answer(&app, &request, taken, Ollama::Generate).await
}

async fn answer(
    app: &App,
    request: &HttpRequest,
    taken: ParsedBody<OllamaRequest>,
    shape: Ollama,
) -> Result<HttpResponse, ApiError> {
    let ParsedBody { asked, bytes, room } = taken;
    match asked {
        OllamaRequest::Chat(chat) => {
            converse(app, request, ParsedBody { asked: *chat, bytes, room }, shape, "ollama-").await
        }
        OllamaRequest::Raw { prompt, generation } => raw(app, request, (prompt, *generation), room, shape).await,
        OllamaRequest::Load => Ok(HttpResponse::Ok().json(loaded(shape, &app.limits.name, unix_seconds()))),
    }
}

/// A prompt that no template is laid around.
async fn raw(
    app: &App,
    request: &HttpRequest,
    (prompt, generation): (String, Generation),
    room: Option<Share>,
    shape: Ollama,
) -> Result<HttpResponse, ApiError> {
    app.turns.text.may_fit(&prompt, app.turns.room(&generation.spec.engine)).map_err(|e| too_long("prompt", &e))?;
    let prompts = vec![ids_of(&app.turns, app.holder(request), prompt, true).await?.into()];
    go_on_from(app, request, (prompts, generation, room), shape, "ollama-").await
}

/// `POST /api/embed`: makes vectors of texts.
async fn embed(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let begun = Instant::now();
    let (embeddings, count) = embedded(&app, &request, payload).await?;
    let took = begun.elapsed().as_nanos() as u64;
    let reply = json!({"model": app.limits.name, "embeddings": embeddings, "total_duration": took, "load_duration": 0,
        "prompt_eval_count": count});
    Ok(HttpResponse::Ok().json(reply))
}

/// `POST /api/embeddings`, which takes one text.
async fn embeddings(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let (embeddings, _) = embedded(&app, &request, payload).await?;
    Ok(HttpResponse::Ok().json(json!({"embedding": embeddings.into_iter().next().unwrap_or_default()})))
}

/// Vectors of a body's texts, and how many tokens these have.
async fn embedded(
    app: &web::Data<App>,
    request: &HttpRequest,
    payload: web::Payload,
) -> Result<(Vec<Vec<f32>>, usize), ApiError> {
    let asked = parsed(app, request, payload, |body, app| parse_embed(body, &app.limits)).await?;
    let EmbeddingRequest { inputs, pooling, priority, .. } = asked;
    let prompts = tokens(&app.turns, app.holder(request), "input", (inputs, EmbeddingLayout::Alone)).await?;
    let count = prompts.iter().map(|p| p.len()).sum();
    let texts = Texts { prompts, pooling, priority, terms: terms_of(request)? };
    Ok((vectors(&app.turns, RequestName::of(request), "input", texts).await?, count))
}

/// `GET /api/version`: of the API that is spoken, which programs compare with what they need.
async fn version() -> HttpResponse {
    HttpResponse::Ok().json(json!({"version": OLLAMA_VERSION, "chimere": env!("CARGO_PKG_VERSION")}))
}

/// `GET /api/tags`: the models that are there.
async fn tags(app: web::Data<App>, request: HttpRequest) -> HttpResponse {
    let models: Vec<Value> =
        app.limits.seen_by(&viewer(&request)).all_names().iter().map(|name| model(&app, name)).collect();
    HttpResponse::Ok().json(json!({"models": models}))
}

/// `GET /api/ps`: the models that are loaded, which all are, for ever.
async fn loaded_models(app: web::Data<App>) -> HttpResponse {
    let mut model = model(&app, &app.limits.name);
    model["expires_at"] = json!("9999-12-31T23:59:59Z");
    model["context_length"] = json!(app.turns.handles.context);
    HttpResponse::Ok().json(json!({"models": [model]}))
}

/// `POST /api/show`: describes the model.
async fn show(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    parsed(&app, &request, payload, |body, app| parse_name(body, &app.limits)).await?;
    let mut capabilities = vec!["completion", "embedding"];
    if app.turns.text.template().is_some() {
        capabilities.push("tools");
    }
    if app.limits.thinking.is_some() {
        capabilities.push("thinking");
    }
    let info = json!({
        "general.architecture": "chimere",
        "general.basename": app.limits.name,
        "chimere.context_length": app.turns.handles.context,
        "chimere.embedding_length": app.limits.width,
        "chimere.vocab_size": app.limits.vocab,
    });
    let reply = json!({"modelfile": "", "parameters": "", "template": "{{ .Prompt }}", "details": details(),
        "model_info": info, "capabilities": capabilities, "modified_at": rfc3339(app.created)});
    Ok(HttpResponse::Ok().json(reply))
}

/// `POST /api/pull`: what is served is there, and nothing else is fetched: models are files.
async fn pull(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let asked = parsed(&app, &request, payload, |body, app| parse_name(body, &app.limits)).await;
    asked.map_err(|error| match error.code {
        Some("model_not_found") => {
            let message =
                format!("{}; models are files here: `chimere serve --model FILE` serves another one", error.message);
            ApiError { message, ..error }
        }
        _ => error,
    })?;
    // One line, which is a stream too.
    Ok(HttpResponse::Ok().content_type("application/x-ndjson").body("{\"status\":\"success\"}\n"))
}

fn model(app: &App, name: &str) -> Value {
    // As its own programs do, with the tag that a name without one has.
    let name = if name.contains(':') { name.to_owned() } else { format!("{name}:latest") };
    let digest = Sha256::digest(app.fingerprint.as_bytes());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({"name": name, "model": name, "modified_at": rfc3339(app.created), "size": 0, "digest": digest,
        "details": details()})
}

/// What nobody decides anything by.
fn details() -> Value {
    json!({"parent_model": "", "format": "gguf", "family": "chimere", "families": ["chimere"], "parameter_size": "",
        "quantization_level": ""})
}

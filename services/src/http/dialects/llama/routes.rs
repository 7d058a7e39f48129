//! llama.cpp's own endpoints: prompts without a template, vectors, and what its programs ask about the server.

use super::answer::{Llama, LlamaPrompt};
use super::lora;
use super::request::{LlamaRequest, parse_embedding};
use crate::actors::request::embed::Texts;
use crate::http::app::App;
use crate::http::body::embedding::EmbeddingRequest;
use crate::http::edge::keys::terms::terms_of;
use crate::http::intake::bodies::{ParsedBody, SeenApp, parsed, take};
use crate::http::reply::converse::go_on_from;
use crate::http::wire::error::ApiError;
use crate::http::wire::reply::RequestName;
use crate::http::wire::routing::{only, read};
use crate::limits::LLAMA_RANDOM_SEED;
use crate::turn::prompts::prompt_ids;
use crate::turn::vectors::{EmbeddingLayout, tokens, vectors};
use actix_web::{HttpRequest, HttpResponse, web};
use chimere_engine::ids::TokenId;
use chimere_engine::sampling::SamplingParams;
use serde_json::{Value, json};
use std::sync::Arc;

/// What llama.cpp's programs call.
pub(in crate::http::dialects) fn routes(config: &mut web::ServiceConfig) {
    lora::routes(config);
    config
        .service(only("/completion", "POST", web::post().to(completion)))
        .service(only("/completions", "POST", web::post().to(completion)))
        .service(only("/embedding", "POST", web::post().to(embedding)))
        .service(only("/embeddings", "POST", web::post().to(embedding)))
        .service(only("/infill", "POST", web::post().to(infill)))
        .service(only("/props", "GET", read().to(props)))
        .service(only("/slots", "GET", read().to(slots)));
}

/// `POST /completion`, also called `/completions`.
async fn completion(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let parse = |body: &[u8], app: &SeenApp<'_>| LlamaRequest::parse(body, &app.limits);
    let ParsedBody { asked: LlamaRequest { generation, prompts, reply }, room, .. } =
        take(&app, &request, payload, parse).await?;
    let holder = app.holder(&request);
    let mut ids: Vec<Arc<[TokenId]>> = Vec::with_capacity(prompts.len());
    let mut repeated = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        let (tokens, text) = prompt_ids(&app.turns, holder, prompt, app.turns.room(&generation.spec.engine)).await?;
        let text = text.unwrap_or_else(|| app.turns.text.tokenizer().decode(&tokens, true));
        repeated.push(LlamaPrompt { text, tokens: tokens.len() });
        ids.push(tokens.into());
    }
    let shape = Llama::new(repeated, &generation, reply);
    go_on_from(&app, &request, (ids, generation, room), shape, "llama-").await
}

/// `POST /embedding`, also called `/embeddings`: a list of vectors, each in a list of its own.
async fn embedding(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let asked = parsed(&app, &request, payload, |body, app| parse_embedding(body, &app.limits)).await?;
    let EmbeddingRequest { inputs, pooling, priority, .. } = asked;
    let prompts = tokens(&app.turns, app.holder(&request), "content", (inputs, EmbeddingLayout::Alone)).await?;
    let texts = Texts { prompts, pooling, priority, terms: terms_of(&request)? };
    let all = vectors(&app.turns, RequestName::of(&request), "content", texts).await?;
    let entry = |(index, vector)| json!({"index": index, "embedding": [vector]});
    Ok(HttpResponse::Ok().json(all.into_iter().enumerate().map(entry).collect::<Vec<_>>()))
}

/// `POST /infill`: no tokens for a text before and after a gap are known here.
async fn infill() -> Result<HttpResponse, ApiError> {
    Err(ApiError::unsupported("input_prefix", "`/infill` is not supported: the model does not fill in"))
}

/// `GET /props`: what a program has to know of the server and its model.
async fn props(app: web::Data<App>) -> HttpResponse {
    let template = app.turns.text.template().and_then(|template| template.source());
    let text =
        |id: Option<&TokenId>| id.map_or_else(String::new, |id| app.turns.text.tokenizer().text(*id).into_owned());
    HttpResponse::Ok().json(json!({
        "default_generation_settings": {"n_ctx": app.turns.handles.context, "params": defaults(&app)},
        "total_slots": app.slots,
        "model_path": app.limits.name,
        "model_alias": app.limits.name,
        "modalities": {"vision": false, "audio": false},
        "chat_template": template.unwrap_or_default(),
        "bos_token": "",
        "eos_token": text(app.limits.end_ids.first()),
        "build_info": concat!("chimere ", env!("CARGO_PKG_VERSION")),
    }))
}

/// What counts where a request says nothing.
fn defaults(app: &App) -> Value {
    let (own, neutral) = (&app.limits.defaults, SamplingParams::default());
    json!({
        "seed": LLAMA_RANDOM_SEED,
        "n_predict": -1,
        "temperature": own.temperature.unwrap_or(neutral.temperature),
        "top_k": own.top_k.unwrap_or(neutral.top_k),
        "top_p": own.top_p.unwrap_or(neutral.top_p),
        "min_p": own.min_p.unwrap_or(neutral.min_p),
        "repeat_penalty": own.repetition_penalty.unwrap_or(neutral.repetition_penalty),
        "presence_penalty": own.presence_penalty.unwrap_or(neutral.presence_penalty),
    })
}

/// `GET /slots`: how many places are taken. Whose request has which is told to nobody, so those that are taken come
/// first.
async fn slots(app: web::Data<App>) -> HttpResponse {
    let (taken, context) = (app.turns.live.len(), app.turns.handles.context);
    let slot = |id: u32| json!({"id": id, "n_ctx": context, "is_processing": (id as usize) < taken});
    HttpResponse::Ok().json((0..app.slots).map(slot).collect::<Vec<_>>())
}

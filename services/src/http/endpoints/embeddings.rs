//! `POST /v1/embeddings`: vectors of texts.

use crate::actors::request::embed::Texts;
use crate::embedder::{EmbeddedTexts, LocalEncoder, Overlong};
use crate::http::app::App;
use crate::http::body::embedding::{AskedEmbedding, EmbeddingRequest, EncoderRequest, Encoding};
use crate::http::edge::keys::terms::terms_of;
use crate::http::intake::bodies::{SeenApp, parsed};
use crate::http::intake::caller::turn_caller;
use crate::http::wire::error::ApiError;
use crate::http::wire::reply::RequestName;
use crate::http::wire::routing::only;
use crate::limits::EMBEDDING_INPUTS_MAX;
use crate::turn::text_vectors::VectorCaller;
use crate::turn::vectors::{EmbeddingLayout, tokens, vectors};
use actix_web::{HttpRequest, HttpResponse, web};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Vectors are asked for under one path.
pub(super) fn routes(config: &mut web::ServiceConfig) {
    config.service(only("/v1/embeddings", "POST", web::post().to(embeddings)));
}

/// Answers with a vector for each text.
async fn embeddings(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let parse = |body: &[u8], app: &SeenApp<'_>| {
        let encoder = app.turns.embedder.encoder().map(|encoder| (encoder.name(), encoder.width() as u32));
        AskedEmbedding::parse(body, &app.limits, encoder)
    };
    match parsed(&app, &request, payload, parse).await? {
        AskedEmbedding::Encoder(asked) => by_encoder(&app, &request, asked).await,
        AskedEmbedding::Model(asked) => by_model(&app, &request, asked).await,
    }
}

async fn by_model(app: &App, request: &HttpRequest, asked: EmbeddingRequest) -> Result<HttpResponse, ApiError> {
    let EmbeddingRequest { inputs, encoding, pooling, priority } = asked;
    let prompts = tokens(&app.turns, app.holder(request), "input", (inputs, EmbeddingLayout::Alone)).await?;
    let (terms, tokens) = (terms_of(request)?, prompts.iter().map(|p| p.len()).sum());
    let texts = Texts { prompts, pooling, priority, terms };
    let vectors = vectors(&app.turns, RequestName::of(request), "input", texts).await?;
    Ok(reply(&app.limits.name, EmbeddedTexts { vectors, tokens }, encoding))
}

/// Texts as they stand: whoever asks puts the prefixes of queries and passages before them. One that is too long is
/// refused, as OpenAI does.
async fn by_encoder(app: &App, request: &HttpRequest, asked: EncoderRequest) -> Result<HttpResponse, ApiError> {
    let EncoderRequest { texts, encoding } = asked;
    let encoder = app.turns.embedder.encoder().expect("a request is for the encoder where there is one");
    let caller = turn_caller(app, request)?;
    let read = encoder.vectors(caller.holder, texts, Overlong::Refuse);
    let embedded = app.turns.made(VectorCaller::Request { caller: &caller, field: "input" }, read).await?;
    Ok(reply(encoder.name(), embedded, encoding))
}

fn reply(model: &str, embedded: EmbeddedTexts, encoding: Encoding) -> HttpResponse {
    let row = |(index, vector)| EmbeddingRow { object: "embedding", index, embedding: Vector::of(vector, encoding) };
    let data = embedded.vectors.into_iter().enumerate().map(row).collect();
    let usage = EmbeddingUsage { prompt_tokens: embedded.tokens, total_tokens: embedded.tokens };
    HttpResponse::Ok().json(Reply { object: "list", data, model, usage })
}

/// What `/v1/embeddings` takes: a body for the model, or one for the encoder where there is one.
pub(super) fn with_encoder(of_model: Value, encoder: Option<&Arc<LocalEncoder>>) -> Value {
    let Some(encoder) = encoder else { return of_model };
    let text = json!({"type": "string", "minLength": 1});
    let texts = json!({"type": "array", "items": text, "minItems": 1, "maxItems": EMBEDDING_INPUTS_MAX});
    let properties = json!({
        "model": {"enum": [encoder.name()]},
        "input": {"anyOf": [text, texts]},
        "encoding_format": {"enum": ["float", "base64", null]},
        "dimensions": {"enum": [encoder.width(), null]},
        "user": {"type": ["string", "null"]},
    });
    let of_encoder = json!({"type": "object", "properties": properties, "required": ["model", "input"],
        "additionalProperties": false});
    json!({"anyOf": [of_model, of_encoder]})
}

#[derive(Serialize)]
struct Reply<'a> {
    object: &'static str,
    data: Vec<EmbeddingRow>,
    model: &'a str,
    usage: EmbeddingUsage,
}

#[derive(Serialize)]
struct EmbeddingRow {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector {
    Numbers(Vec<f32>),
    Bytes(String),
}

#[derive(Serialize)]
struct EmbeddingUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

impl Vector {
    fn of(vector: Vec<f32>, encoding: Encoding) -> Self {
        match encoding {
            Encoding::Float => Self::Numbers(vector),
            Encoding::Base64 => {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                Self::Bytes(BASE64_STANDARD.encode(bytes))
            }
        }
    }
}

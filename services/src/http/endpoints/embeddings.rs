//! `POST /v1/embeddings`: vectors of texts.

use crate::actors::request::embed::Texts;
use crate::http::app::App;
use crate::http::body::embedding::{EmbeddingRequest, Encoding};
use crate::http::edge::keys::terms::terms_of;
use crate::http::intake::bodies::parsed;
use crate::http::wire::error::ApiError;
use crate::http::wire::reply::RequestName;
use crate::http::wire::routing::only;
use crate::turn::vectors::{EmbeddingLayout, tokens, vectors};
use actix_web::{HttpRequest, HttpResponse, web};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;

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
    let asked = parsed(&app, &request, payload, |body, app| EmbeddingRequest::parse(body, &app.limits)).await?;
    let EmbeddingRequest { inputs, encoding, pooling, priority } = asked;
    let prompts = tokens(&app.turns, app.holder(&request), "input", (inputs, EmbeddingLayout::Alone)).await?;
    let terms = terms_of(&request)?;
    let prompt_tokens = prompts.iter().map(|p| p.len()).sum();
    let vectors =
        vectors(&app.turns, RequestName::of(&request), "input", Texts { prompts, pooling, priority, terms }).await?;
    let data = vectors.into_iter().enumerate().map(|(index, v)| EmbeddingRow {
        object: "embedding",
        index,
        embedding: Vector::of(v, encoding),
    });
    let usage = EmbeddingUsage { prompt_tokens, total_tokens: prompt_tokens };
    Ok(HttpResponse::Ok().json(Reply { object: "list", data: data.collect(), model: &app.limits.name, usage }))
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

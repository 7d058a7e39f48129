//! `POST /v1/embeddings`: the model's own hidden states as vectors. Their texts go through the scheduler as every other
//! prompt does.

use crate::actors::embed::{Texts, embed};
use crate::holder::Holder;
use crate::http::app::App;
use crate::http::body::embedding::{EmbeddingRequest, Encoding};
use crate::http::body::prompt::Prompt;
use crate::http::edge::keys::terms::terms_of;
use crate::http::intake::parsed;
use crate::http::text::{INLINE_BYTES, fitting, work};
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::direct_error;
use crate::http::wire::reply::RequestName;
use crate::limits::EMBEDDING_TOKENS_MAX;
use actix_web::{HttpRequest, HttpResponse, web};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chimere_engine::ids::TokenId;
use serde::Serialize;
use std::sync::Arc;

/// Embeds texts.
pub(super) async fn embeddings(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let asked = parsed(&app, &request, payload, |body, app| EmbeddingRequest::parse(body, &app.limits)).await?;
    let EmbeddingRequest { inputs, encoding, pooling, priority } = asked;
    let prompts = tokens(&app, app.holder(&request), "input", (inputs, Layout::Alone)).await?;
    let terms = terms_of(&request)?;
    let prompt_tokens = prompts.iter().map(|p| p.len()).sum();
    let vectors =
        vectors(&app, RequestName::of(&request), "input", Texts { prompts, pooling, priority, terms }).await?;
    let data = vectors.into_iter().enumerate().map(|(index, v)| Embedding {
        object: "embedding",
        index,
        embedding: Vector::of(v, encoding),
    });
    let usage = Usage { prompt_tokens, total_tokens: prompt_tokens };
    Ok(HttpResponse::Ok().json(Reply { object: "list", data: data.collect(), model: &app.limits.name, usage }))
}

/// A vector of length 1 for each text; `field` is where the texts came from, for errors.
pub(super) async fn vectors(
    app: &App,
    name: Arc<str>,
    field: &'static str,
    texts: Texts,
) -> Result<Vec<Vec<f32>>, ApiError> {
    app.check_open()?;
    let (inputs, tokens) = (texts.prompts.len(), texts.prompts.iter().map(|p| p.len()).sum::<usize>());
    tracing::info!(request = &*name, inputs, tokens, "to embed");
    if app.log_prompts {
        for prompt in &texts.prompts {
            tracing::info!(request = &*name, prompt = app.text.tokenizer().decode(prompt, true), "embeds");
        }
    }
    embed(&app.handles, &app.live, name, texts).await.map_err(|e| direct_error(e, field))
}

/// How a text is laid out for the model.
#[derive(Clone, Copy, Debug)]
pub(super) enum Layout {
    /// As it is.
    Alone,
    /// As what a user says.
    Turn,
}

/// Token ids of texts, each of which fits the context, and all together the limit. What looks like a control token is
/// text.
pub(super) async fn tokens(
    app: &App,
    holder: Holder,
    field: &'static str,
    (inputs, layout): (Vec<Prompt>, Layout),
) -> Result<Vec<Arc<[TokenId]>>, ApiError> {
    let room = app.handles.context as usize;
    let bytes = fitting(app, field, inputs.iter().flat_map(Prompt::texts), room)?;
    let model = app.text.clone();
    let encode = move || {
        let of_text = |text: &str| match layout {
            Layout::Alone => model.tokenizer().encode_plain(text),
            Layout::Turn => model.turn_ids(text),
        };
        let ids = |input: Prompt| input.into_ids(&of_text).into();
        inputs.into_iter().map(ids).collect::<Vec<Arc<[TokenId]>>>()
    };
    let prompts = work(&app.lanes, holder, bytes, bytes <= INLINE_BYTES, encode).await?;
    check_lengths(field, &prompts, room)?;
    Ok(prompts)
}

fn check_lengths(field: &'static str, prompts: &[Arc<[TokenId]>], room: usize) -> Result<(), ApiError> {
    if let Some((i, prompt)) = prompts.iter().enumerate().find(|(_, p)| p.len() > room) {
        let message = format!("text {i} of `{field}` has {} tokens, the context has room for {room}", prompt.len());
        return Err(ApiError::invalid(field, message)
            .with_code("context_length_exceeded")
            .rejected_as("prompt_too_long"));
    }
    let got: usize = prompts.iter().map(|p| p.len()).sum();
    if got > EMBEDDING_TOKENS_MAX {
        let message = format!("`{field}` has {got} tokens, at most {EMBEDDING_TOKENS_MAX} are taken in one request");
        return Err(ApiError::invalid(field, message).with_code("too_many_tokens"));
    }
    Ok(())
}

#[derive(Serialize)]
struct Reply<'a> {
    object: &'static str,
    data: Vec<Embedding>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct Embedding {
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
struct Usage {
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

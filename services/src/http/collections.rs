//! `/v1/engram/collections`: texts that an account keeps, to find them by what they mean.

use crate::actors::embed::Texts;
use crate::clock::unix_seconds;
use crate::engram::TableName;
use crate::http::app::App;
use crate::http::body::prompt::Prompt;
use crate::http::edge::keys::auth::Caller;
use crate::http::edge::keys::terms::terms_of;
use crate::http::embeddings::{Layout, tokens, vectors};
use crate::http::endpoints::collections::request::{SearchRequest, parse_items, parse_nothing};
use crate::http::intake::parsed;
use crate::http::text::{INLINE_BYTES, work};
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::busy;
use crate::http::wire::refusals::database_error;
use crate::http::wire::reply::RequestName;
use crate::metrics;
use crate::semantic::{By, CollectionError, Collections, Hit, Info, Query};
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use chimere_engine::ids::{KeyId, TokenId};
use chimere_engine::scheduler::Pooling;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// How texts of collections are read: as turns, because what a model for conversations makes of one tells what is
/// asked, and over all their positions. Measured in `docs/measurements/collections.md`.
const LAYOUT: Layout = Layout::Turn;
const POOLING: Pooling = Pooling::Mean;

/// `GET /v1/engram/collections`: those of the caller's account.
pub(super) async fn list(app: web::Data<App>, request: HttpRequest) -> HttpResponse {
    let data: Vec<Value> = app.collections.list(Caller::of(&request).key).iter().map(object).collect();
    HttpResponse::Ok().json(json!({"object": "list", "data": data}))
}

/// `GET /v1/engram/collections/{name}`.
pub(super) async fn show(
    app: web::Data<App>,
    request: HttpRequest,
    name: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let info = app.collections.info(Caller::of(&request).key, &name).map_err(|e| api_error(&e))?;
    Ok(HttpResponse::Ok().json(object(&info)))
}

/// `PUT /v1/engram/collections/{name}`: makes it; one that is there stays as it is.
pub(super) async fn put(
    app: web::Data<App>,
    request: HttpRequest,
    name: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let owner = owner(&request)?;
    let name =
        TableName::new(&name).map_err(|e| ApiError::invalid("collection", format!("the collection's name: {e}")))?;
    parsed(&app, &request, payload, |body, _| parse_nothing(body)).await?;
    let info = change(&app, &request, move |all| {
        all.create(owner, name.as_str(), unix_seconds())?;
        all.info(owner, name.as_str())
    })
    .await?;
    Ok(HttpResponse::Ok().json(object(&info)))
}

/// `DELETE /v1/engram/collections/{name}`: away with all that it has.
pub(super) async fn delete(
    app: web::Data<App>,
    request: HttpRequest,
    name: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let (owner, name) = (owner(&request)?, name.into_inner());
    let id = name.clone();
    change(&app, &request, move |all| all.remove(owner, &name)).await?;
    Ok(HttpResponse::Ok().json(json!({"id": id, "object": "engram.collection", "deleted": true})))
}

/// `POST /v1/engram/collections/{name}/add`: embeds items and keeps them.
pub(super) async fn add(
    app: web::Data<App>,
    request: HttpRequest,
    name: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let (owner, name) = (owner(&request)?, name.into_inner());
    let collection = name.clone();
    // On the thread that takes them apart: the room for their words is counted by reading them.
    let parse = move |body: &[u8], app: &App| {
        let items = parse_items(body)?;
        app.collections.check_room(owner, &collection, &items).map_err(|e| api_error(&e))?;
        Ok(items)
    };
    let items = parsed(&app, &request, payload, parse).await?;
    let texts = items.iter().map(|item| Prompt::Text(item.text.clone())).collect();
    let prompts = tokens(&app, app.holder(&request), "items", (texts, LAYOUT)).await?;
    let prompt_tokens: usize = prompts.iter().map(|p| p.len()).sum();
    let texts = Texts { prompts, pooling: POOLING, priority: 0, terms: terms_of(&request)? };
    let vectors = vectors(&app, RequestName::of(&request), "items", texts).await?;
    let ids: Vec<String> = items.iter().map(|item| item.id.clone()).collect();
    let items = items.into_iter().zip(vectors).collect();
    let info = change(&app, &request, move |all| all.add(owner, &name, items)).await?;
    let mut reply = object(&info);
    reply["added"] = json!(ids);
    reply["usage"] = json!({"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens});
    Ok(HttpResponse::Ok().json(reply))
}

/// `POST /v1/engram/collections/{name}/search`: the items that are most like a text.
pub(super) async fn search(
    app: web::Data<App>,
    request: HttpRequest,
    name: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let SearchRequest { query, k, by } = parsed(&app, &request, payload, |body, _| SearchRequest::parse(body)).await?;
    let looked = Search { collection: name.into_inner(), query, k, by, examples: false, field: "query" };
    let (hits, query_tokens) = look(&app, &request, looked).await?;
    let data: Vec<Value> = hits.iter().map(hit_object).collect();
    let usage = json!({"prompt_tokens": query_tokens, "total_tokens": query_tokens});
    Ok(HttpResponse::Ok().json(json!({"object": "list", "data": data, "usage": usage})))
}

/// What to look for.
pub(super) struct Search {
    /// A collection of the caller's account.
    pub(super) collection: String,
    /// The text that neighbours are searched of.
    pub(super) query: String,
    /// The most items to find.
    pub(super) k: u32,
    /// What counts.
    pub(super) by: By,
    /// Only those with an answer.
    pub(super) examples: bool,
    /// Where the text came from, for errors.
    pub(super) field: &'static str,
}

/// The items nearest to a text, best first, and the tokens of the text.
pub(super) async fn look(app: &App, request: &HttpRequest, asked: Search) -> Result<(Vec<Hit>, usize), ApiError> {
    let Search { collection, query, k, by, examples, field } = asked;
    let owner = Caller::of(request).key;
    // Before the text is read for nothing.
    let info = app.collections.info(owner, &collection).map_err(|e| api_error(&e))?;
    let prompts: Vec<Arc<[TokenId]>> =
        tokens(app, app.holder(request), field, (vec![Prompt::Text(query.clone())], LAYOUT)).await?;
    let query_tokens = prompts[0].len();
    let texts = Texts { prompts, pooling: POOLING, priority: 0, terms: terms_of(request)? };
    let vector = vectors(app, RequestName::of(request), field, texts).await?.pop().expect("one text gives one vector");
    let (all, begin) = (app.collections.clone(), Instant::now());
    let bytes = usize::try_from(info.bytes).unwrap_or(usize::MAX);
    let here = bytes <= SCAN_INLINE_BYTES && query.len() <= INLINE_BYTES;
    // What a scan of so many bytes takes is no more than what cutting as long a text into tokens does; the query is
    // parted into words.
    let text_bytes = (bytes / SCAN_TO_TEXT).saturating_add(query.len());
    let scan = move || {
        let query = Query { vector: &vector, text: &query, by };
        all.search(owner, &collection, &query, k as usize, examples)
    };
    let hits = work(&app.lanes, app.holder(request), text_bytes, here, scan).await?;
    ::metrics::histogram!(metrics::SEMANTIC_SEARCH_SECONDS).record(begin.elapsed().as_secs_f64());
    Ok((hits.map_err(|e| api_error(&e))?, query_tokens))
}

/// Collections up to this many bytes are scanned where they are: that takes some 20 microseconds.
const SCAN_INLINE_BYTES: usize = 64 << 10;
/// Bytes of vectors that are scanned while a byte of text is cut into tokens, about.
const SCAN_TO_TEXT: usize = 256;

/// Whose collections a request may change. Who comes without a key from another machine shares no account with anybody
/// and has none.
fn owner(request: &HttpRequest) -> Result<KeyId, ApiError> {
    let caller = Caller::of(request);
    if caller.key != KeyId::default() || caller.admin {
        return Ok(caller.key);
    }
    let message = "collections belong to an API key, and this request has none; without keys they can be made only while the service \
                   listens on loopback";
    Err(ApiError::new(StatusCode::FORBIDDEN, "permission_error", message)
        .with_code("key_required")
        .rejected_as("admin"))
}

/// Runs a write on the thread of long texts.
async fn change<T: Send + 'static>(
    app: &App,
    request: &HttpRequest,
    write: impl FnOnce(&Collections) -> Result<T, CollectionError> + Send + 'static,
) -> Result<T, ApiError> {
    let all = app.collections.clone();
    let changed = app.lanes.for_bytes(usize::MAX).run(app.holder(request), move || write(&all)).await.map_err(busy)?;
    app.collections.export();
    changed.map_err(|e| api_error(&e))
}

fn object(info: &Info) -> Value {
    json!({
        "id": info.name,
        "object": "engram.collection",
        "created": info.created,
        "model": info.model,
        "items": info.items,
        "bytes": info.bytes,
    })
}

fn hit_object(hit: &Hit) -> Value {
    let item = &hit.item;
    json!({"id": item.id, "text": item.text, "answer": item.answer, "score": hit.score})
}

fn api_error(error: &CollectionError) -> ApiError {
    use CollectionError as E;
    let conflict =
        |code| ApiError::new(StatusCode::CONFLICT, "invalid_request_error", error.to_string()).with_code(code);
    match error {
        E::Unknown(name) => ApiError::unknown_name("collection", name, "collection_not_found"),
        E::NoDirectory => conflict("no_directory"),
        E::OtherModel { .. } => conflict("other_model"),
        E::TooManyCollections { .. } => conflict("too_many_collections"),
        E::TooManyItems { .. } | E::NoMemory { .. } => {
            ApiError::invalid("items", error.to_string()).with_code("collection_full")
        }
        E::Database(error) => database_error("collections", error),
    }
}

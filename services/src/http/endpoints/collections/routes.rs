//! `/v1/engram/collections`: texts that an account keeps, to find them by what they mean.

use super::request::{SearchRequest, parse_items, parse_nothing};
use crate::clock::unix_seconds;
use crate::embedder::Purpose;
use crate::engram::TableName;
use crate::http::app::App;
use crate::http::edge::keys::auth::Caller;
use crate::http::intake::bodies::{SeenApp, parsed};
use crate::http::intake::caller::{owner, turn_caller};
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::{busy, collection_error};
use crate::http::wire::routing::{only, read, several};
use crate::semantic::{CollectionError, Collections, FoundItem, Info, SelfTest};
use crate::turn::search::{Search, look};
use crate::turn::text_vectors::VectorCaller;
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::{Value, json};

/// What an account does with its collections.
pub(in crate::http::endpoints) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(only("/v1/engram/collections", "GET", read().to(list)))
        .service(
            several("/v1/engram/collections/{name}", "GET, PUT, DELETE")
                .route(read().to(show))
                .route(web::put().to(put))
                .route(web::delete().to(delete)),
        )
        .service(only("/v1/engram/collections/{name}/add", "POST", web::post().to(add)))
        .service(only("/v1/engram/collections/{name}/search", "POST", web::post().to(search)));
}

/// `GET /v1/engram/collections`: those of the caller's account.
async fn list(app: web::Data<App>, request: HttpRequest) -> HttpResponse {
    let data: Vec<Value> = app.turns.collections.list(Caller::of(&request).key).iter().map(object).collect();
    HttpResponse::Ok().json(json!({"object": "list", "data": data}))
}

/// `GET /v1/engram/collections/{name}`: describes one of them.
async fn show(app: web::Data<App>, request: HttpRequest, name: web::Path<String>) -> Result<HttpResponse, ApiError> {
    let info = app.turns.collections.info(Caller::of(&request).key, &name).map_err(|e| collection_error(&e))?;
    Ok(HttpResponse::Ok().json(object(&info)))
}

/// `PUT /v1/engram/collections/{name}`: makes it; one that is there stays as it is.
async fn put(
    app: web::Data<App>,
    request: HttpRequest,
    name: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let owner = owner(&request, "collections")?;
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
async fn delete(app: web::Data<App>, request: HttpRequest, name: web::Path<String>) -> Result<HttpResponse, ApiError> {
    let (owner, name) = (owner(&request, "collections")?, name.into_inner());
    let id = name.clone();
    change(&app, &request, move |all| all.remove(owner, &name)).await?;
    Ok(HttpResponse::Ok().json(json!({"id": id, "object": "engram.collection", "deleted": true})))
}

/// `POST /v1/engram/collections/{name}/add`: embeds items and keeps them.
async fn add(
    app: web::Data<App>,
    request: HttpRequest,
    name: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let (owner, name) = (owner(&request, "collections")?, name.into_inner());
    let collection = name.clone();
    // On the thread that takes them apart: the room for their words is counted by reading them.
    let parse = move |body: &[u8], app: &SeenApp<'_>| {
        let items = parse_items(body)?;
        app.turns.collections.check_room(owner, &collection, &items).map_err(|e| collection_error(&e))?;
        Ok(items)
    };
    let items = parsed(&app, &request, payload, parse).await?;
    let texts = items.iter().map(|item| item.text.clone()).collect();
    let reader = VectorCaller::Request { caller: &turn_caller(&app, &request)?, field: "items" };
    let embedded = app.turns.vectors(reader, texts, Purpose::Passage).await?;
    let ids: Vec<String> = items.iter().map(|item| item.id.clone()).collect();
    let items = items.into_iter().zip(embedded.vectors).collect();
    let info = change(&app, &request, move |all| all.add(owner, &name, items)).await?;
    let mut reply = object(&info);
    reply["added"] = json!(ids);
    reply["usage"] = json!({"prompt_tokens": embedded.tokens, "total_tokens": embedded.tokens});
    Ok(HttpResponse::Ok().json(reply))
}

/// `POST /v1/engram/collections/{name}/search`: the items that are most like a text.
async fn search(
    app: web::Data<App>,
    request: HttpRequest,
    name: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let SearchRequest { query, k, by } = parsed(&app, &request, payload, |body, _| SearchRequest::parse(body)).await?;
    let looked = Search { collection: name.into_inner(), query, k, by, examples: false, field: "query" };
    let (hits, query_tokens) = look(&app.turns, &turn_caller(&app, &request)?, looked).await?;
    let data: Vec<Value> = hits.iter().map(hit_object).collect();
    let usage = json!({"prompt_tokens": query_tokens, "total_tokens": query_tokens});
    Ok(HttpResponse::Ok().json(json!({"object": "list", "data": data, "usage": usage})))
}

/// Runs a write on the thread of long texts.
async fn change<T: Send + 'static>(
    app: &App,
    request: &HttpRequest,
    write: impl FnOnce(&Collections) -> Result<T, CollectionError> + Send + 'static,
) -> Result<T, ApiError> {
    let all = app.turns.collections.clone();
    let changed =
        app.turns.lanes.for_bytes(usize::MAX).run(app.holder(request), move || write(&all)).await.map_err(busy)?;
    app.turns.collections.export();
    changed.map_err(|e| collection_error(&e))
}

fn object(info: &Info) -> Value {
    json!({
        "id": info.name,
        "object": "engram.collection",
        "created": info.created,
        "model": info.model,
        "items": info.items,
        "bytes": info.bytes,
        "vector_weight": info.vector_weight(),
        "self_test": info.self_test.as_ref().map(self_test_object),
        "self_test_due": info.self_test_due,
    })
}

/// Percent of the sentences that found their text, with each weight of the vectors and with the one that counts.
pub(in crate::http::endpoints) fn self_test_object(test: &SelfTest) -> Value {
    let tenths = |percent: f64| (10.0 * percent).round() / 10.0;
    let found: Vec<Value> = test
        .found
        .iter()
        .map(|found| json!({"vector_weight": found.weight, "recall_percent": tenths(test.percent(found.texts))}))
        .collect();
    json!({
        "at": test.at,
        "items": test.items,
        "sentences": test.sentences,
        "vector_weight": test.weight,
        "recall_percent": test.recall().map(tenths),
        "fell_points": test.fell.map(tenths),
        "weights": found,
    })
}

fn hit_object(hit: &FoundItem) -> Value {
    let item = &hit.item;
    json!({"id": item.id, "text": item.text, "answer": item.answer, "score": hit.score})
}

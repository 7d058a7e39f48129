//! `/v1/vector_stores`: an account's stores, and searches in them.

use super::page::{ListPage, PageQuery};
use super::request::{StoreSearchRequest, new_store, store_change};
use super::{aside, objects};
use crate::http::app::App;
use crate::http::edge::keys::auth::Caller;
use crate::http::endpoints::collections::request::parse_nothing;
use crate::http::intake::bodies::{SeenApp, parsed};
use crate::http::intake::caller::{owner, turn_caller};
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::document_error;
use crate::http::wire::routing::{only, read, several};
use crate::limits::{PAGE_ENTRIES, PAGE_ENTRIES_MAX};
use crate::turn::search::{PassageSearch, find_weighed};
use crate::turn::test_store;
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::{Value, json};

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(several("/v1/vector_stores", "GET, POST").route(read().to(list)).route(web::post().to(create)))
        .service(
            several("/v1/vector_stores/{store}", "GET, POST, DELETE")
                .route(read().to(show))
                .route(web::post().to(update))
                .route(web::delete().to(delete)),
        )
        .service(only("/v1/vector_stores/{store}/search", "POST", web::post().to(search)))
        .service(only("/v1/vector_stores/{store}/selftest", "POST", web::post().to(self_test)));
}

/// `POST /v1/vector_stores`: makes a store.
async fn create(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let owner = owner(&request, "vector stores")?;
    // Some clients send no body where they have nothing to say.
    let parse = |body: &[u8], _: &SeenApp<'_>| if body.is_empty() { Ok(Default::default()) } else { new_store(body) };
    let new = parsed(&app, &request, payload, parse).await?;
    let store = aside(&app, move |documents| documents.create_store(owner, new)).await?;
    Ok(HttpResponse::Ok().json(objects::store(&store)))
}

/// `GET /v1/vector_stores`: those of the caller's account.
async fn list(app: web::Data<App>, request: HttpRequest, query: PageQuery) -> Result<HttpResponse, ApiError> {
    let page = ListPage::of(&query, &[], (PAGE_ENTRIES, PAGE_ENTRIES_MAX))?;
    let stores = app.turns.documents.stores(Caller::of(&request).key).map_err(|e| document_error(&e))?;
    Ok(HttpResponse::Ok().json(page.list(stores, |store| &store.id, objects::store)?))
}

/// `GET /v1/vector_stores/{store}`: describes one of them.
async fn show(app: web::Data<App>, request: HttpRequest, id: web::Path<String>) -> Result<HttpResponse, ApiError> {
    let store = app.turns.documents.store(Caller::of(&request).key, &id).map_err(|e| document_error(&e))?;
    Ok(HttpResponse::Ok().json(objects::store(&store)))
}

/// `POST /v1/vector_stores/{store}`: changes its name or its metadata.
async fn update(
    app: web::Data<App>,
    request: HttpRequest,
    id: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let owner = owner(&request, "vector stores")?;
    let change = parsed(&app, &request, payload, |body, _| store_change(body)).await?;
    let store = aside(&app, move |documents| documents.update_store(owner, &id, change)).await?;
    Ok(HttpResponse::Ok().json(objects::store(&store)))
}

/// `DELETE /v1/vector_stores/{store}`: away with it; its files stay.
async fn delete(app: web::Data<App>, request: HttpRequest, id: web::Path<String>) -> Result<HttpResponse, ApiError> {
    let (owner, id) = (owner(&request, "vector stores")?, id.into_inner());
    let removed = id.clone();
    aside(&app, move |documents| documents.remove_store(owner, &removed)).await?;
    Ok(HttpResponse::Ok().json(objects::deleted(&id, "vector_store.deleted")))
}

/// `POST /v1/vector_stores/{store}/search`: the passages that answer some queries best.
async fn search(
    app: web::Data<App>,
    request: HttpRequest,
    id: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let asked = parsed(&app, &request, payload, |body, _| StoreSearchRequest::parse(body)).await?;
    let StoreSearchRequest { queries, k, filter, threshold, weight } = asked;
    let (store, owner) = (id.into_inner(), Caller::of(&request).key);
    let looked = PassageSearch { stores: vec![store.clone()], queries: queries.clone(), k, filter };
    let found = find_weighed(&app.turns, &turn_caller(&app, &request)?, looked, weight).await?;
    let documents = &app.turns.documents;
    let data: Vec<Value> = found
        .iter()
        .filter(|passage| f64::from(passage.score) >= threshold)
        .filter_map(|passage| {
            // What was removed meanwhile is not shown.
            let member = documents.member(owner, &store, &passage.file_id).ok()?;
            Some(objects::result(passage, &member.attributes))
        })
        .collect();
    Ok(HttpResponse::Ok().json(json!({
        "object": "vector_store.search_results.page",
        "search_query": queries,
        "data": data,
        "has_more": false,
        "next_page": null,
    })))
}

/// `POST /v1/vector_stores/{store}/selftest`: has the store test its vectors now, and shows it with the result.
async fn self_test(
    app: web::Data<App>,
    request: HttpRequest,
    id: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let owner = owner(&request, "vector stores")?;
    nothing(&app, &request, payload).await?;
    test_store(&app.turns, &turn_caller(&app, &request)?, &id).await?;
    let store = app.turns.documents.store(owner, &id).map_err(|e| document_error(&e))?;
    Ok(HttpResponse::Ok().json(objects::store(&store)))
}

/// A body that asks for nothing more than its path says.
pub(super) async fn nothing(
    app: &web::Data<App>,
    request: &HttpRequest,
    payload: web::Payload,
) -> Result<(), ApiError> {
    parsed(app, request, payload, |body, _| parse_nothing(body)).await
}

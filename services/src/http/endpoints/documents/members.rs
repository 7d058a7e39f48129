//! `/v1/vector_stores/{store}/files` and `/file_batches`: files in stores, from their coming to their going.

use super::page::{ListPage, PageQuery};
use super::request::{new_attributes, new_batch, new_member};
use super::{aside, objects, stores};
use crate::documents::{MemberInfo, MemberState};
use crate::http::app::App;
use crate::http::edge::keys::auth::Caller;
use crate::http::intake::bodies::parsed;
use crate::http::intake::caller::owner;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::document_error;
use crate::http::wire::routing::{only, read, several};
use crate::limits::{PAGE_ENTRIES, PAGE_ENTRIES_MAX};
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Bytes of a file's text on one page, about.
const TEXT_PAGE_BYTES: usize = 1 << 20;

type StorePath = web::Path<(String, String)>;

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(
            several("/v1/vector_stores/{store}/files", "GET, POST")
                .route(read().to(list))
                .route(web::post().to(attach)),
        )
        .service(
            several("/v1/vector_stores/{store}/files/{file}", "GET, POST, DELETE")
                .route(read().to(show))
                .route(web::post().to(update))
                .route(web::delete().to(detach)),
        )
        .service(only("/v1/vector_stores/{store}/files/{file}/content", "GET", read().to(content)))
        .service(only("/v1/vector_stores/{store}/file_batches", "POST", web::post().to(create_batch)))
        .service(only("/v1/vector_stores/{store}/file_batches/{batch}", "GET", read().to(show_batch)))
        .service(only("/v1/vector_stores/{store}/file_batches/{batch}/cancel", "POST", web::post().to(cancel_batch)))
        .service(only("/v1/vector_stores/{store}/file_batches/{batch}/files", "GET", read().to(list_batch)));
}

fn described(app: &App, store: &str, member: &MemberInfo) -> Value {
    objects::member(store, member, app.turns.documents.chunk_tokens())
}

/// `POST /v1/vector_stores/{store}/files`: puts a file into the store. It becomes searchable soon; nobody waits here.
async fn attach(
    app: web::Data<App>,
    request: HttpRequest,
    store: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let (owner, store) = (owner(&request, "vector stores")?, store.into_inner());
    let new = parsed(&app, &request, payload, |body, _| new_member(body)).await?;
    let into = store.clone();
    let member = aside(&app, move |documents| documents.attach(owner, &into, new)).await?;
    Ok(HttpResponse::Ok().json(described(&app, &store, &member)))
}

/// `GET /v1/vector_stores/{store}/files`: the store's files.
async fn list(
    app: web::Data<App>,
    request: HttpRequest,
    store: web::Path<String>,
    query: PageQuery,
) -> Result<HttpResponse, ApiError> {
    let members = app.turns.documents.members(Caller::of(&request).key, &store).map_err(|e| document_error(&e))?;
    page(&app, &store, members, &query)
}

/// A page of files in a store, of which only those in one state are wanted if the request says so.
fn page(app: &App, store: &str, mut members: Vec<MemberInfo>, query: &PageQuery) -> Result<HttpResponse, ApiError> {
    let page = ListPage::of(query, &["filter"], (PAGE_ENTRIES, PAGE_ENTRIES_MAX))?;
    if let Some(wanted) = query.get("filter") {
        if !MemberState::NAMES.contains(&wanted.as_str()) {
            let (names, shown) = (MemberState::NAMES.join(", "), wanted.chars().take(64).collect::<String>());
            return Err(ApiError::invalid("filter", format!("`filter` must be one of {names}, got {shown:?}")));
        }
        members.retain(|member| member.state.name() == wanted);
    }
    let list = page.list(members, |member| &member.file_id, |member| described(app, store, member))?;
    Ok(HttpResponse::Ok().json(list))
}

/// `GET /v1/vector_stores/{store}/files/{file}`: where a file stands.
async fn show(app: web::Data<App>, request: HttpRequest, path: StorePath) -> Result<HttpResponse, ApiError> {
    let (store, file) = path.into_inner();
    let member = app.turns.documents.member(Caller::of(&request).key, &store, &file);
    Ok(HttpResponse::Ok().json(described(&app, &store, &member.map_err(|e| document_error(&e))?)))
}

/// `POST /v1/vector_stores/{store}/files/{file}`: gives it other attributes.
async fn update(
    app: web::Data<App>,
    request: HttpRequest,
    path: StorePath,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let (owner, (store, file)) = (owner(&request, "vector stores")?, path.into_inner());
    let attributes = parsed(&app, &request, payload, |body, _| new_attributes(body)).await?;
    let of = store.clone();
    let member = aside(&app, move |documents| documents.set_attributes(owner, (&of, &file), attributes)).await?;
    Ok(HttpResponse::Ok().json(described(&app, &store, &member)))
}

/// `DELETE /v1/vector_stores/{store}/files/{file}`: takes it out of the store; it stays the account's.
async fn detach(app: web::Data<App>, request: HttpRequest, path: StorePath) -> Result<HttpResponse, ApiError> {
    let (owner, (store, file)) = (owner(&request, "vector stores")?, path.into_inner());
    let removed = file.clone();
    aside(&app, move |documents| documents.detach(owner, &store, &removed)).await?;
    Ok(HttpResponse::Ok().json(objects::deleted(&file, "vector_store.file.deleted")))
}

/// `GET /v1/vector_stores/{store}/files/{file}/content`: its text as it was read, section by section.
async fn content(
    app: web::Data<App>,
    request: HttpRequest,
    path: StorePath,
    query: PageQuery,
) -> Result<HttpResponse, ApiError> {
    let (owner, (store, file)) = (Caller::of(&request).key, path.into_inner());
    let from = query.get("page").map_or(Ok(0), |text| {
        text.parse().map_err(|_| ApiError::invalid("page", "`page` must be the `next_page` of the page before"))
    })?;
    let part = (from, TEXT_PAGE_BYTES);
    let (sections, next) = aside(&app, move |documents| documents.text_from(owner, (&store, &file), part)).await?;
    let data: Vec<Value> = sections.into_iter().map(|text| json!({"type": "text", "text": text})).collect();
    Ok(HttpResponse::Ok().json(json!({
        "object": "vector_store.file_content.page",
        "data": data,
        "has_more": next.is_some(),
        "next_page": next.map(|next| next.to_string()),
    })))
}

/// `POST /v1/vector_stores/{store}/file_batches`: puts files into the store together.
async fn create_batch(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
    path: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let owner = owner(&request, "vector stores")?;
    let files = parsed(&app, &request, payload, |body, _| new_batch(body)).await?;
    let (store, into) = (path.clone(), path.into_inner());
    let batch = aside(&app, move |documents| documents.create_batch(owner, &into, files)).await?;
    answer(&app, &request, (&store, &batch.id))
}

/// `GET /v1/vector_stores/{store}/file_batches/{batch}`: where its files stand.
async fn show_batch(app: web::Data<App>, request: HttpRequest, path: StorePath) -> Result<HttpResponse, ApiError> {
    answer(&app, &request, (&path.0, &path.1))
}

fn answer(app: &App, request: &HttpRequest, (store, batch): (&str, &str)) -> Result<HttpResponse, ApiError> {
    let found = app.turns.documents.batch(Caller::of(request).key, store, batch);
    let (batch, counts) = found.map_err(|e| document_error(&e))?;
    Ok(HttpResponse::Ok().json(objects::batch(store, &batch, counts)))
}

/// `POST /v1/vector_stores/{store}/file_batches/{batch}/cancel`: gives up those of its files that are not searchable
/// yet.
async fn cancel_batch(
    app: web::Data<App>,
    request: HttpRequest,
    path: StorePath,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let (owner, (store, batch)) = (owner(&request, "vector stores")?, path.into_inner());
    stores::nothing(&app, &request, payload).await?;
    let (of, cancelled) = (store.clone(), batch.clone());
    aside(&app, move |documents| documents.cancel_batch(owner, &of, &cancelled)).await?;
    answer(&app, &request, (&store, &batch))
}

/// `GET /v1/vector_stores/{store}/file_batches/{batch}/files`: its files.
async fn list_batch(
    app: web::Data<App>,
    request: HttpRequest,
    path: StorePath,
    query: PageQuery,
) -> Result<HttpResponse, ApiError> {
    let (owner, (store, batch)) = (Caller::of(&request).key, path.into_inner());
    let documents = &app.turns.documents;
    let (batch, _) = documents.batch(owner, &store, &batch).map_err(|e| document_error(&e))?;
    let mut members = documents.members(owner, &store).map_err(|e| document_error(&e))?;
    let files: HashSet<&String> = batch.files.iter().collect();
    members.retain(|member| files.contains(&member.file_id));
    page(&app, &store, members, &query)
}

//! `/v1/files`: what an account has uploaded.

use super::page::{ListPage, PageQuery};
use super::{aside, objects, upload};
use crate::http::app::App;
use crate::http::edge::keys::auth::Caller;
use crate::http::intake::caller::owner;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::document_error;
use crate::http::wire::routing::{only, read, several};
use crate::limits::FILE_PAGE_ENTRIES_MAX;
use actix_web::body::SizedStream;
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use futures_util::stream;
use std::fs::File;
use std::io::{self, Read};

/// Bytes of a file that are read at a time.
const PIECE_BYTES: usize = 256 << 10;

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(several("/v1/files", "GET, POST").route(read().to(list)).route(web::post().to(create)))
        .service(several("/v1/files/{file}", "GET, DELETE").route(read().to(show)).route(web::delete().to(delete)))
        .service(only("/v1/files/{file}/content", "GET", read().to(content)));
}

/// `POST /v1/files`: takes a file.
async fn create(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let owner = owner(&request, "files")?;
    let file = upload::take(&app, &request, owner, payload).await?;
    tracing::info!(file = file.id, bytes = file.bytes, "a file was uploaded");
    Ok(HttpResponse::Ok().json(objects::file(&file)))
}

/// `GET /v1/files`: those of the caller's account.
async fn list(app: web::Data<App>, request: HttpRequest, query: PageQuery) -> Result<HttpResponse, ApiError> {
    let page = ListPage::of(&query, &["purpose"], (FILE_PAGE_ENTRIES_MAX, FILE_PAGE_ENTRIES_MAX))?;
    let mut files = app.turns.documents.files(Caller::of(&request).key).map_err(|e| document_error(&e))?;
    if let Some(wanted) = query.get("purpose") {
        files.retain(|file| objects::purpose(file.purpose) == wanted);
    }
    Ok(HttpResponse::Ok().json(page.list(files, |file| &file.id, |file| objects::file(file))?))
}

/// `GET /v1/files/{file}`: describes one of them.
async fn show(app: web::Data<App>, request: HttpRequest, id: web::Path<String>) -> Result<HttpResponse, ApiError> {
    let file = app.turns.documents.file(Caller::of(&request).key, &id).map_err(|e| document_error(&e))?;
    Ok(HttpResponse::Ok().json(objects::file(&file)))
}

/// `DELETE /v1/files/{file}`: away with its bytes, its text, and its passages in all stores.
async fn delete(app: web::Data<App>, request: HttpRequest, id: web::Path<String>) -> Result<HttpResponse, ApiError> {
    let (owner, id) = (owner(&request, "files")?, id.into_inner());
    let removed = id.clone();
    aside(&app, move |documents| documents.remove_file(owner, &removed)).await?;
    Ok(HttpResponse::Ok().json(objects::deleted(&id, "file")))
}

/// `GET /v1/files/{file}/content`: its bytes as they came, of which no browser makes a page.
async fn content(app: web::Data<App>, request: HttpRequest, id: web::Path<String>) -> Result<HttpResponse, ApiError> {
    let (owner, id) = (Caller::of(&request).key, id.into_inner());
    let (file, bytes) = aside(&app, move |documents| documents.content(owner, &id)).await?;
    let pieces = stream::unfold(Some(bytes), |open| async move {
        let mut open = open?;
        match web::block(move || piece(&mut open).map(|bytes| (bytes, open))).await {
            Ok(Ok((bytes, _))) if bytes.is_empty() => None,
            Ok(Ok((bytes, open))) => Some((Ok(web::Bytes::from(bytes)), Some(open))),
            Ok(Err(error)) => Some((Err(error), None)),
            Err(error) => Some((Err(io::Error::other(error)), None)),
        }
    });
    Ok(HttpResponse::Ok()
        .content_type("application/octet-stream")
        .insert_header((header::CONTENT_DISPOSITION, "attachment"))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .body(SizedStream::new(file.bytes, Box::pin(pieces))))
}

/// The next bytes of a file; none at its end.
fn piece(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(PIECE_BYTES);
    file.take(PIECE_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

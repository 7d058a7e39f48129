//! `/v1/engram/tables`: which tables there are, and what an administrator teaches them.

use super::request::TeachRequest;
use crate::engram::{StoreError, TableInfo, TableName, Teacher, Texts, Write};
use crate::holder::Holder;
use crate::http::app::App;
use crate::http::edge::keys::auth::{Caller, asker, require_admin};
use crate::http::intake::bodies::parsed;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::busy;
use crate::http::wire::refusals::database_error;
use crate::http::wire::routing::{only, read, several};
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use chimere_engine::ids::KeyId;
use serde_json::{Value, json};
use std::sync::Arc;

/// What administrators and users do with tables.
pub(in crate::http::endpoints) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(only("/v1/engram/tables", "GET", read().to(list)))
        .service(
            several("/v1/engram/tables/{name}", "GET, PUT, DELETE")
                .route(read().to(show))
                .route(web::put().to(put))
                .route(web::delete().to(delete)),
        )
        .service(only("/v1/engram/tables/{name}/learn", "POST", web::post().to(learn)))
        .service(only("/v1/engram/tables/{name}/rollback", "POST", web::post().to(rollback)));
}

/// `GET /v1/engram/tables`: the tables that the caller's key may use, and whether there is a directory in which tables
/// can be written.
async fn list(app: web::Data<App>, request: HttpRequest) -> HttpResponse {
    let data: Vec<Value> = app.turns.engram.tables.snapshot().infos(&asker(&request)).iter().map(object).collect();
    HttpResponse::Ok().json(json!({"object": "list", "data": data, "writable": app.turns.engram.teacher.is_some()}))
}

/// `GET /v1/engram/tables/{name}`: describes one of them.
async fn show(app: web::Data<App>, request: HttpRequest, name: web::Path<String>) -> Result<HttpResponse, ApiError> {
    let infos = app.turns.engram.tables.snapshot().infos(&asker(&request));
    let info = infos.iter().find(|info| info.name == *name).ok_or_else(|| no_such_table(&name))?;
    Ok(HttpResponse::Ok().json(object(info)))
}

/// `PUT /v1/engram/tables/{name}`: these texts in the place of those that were put before.
async fn put(
    app: web::Data<App>,
    request: HttpRequest,
    name: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let (teacher, name) = (admin(&app, &request)?, checked(&app, &request, &name)?);
    let asked = parsed(&app, &request, payload, |body, _| TeachRequest::parse_put(body)).await?;
    teach(&app, Teaching::of(&app, &request, teacher, name), asked, Write::Put).await
}

/// `POST /v1/engram/tables/{name}/learn`: these texts beside what was learned before, if they are good enough.
async fn learn(
    app: web::Data<App>,
    request: HttpRequest,
    name: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let (teacher, name) = (admin(&app, &request)?, checked(&app, &request, &name)?);
    let (asked, quality) = parsed(&app, &request, payload, |body, _| TeachRequest::parse_learn(body)).await?;
    if quality < app.turns.engram.quality_min {
        let reason = format!("quality {quality} is below {}", app.turns.engram.quality_min);
        return Ok(HttpResponse::Ok().json(json!({"id": name.as_str(), "accepted": false, "reason": reason})));
    }
    teach(&app, Teaching::of(&app, &request, teacher, name), asked, Write::Learn).await
}

/// `DELETE /v1/engram/tables/{name}`: away with both layers. What runs goes on with the table that it has.
async fn delete(app: web::Data<App>, request: HttpRequest, name: web::Path<String>) -> Result<HttpResponse, ApiError> {
    let (teacher, name) = (admin(&app, &request)?, checked(&app, &request, &name)?);
    change(&app, app.holder(&request), name, move |name| {
        check_ours(&teacher, name)?;
        if teacher.store().unknown(name).map_err(store_error)? {
            return Err(no_such_table(name.as_str()));
        }
        teacher.store().write(name, &Write::Remove { time: teacher.now() }).map_err(store_error)
    })
    .await
}

/// `POST /v1/engram/tables/{name}/rollback`: as if the last write had not been.
async fn rollback(
    app: web::Data<App>,
    request: HttpRequest,
    name: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let (teacher, name) = (admin(&app, &request)?, checked(&app, &request, &name)?);
    change(&app, app.holder(&request), name, move |name| teacher.store().undo(name).map_err(store_error)).await
}

fn object(info: &TableInfo) -> Value {
    json!({
        "id": info.name,
        "object": "engram.table",
        "layers": info.layers,
        "tokens": info.tokens,
        "ngrams": info.ngrams,
        "bytes": info.bytes,
    })
}

/// Lets an administrator pass, if there is anything to administer.
fn admin(app: &App, request: &HttpRequest) -> Result<Arc<Teacher>, ApiError> {
    require_admin(request)?;
    app.turns
        .engram
        .teacher
        .clone()
        .ok_or_else(|| conflict("there is no directory for tables: set engram.directory".into()))
}

/// The name of a table that the caller may use: what he may not read he may not write, nor learn that it is there.
fn checked(app: &App, request: &HttpRequest, name: &str) -> Result<TableName, ApiError> {
    let checked = TableName::new(name).map_err(|e| ApiError::invalid("table", format!("the table's name: {e}")))?;
    let allowed = app.turns.engram.tables.snapshot().allows(name, &asker(request));
    allowed.then_some(checked).ok_or_else(|| no_such_table(name))
}

/// A curated file that an operator placed is the operator's to change.
fn check_ours(teacher: &Teacher, name: &TableName) -> Result<(), ApiError> {
    let ours = teacher.store().owns_curated(name).map_err(store_error)? || !teacher.tables().file_of(name).exists();
    if ours {
        Ok(())
    } else {
        Err(conflict(format!("the table {name} is a file that was not made over this interface: change the file")))
    }
}

/// A change of a table, and who makes it.
struct Teaching {
    teacher: Arc<Teacher>,
    name: TableName,
    /// The key on whose account the table grows.
    by: KeyId,
    holder: Holder,
}

impl Teaching {
    fn of(app: &App, request: &HttpRequest, teacher: Arc<Teacher>, name: TableName) -> Self {
        Self { teacher, name, by: Caller::of(request).key, holder: app.holder(request) }
    }
}

/// Tokenizes and writes, on a text thread.
async fn teach(
    app: &App,
    Teaching { teacher, name, by, holder }: Teaching,
    asked: TeachRequest,
    kind: fn(Texts) -> Write,
) -> Result<HttpResponse, ApiError> {
    let tokenizer = app.turns.text.tokenizer().clone();
    change(app, holder, name, move |name| {
        // What looks like a control token is text: nobody should be taught to end a turn by a document.
        let texts: Vec<_> = asked.texts.iter().map(|text| tokenizer.encode_plain(text)).collect();
        let texts = Texts { time: teacher.now(), orders: asked.orders, texts };
        let write = kind(texts);
        if matches!(write, Write::Put(_)) {
            check_ours(&teacher, name)?;
        }
        teacher.store().write_for(by, name, &write).map_err(store_error)
    })
    .await
}

/// Runs a write on the thread of long texts, and says which revision it made. It is in the store then, and on its way
/// to requests.
async fn change(
    app: &App,
    holder: Holder,
    name: TableName,
    write: impl FnOnce(&TableName) -> Result<u64, ApiError> + Send + 'static,
) -> Result<HttpResponse, ApiError> {
    let id = name.clone();
    let revision = app.turns.lanes.for_bytes(usize::MAX).run(holder, move || write(&name)).await.map_err(busy)??;
    app.turns.engram.keeper.wake();
    Ok(HttpResponse::Ok().json(json!({"id": id.as_str(), "accepted": true, "revision": revision})))
}

fn no_such_table(name: &str) -> ApiError {
    ApiError::unknown_name("table", name, "table_not_found")
}

fn conflict(message: String) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "invalid_request_error", message).with_code("table_not_writable")
}

fn store_error(error: StoreError) -> ApiError {
    match error {
        StoreError::Unknown(name) => no_such_table(&name),
        StoreError::Full { .. } | StoreError::NoShare { .. } => {
            ApiError::invalid("texts", error.to_string()).with_code("table_full")
        }
        StoreError::Database(error) => database_error("tables", &error),
    }
}

//! llama.cpp's words for adapters: a request's `lora`, and `/lora-adapters`, which tells of them and says which one
//! requests of `/completion` have that name none.

use crate::http::app::App;
use crate::http::body::fields::{Fields, missing};
use crate::http::body::model::ModelLimits;
use crate::http::edge::keys::auth::{require_admin, viewer};
use crate::http::intake::bodies::{SeenApp, parsed};
use crate::http::wire::error::ApiError;
use crate::http::wire::routing::{read, several};
use crate::limits::{ADAPTER_SCALE_MAX, ADAPTERS_MAX};
use actix_web::{HttpRequest, HttpResponse, web};
use chimere_engine::adapter::ScaledAdapter;
use serde_json::{Value as Json, json};

pub(super) fn routes(config: &mut web::ServiceConfig) {
    let both = several("/lora-adapters", "GET, POST");
    config.service(both.route(read().to(list)).route(web::post().to(apply)));
}

/// The adapter of a request by llama.cpp's numbers, if it says which, or if an administrator did.
pub(super) fn take_lora(
    fields: &mut Fields,
    limits: &ModelLimits,
    named: bool,
) -> Result<Option<Option<ScaledAdapter>>, ApiError> {
    match fields.list("lora")? {
        Some(entries) if named && !entries.is_empty() => {
            Err(ApiError::invalid("lora", format!("`lora` has {} entries, and `model` is an adapter", entries.len())))
        }
        Some(entries) => chosen(entries, "lora", limits).map(Some),
        None if named => Ok(None),
        None => Ok(limits.adapters.applied().map(Some)),
    }
}

/// The one adapter of a list that acts.
fn chosen(entries: Vec<Json>, path: &str, limits: &ModelLimits) -> Result<Option<ScaledAdapter>, ApiError> {
    if entries.len() > ADAPTERS_MAX {
        let message = format!("`{path}` takes at most {ADAPTERS_MAX} entries, got {}", entries.len());
        return Err(ApiError::invalid(path, message));
    }
    let mut acting: Vec<ScaledAdapter> = Vec::new();
    for (i, entry) in entries.into_iter().enumerate() {
        let mut entry = Fields::nested(format!("{path}[{i}]"), entry)?;
        let at = entry.path("id");
        let id = entry.integer("id", 0..=i64::from(u32::MAX))?.ok_or_else(|| missing(&at, "the adapter's number"))?;
        let scale = entry.number("scale", 0.0..=ADAPTER_SCALE_MAX)?.unwrap_or(0.0) as f32;
        entry.finish()?;
        let found = limits.adapters.loaded().into_iter().find(|one| i64::from(one.id) == id);
        let found = found.ok_or_else(|| ApiError::invalid(&at, format!("`{at}` is no adapter's number, got {id}")))?;
        if scale != 0.0 {
            acting.push(ScaledAdapter { adapter: found.adapter, scale });
        }
    }
    if let [first, second, ..] = &acting[..] {
        let message = format!(
            "`{path}` takes one adapter with a scale above 0, got `{}` and `{}`",
            first.adapter.name, second.adapter.name
        );
        return Err(ApiError::unsupported(path, message));
    }
    Ok(acting.pop())
}

/// `GET /lora-adapters`: the adapters by number, with the scale that requests have which name none.
async fn list(app: web::Data<App>, request: HttpRequest) -> HttpResponse {
    let limits = app.limits.seen_by(&viewer(&request));
    let applied = limits.adapters.applied();
    let scale = |name: &str| applied.as_ref().filter(|one| one.adapter.name == name).map_or(0.0, |one| one.scale);
    let all = limits.adapters.loaded();
    let entry = |one: &crate::adapters::LoadedAdapter| {
        let name = &one.adapter.name;
        json!({"id": one.id, "path": one.path, "name": name, "scale": scale(name)})
    };
    HttpResponse::Ok().json(all.iter().map(entry).collect::<Vec<_>>())
}

/// `POST /lora-adapters`: has requests of `/completion` that name no adapter get one, or none.
async fn apply(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    require_admin(&request)?;
    let parse = |body: &[u8], app: &SeenApp<'_>| {
        let entries: Vec<Json> = serde_json::from_slice(body)
            .map_err(|e| ApiError::invalid_body(format!("wanted an array of {{\"id\", \"scale\"}}: {e}")))?;
        chosen(entries, "adapters", &app.limits)
    };
    let chosen = parsed(&app, &request, payload, parse).await?;
    app.limits.adapters.apply(chosen);
    Ok(HttpResponse::Ok().json(json!({"success": true})))
}

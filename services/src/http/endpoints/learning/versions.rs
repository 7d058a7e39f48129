//! `/v1/learning/versions` and `/v1/learning/run`: an administrator sees what was learned and what the gate said of it,
//! has it learned now, serves it, and takes it back.

use super::run::{self, aside, candidate, internal, learned_table, promote, serve, take_back};
use super::{learning, store_error};
use crate::http::app::App;
use crate::http::body::fields::{Fields, missing};
use crate::http::edge::keys::auth::require_admin;
use crate::http::intake::bodies::parsed;
use crate::http::wire::error::ApiError;
use crate::http::wire::routing::{only, read};
use crate::learning::{Learning, LearningService};
use crate::metrics::learning::LearnedChange;
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::json;
use std::sync::Arc;

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(only("/v1/learning/versions", "GET", read().to(list)))
        .service(only("/v1/learning/run", "POST", web::post().to(begin)))
        .service(only("/v1/learning/promote", "POST", web::post().to(accept)))
        .service(only("/v1/learning/rollback", "POST", web::post().to(roll_back)));
}

/// `GET /v1/learning/versions`: what was learned, by name, whether a run is on its way, what came of the last one, and
/// why nothing of it is served, in words.
async fn list(app: web::Data<App>, request: HttpRequest) -> Result<HttpResponse, ApiError> {
    require_admin(&request)?;
    let learning = learning(&app)?;
    let lineages = learning.versions().lineages().map_err(|e| store_error(&e))?;
    let data: Vec<_> = lineages
        .iter()
        .map(|(name, lineage)| {
            let current = lineage.current().map(|current| current.number);
            json!({"object": "learning.lineage", "id": name, "current": current, "versions": lineage.versions()})
        })
        .collect();
    let (running, last) = (learning.runs().is_running(), learning.runs().last());
    let reasons = last.iter().flat_map(|last| &last.verdict).flat_map(|verdict| &verdict.reasons);
    let why: Vec<String> = reasons.map(ToString::to_string).collect();
    let reply = json!({"object": "list", "data": data, "running": running, "last_run": last, "why": why});
    Ok(HttpResponse::Ok().json(reply))
}

/// `POST /v1/learning/run`: begins a run and does not wait for its end.
async fn begin(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    require_admin(&request)?;
    let dry = parsed(&app, &request, payload, |body, _| {
        let mut fields = Fields::of_body(body)?;
        let dry = fields.bool("dry")?.unwrap_or(false);
        fields.finish()?;
        Ok(dry)
    });
    let (dry, learning) = (dry.await?, learning(&app)?.clone());
    let begun = run::begin(&app, &learning)?;
    let occasion = if dry { run::RunOccasion::Dry } else { run::RunOccasion::Asked };
    actix_rt::spawn(async move { run::run(&app, &learning, begun, occasion).await });
    Ok(HttpResponse::Accepted().json(json!({"object": "learning.run", "dry": dry, "running": true})))
}

/// `POST /v1/learning/promote`: everybody is answered by a version that has passed the gate.
async fn accept(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    require_admin(&request)?;
    let number = parsed(&app, &request, payload, |body, _| {
        let mut fields = Fields::of_body(body)?;
        let number = fields.integer("version", 1..=i64::MAX)?;
        fields.finish()?;
        number.ok_or_else(|| missing("version", "the number of a version that has passed"))
    });
    let (number, learning) = (number.await? as u64, learning(&app)?);
    let own = learning.clone();
    let stage = aside(&app, move |app| promote(app, &own, number)).await?;
    served(&app, learning, stage.name())
}

/// `POST /v1/learning/rollback`: everybody is answered as before the last version was served.
async fn roll_back(app: web::Data<App>, request: HttpRequest) -> Result<HttpResponse, ApiError> {
    require_admin(&request)?;
    let learning = learning(&app)?;
    let own = learning.clone();
    aside(&app, move |app| take_back(app, &own, LearnedChange::RolledBack)).await?;
    served(&app, learning, "rolled_back")
}

/// What is served now.
fn served(app: &App, learning: &Arc<Learning>, change: &str) -> Result<HttpResponse, ApiError> {
    let name = learned_table(app, learning)?;
    let lineage = learning.versions().lineage(name.as_str()).map_err(|e| store_error(&e))?;
    let current = lineage.current().map(|current| current.number);
    let reply = json!({"object": "learning.served", "id": name.as_str(), "change": change, "current": current});
    Ok(HttpResponse::Ok().json(reply))
}

/// Makes the file of what is served where the service was cut short before it was made, or the model is another one,
/// and removes a candidate that was being judged.
pub fn restore(app: &App) {
    let LearningService::Open(learning) = &app.learning else { return };
    let Ok(name) = learned_table(app, learning) else { return };
    let left = candidate(&name).and_then(|own| app.turns.engram.tables.place(&own, None).map_err(internal));
    if let Err(error) = left.and_then(|()| serve(app, learning, &name)) {
        tracing::error!(error = %error.worded(), "what was learned cannot be served; what is there stays as it is");
    }
}

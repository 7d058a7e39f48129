//! `/v1/learning/examples`: an administrator takes all examples out, and brings some in, as lines of JSON.

use super::request::ExportQuery;
use super::{learning, store_error, written};
use crate::clock::unix_seconds;
use crate::http::app::App;
use crate::http::edge::keys::auth::{Caller, require_admin};
use crate::http::intake::bodies::parsed;
use crate::http::wire::error::ApiError;
use crate::http::wire::routing::{read, several};
use crate::learning::BroughtExample;
use crate::learning::jsonl::{self, ReadExamples};
use crate::turn::prompts::work;
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::json;
use std::collections::HashMap;

pub(super) fn routes(config: &mut web::ServiceConfig) {
    let examples = several("/v1/learning/examples", "GET, POST");
    config.service(examples.route(read().to(export)).route(web::post().to(import)));
}

/// `GET /v1/learning/examples`: those of a set, in a shape that trainers read, the oldest first.
async fn export(
    app: web::Data<App>,
    request: HttpRequest,
    query: web::Query<HashMap<String, String>>,
) -> Result<HttpResponse, ApiError> {
    require_admin(&request)?;
    let (learning, ExportQuery { shape, sets }) = (learning(&app)?.clone(), ExportQuery::parse(&query)?);
    let job = move || learning.of_sets(&sets).map(|stored| jsonl::lines(&stored, shape).collect::<String>());
    let text = work(&app.turns.lanes, app.holder(&request), usize::MAX, false, job).await?;
    Ok(HttpResponse::Ok().content_type("application/jsonl").body(text.map_err(|e| store_error(&e))?))
}

/// `POST /v1/learning/examples`: lines in any of these shapes, all of them or none.
async fn import(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    require_admin(&request)?;
    let learning = learning(&app)?;
    let ReadExamples { examples, left_out } = parsed(&app, &request, payload, |body, _| lines(body)).await?;
    let account = Caller::of(&request).key;
    let brought = examples.into_iter().map(|example| (account, example)).collect();
    let outcomes = written(learning.add(brought)).await?;
    let count = |of: fn(&BroughtExample) -> bool| outcomes.iter().filter(|outcome| of(outcome)).count();
    Ok(HttpResponse::Ok().json(json!({
        "object": "learning.import",
        "new": count(|outcome| matches!(outcome, BroughtExample::New(..))),
        "merged": count(|outcome| matches!(outcome, BroughtExample::Merged(..))),
        "secrets": count(|outcome| *outcome == BroughtExample::Secret),
        "left_out": left_out,
    })))
}

fn lines(body: &[u8]) -> Result<ReadExamples, ApiError> {
    let text = std::str::from_utf8(body).map_err(|e| ApiError::invalid_body(format!("the body is no UTF-8: {e}")))?;
    jsonl::read(text, unix_seconds()).map_err(|e| ApiError::invalid("lines", e.to_string()))
}

//! `POST /v1/rerank`, also under the paths of other services: documents by how probably they answer a query.

use super::rerank::RerankBody;
use crate::http::app::App;
use crate::http::intake::bodies::{ParsedBody, SeenApp, take};
use crate::http::intake::caller::{cache_scope, turn_caller};
use crate::http::wire::error::ApiError;
use crate::http::wire::reply::RequestName;
use crate::turn::decisions::{Ranked, rerank};
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::{Value, json};

/// Answers with the documents' numbers, the most relevant first.
pub(super) async fn ranked(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let parse = |body: &[u8], app: &SeenApp<'_>| RerankBody::parse(body, &app.limits);
    let ParsedBody { asked, room: _room, .. } = take(&app, &request, payload, parse).await?;
    let RerankBody { request: mut wanted, cache, return_documents } = asked;
    wanted.cache = cache_scope(&request, &cache);
    let (ranked, cost) = rerank(&app.turns, &turn_caller(&app, &request)?, &wanted).await?;
    let result = |found: Ranked| {
        let mut shown = json!({"index": found.index, "relevance_score": found.relevance});
        if return_documents {
            shown["document"] = json!({"text": wanted.documents[found.index]});
        }
        shown
    };
    let results: Vec<Value> = ranked.into_iter().map(result).collect();
    let usage = json!({"prompt_tokens": cost.input_tokens, "total_tokens": cost.input_tokens});
    let id = format!("rerank-{}", RequestName::of(&request));
    Ok(HttpResponse::Ok().json(json!({"id": id, "model": app.limits.name, "results": results, "usage": usage})))
}

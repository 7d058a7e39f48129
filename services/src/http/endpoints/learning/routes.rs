//! What accounts do: say what they think of answers, see what is kept of that, and take it back.

use super::request::FeedbackRequest;
use super::{learning, store_error, written};
use crate::clock::unix_seconds;
use crate::http::app::App;
use crate::http::intake::bodies::parsed;
use crate::http::intake::caller::{consent, owner};
use crate::http::intake::page::limit_and_order;
use crate::http::wire::error::ApiError;
use crate::http::wire::routing::{only, read, several};
use crate::learning::{Artefact, BroughtExample, Consent, LearningService, StoredExample};
use crate::limits::{LEARNING_EXAMPLE_BYTES_MAX, LEARNING_PAGE, LEARNING_PAGE_MAX};
use crate::metrics::learning::count_feedback;
use crate::turn::prompts::work;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The things that belong to an account, as errors call them.
const OF: &str = "examples to learn from";

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(only("/v1/feedback", "POST", web::post().to(feedback)))
        .service(only("/v1/learning", "GET", read().to(state)))
        .service(several("/v1/learning/mine", "GET, DELETE").route(read().to(mine)).route(web::delete().to(forget_all)))
        .service(only("/v1/learning/mine/{id}", "DELETE", web::delete().to(forget_one)));
}

/// `GET /v1/learning`: whether anything is kept, and what of the caller's answers may be.
async fn state(app: web::Data<App>, request: HttpRequest) -> Result<HttpResponse, ApiError> {
    let said = match &app.learning {
        LearningService::Off => "off",
        LearningService::Failed(_) => "failed",
        LearningService::Open(_) => "open",
    };
    let days = app.learning.get().map(|learning| learning.settings().bounds.seconds / (24 * 3600));
    let learn = if days.is_some() { consent(&app, &request)? } else { Consent::Off };
    Ok(HttpResponse::Ok().json(json!({"object": "learning", "state": said, "learn": learn.name(), "days": days})))
}

/// `POST /v1/feedback`: what somebody thinks of an answer. It is on the disk when this answers.
async fn feedback(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let asked = parsed(&app, &request, payload, |body, _| FeedbackRequest::parse(body)).await?;
    let (learning, account) = (learning(&app)?, owner(&request, OF)?);
    if consent(&app, &request)? == Consent::Off {
        return Err(no_consent());
    }
    let given = learning.remembered(account, &asked.id).ok_or_else(|| no_such_answer(&asked.id))?;
    let rating = asked.feedback.rating.unwrap_or(-1);
    let example = given.with_feedback(account, asked.feedback, unix_seconds());
    count_feedback(rating);
    let outcome = written(learning.add(vec![(account, example)])).await?.pop();
    let told = match outcome {
        Some(BroughtExample::New(id, set)) => json!({"kept": true, "example": id, "set": set.name(), "merged": false}),
        Some(BroughtExample::Merged(id, set)) => {
            json!({"kept": true, "example": id, "set": set.name(), "merged": true})
        }
        Some(BroughtExample::Secret) | None => {
            json!({"kept": false, "why": "it has something that looks like a secret"})
        }
    };
    let mut reply = json!({"object": "feedback", "answer": asked.id, "rating": rating});
    merge(&mut reply, told);
    Ok(HttpResponse::Ok().json(reply))
}

fn merge(reply: &mut Value, more: Value) {
    if let (Value::Object(reply), Value::Object(more)) = (reply, more) {
        reply.extend(more);
    }
}

fn no_consent() -> ApiError {
    let message = "nothing is kept of this caller's answers: an operator allows it with learn=feedback on the key's \
                   line (without keys, with learning.learn), and a request can forbid it with x-chimere-learn: off";
    ApiError::new(StatusCode::FORBIDDEN, "permission_error", message).with_code("learn_off").rejected_as("admin")
}

fn no_such_answer(id: &str) -> ApiError {
    let shown: String = id.chars().take(64).collect();
    let message = format!(
        "no answer {shown:?} of this caller is remembered: only the latest ones are, until the service ends, of \
         requests with one choice and without store: false"
    );
    ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", message).with_code("answer_not_found")
}

/// `GET /v1/learning/mine`: a page of what the account brought, and what was trained on it. It is there for who has
/// taken the consent back too.
async fn mine(
    app: web::Data<App>,
    request: HttpRequest,
    query: web::Query<HashMap<String, String>>,
) -> Result<HttpResponse, ApiError> {
    let (learning, account, holder) = (learning(&app)?.clone(), owner(&request, OF)?, app.holder(&request));
    let (limit, newest_first) = limit_and_order(&query, (LEARNING_PAGE, LEARNING_PAGE_MAX))?;
    let (learn, after) = (consent(&app, &request)?, query.get("after").cloned());
    let job = move || {
        let (mut own, artefacts) = (learning.of_account(account)?, learning.artefacts()?);
        if newest_first {
            own.reverse();
        }
        let start = after.and_then(|after| own.iter().position(|stored| stored.id == after)).map_or(0, |at| at + 1);
        let more = own.len() > start + limit;
        let page = own.iter().skip(start).take(limit);
        let data: Vec<Value> = page.map(|stored| shown(stored, &artefacts)).collect();
        let trained = artefacts.iter().filter(|(_, artefact)| artefact.is_of(account));
        let trained: Vec<Value> = trained.map(|(name, artefact)| artefact_shown(name, artefact)).collect();
        let days = learning.settings().bounds.seconds / (24 * 3600);
        Ok(json!({"object": "list", "learn": learn.name(), "days": days, "total": own.len(), "data": data,
            "has_more": more, "artefacts": trained}))
    };
    let page = work(&app.turns.lanes, holder, LEARNING_EXAMPLE_BYTES_MAX, false, job).await?;
    Ok(HttpResponse::Ok().json(page.map_err(|e| store_error(&e))?))
}

/// An example as its account sees it: who else brought it is not told.
fn shown(stored: &StoredExample, artefacts: &[(String, Artefact)]) -> Value {
    let trained = artefacts.iter().filter(|(_, artefact)| artefact.examples.contains_key(&stored.id));
    let trained: Vec<&str> = trained.map(|(name, _)| name.as_str()).collect();
    let mut shown = json!({"object": "learning.example", "id": stored.id, "artefacts": trained});
    merge(&mut shown, serde_json::to_value(&stored.example).unwrap_or_default());
    shown["learned_from"] = (stored.example.is_evidence() && stored.example.set.trains()).into();
    shown
}

fn artefact_shown(name: &str, artefact: &Artefact) -> Value {
    json!({"object": "learning.artefact", "name": name, "at": artefact.at, "stale": artefact.stale.is_some()})
}

/// `DELETE /v1/learning/mine`: all that the account brought, also what is only remembered.
async fn forget_all(app: web::Data<App>, request: HttpRequest) -> Result<HttpResponse, ApiError> {
    forget(&app, &request, None).await
}

/// `DELETE /v1/learning/mine/{id}`: one example of it.
async fn forget_one(
    app: web::Data<App>,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    forget(&app, &request, Some(id.into_inner())).await
}

/// The examples are gone from the disk when this answers.
async fn forget(app: &App, request: &HttpRequest, id: Option<String>) -> Result<HttpResponse, ApiError> {
    let (learning, account) = (learning(app)?, owner(request, OF)?);
    let gone = written(learning.forget(account, id.clone())).await?;
    if let Some(id) = id.filter(|_| gone.examples == 0 && gone.stale.is_empty()) {
        return Err(ApiError::unknown_name("example", &id, "example_not_found"));
    }
    let reply = json!({"object": "learning.deleted", "deleted": gone.examples, "stale": gone.stale});
    Ok(HttpResponse::Ok().json(reply))
}

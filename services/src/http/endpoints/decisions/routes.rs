//! `POST /v1/decisions`: how probable each option of each question is.

use super::ranking::ranked;
use super::request::DecisionBody;
use crate::decide::{Decision, DecisionQuestion, OptionValue, confidence};
use crate::http::app::App;
use crate::http::intake::bodies::{ParsedBody, SeenApp, take};
use crate::http::intake::caller::{cache_scope, turn_caller};
use crate::http::wire::error::ApiError;
use crate::http::wire::routing::only;
use crate::turn::decisions::{Cost, decide};
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::{Value, json};

/// Decisions, and rankings by the paths that clients of other services know.
pub(in crate::http::endpoints) fn routes(config: &mut web::ServiceConfig) {
    config.service(only("/v1/decisions", "POST", web::post().to(decisions)));
    for path in ["/v1/rerank", "/v2/rerank", "/rerank"] {
        config.service(only(path, "POST", web::post().to(ranked)));
    }
}

/// Answers every question about the input.
async fn decisions(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let parse = |body: &[u8], app: &SeenApp<'_>| DecisionBody::parse(body, &app.limits);
    let ParsedBody { asked, room: _room, .. } = take(&app, &request, payload, parse).await?;
    let DecisionBody { request: mut wanted, cache } = asked;
    wanted.cache = cache_scope(&request, &cache);
    let questions = wanted.questions.clone();
    let decided = decide(&app.turns, &turn_caller(&app, &request)?, wanted).await?;
    let answers: Vec<Value> = questions.iter().zip(&decided.answers).map(|(q, a)| shown(q, a)).collect();
    Ok(HttpResponse::Ok().json(json!({"answers": answers, "model": app.limits.name, "usage": usage(decided.cost)})))
}

/// The answer to a question as clients read it.
pub(in crate::http::endpoints) fn shown(question: &DecisionQuestion, answer: &Decision) -> Value {
    let (name, kind) = (&question.name, question.kind.name());
    match answer {
        Decision::Predicate { probability } => json!({"type": kind, "name": name, "probability": probability}),
        Decision::Choice { choice, probabilities } => {
            let of = |(at, p): (usize, &f64)| json!({"value": value(question, at), "probability": p});
            let all: Vec<Value> = probabilities.iter().enumerate().map(of).collect();
            let choice = value(question, *choice);
            let sure = confidence(probabilities);
            json!({"type": kind, "name": name, "choice": choice, "confidence": sure, "probabilities": all})
        }
        Decision::Score { score, probabilities } => {
            let of = |(at, p): (usize, &f64)| json!({"label": value(question, at), "value": at, "probability": p});
            let all: Vec<Value> = probabilities.iter().enumerate().map(of).collect();
            let sure = confidence(probabilities);
            json!({"type": kind, "name": name, "score": score, "confidence": sure, "probabilities": all})
        }
    }
}

fn value(question: &DecisionQuestion, option: usize) -> Value {
    match &question.options[option].value {
        OptionValue::Text(text) => json!(text),
        OptionValue::Flag(flag) => json!(flag),
    }
}

fn usage(Cost { input_tokens, cached_tokens }: Cost) -> Value {
    json!({
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached_tokens, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input_tokens,
    })
}

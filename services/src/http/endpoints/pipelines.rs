//! `GET /v1/pipelines`: what an operator's files hold, and what is wrong with them.

use crate::http::app::App;
use crate::http::wire::routing::{only, read};
use crate::pipelines::{NamedPipeline, PipelineEntry, PipelineStep, StepKind};
use actix_web::{HttpResponse, web};
use serde_json::{Value, json};

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config.service(only("/v1/pipelines", "GET", read().to(list)));
}

async fn list(app: web::Data<App>) -> HttpResponse {
    let data: Vec<Value> = app.limits.pipelines.entries().iter().map(entry).collect();
    HttpResponse::Ok().json(json!({"object": "list", "data": data}))
}

fn entry(entry: &PipelineEntry) -> Value {
    let mut json = entry.pipeline.as_ref().map_or_else(|| json!({}), |pipeline| shown(pipeline));
    json["object"] = "pipeline".into();
    json["id"] = entry.name.clone().into();
    json["served"] = entry.pipeline.is_some().into();
    json["error"] = entry.error.clone().into();
    json
}

fn shown(pipeline: &NamedPipeline) -> Value {
    let budget = pipeline.budget;
    json!({
        "description": pipeline.description,
        "experimental": pipeline.experimental,
        "budget": {"tokens": budget.tokens, "milliseconds": budget.time.map(|time| time.as_millis() as u64)},
        "steps": row(&pipeline.steps),
    })
}

fn row(steps: &[PipelineStep]) -> Vec<Value> {
    let one = |PipelineStep { name, kind }: &PipelineStep| {
        let mut json = json!({"step": kind.name(), "name": &**name});
        if let StepKind::When { then, otherwise, .. } = kind {
            (json["then"], json["else"]) = (row(then).into(), row(otherwise).into());
        }
        json
    };
    steps.iter().map(one).collect()
}

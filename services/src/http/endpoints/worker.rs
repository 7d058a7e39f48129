//! What routers in front of several services ask of each: how much it has to do, what it is, whether it is awake; and
//! to give up what it keeps of prompts. The names are SGLang's and vLLM's.

use crate::clock::{rfc3339, unix_seconds};
use crate::http::app::App;
use crate::http::edge::keys::auth::require_admin;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::unavailable;
use crate::http::wire::routing::{only, read};
use actix_web::{HttpRequest, HttpResponse, web};
use chimere_engine::PAGE_TOKENS;
use chimere_engine::scheduler::Stats;
use serde_json::{Value, json};

/// Parts of a load that may be asked for. `core` is always there; of those that follow `memory` there is nothing here.
const SECTIONS: [&str; 7] = ["all", "core", "queues", "memory", "disagg", "spec", "lora"];

/// What routers ask of a worker.
pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(only("/v1/loads", "GET", read().to(loads)))
        .service(only("/server_info", "GET", read().to(server_info)))
        .service(only("/get_server_info", "GET", read().to(server_info)))
        .service(only("/is_sleeping", "GET", read().to(is_sleeping)))
        .service(only("/flush_cache", "POST", web::post().to(flush_cache)));
}

/// `GET /v1/loads?include=core,queues`: what the one engine has to do, in SGLang's words.
async fn loads(app: web::Data<App>, request: HttpRequest) -> Result<HttpResponse, ApiError> {
    let query = web::Query::<Vec<(String, String)>>::from_query(request.query_string());
    let query = query.map_err(|e| ApiError::invalid_body(format!("the query cannot be read: {e}")))?;
    let included = query.iter().filter(|(name, _)| name == "include").flat_map(|(_, list)| list.split(','));
    let included: Vec<&str> = included.map(str::trim).filter(|name| !name.is_empty()).collect();
    if let Some(name) = included.iter().find(|name| !SECTIONS.contains(name)) {
        let (shown, known) = (name.chars().take(40).collect::<String>(), SECTIONS.join(", "));
        return Err(ApiError::invalid("include", format!("`include` may have {known}, got {shown:?}")));
    }
    let (has, now) = (|name| included.contains(&name) || included.contains(&"all"), unix_seconds());
    let mut load = core(&app);
    let stats = app.turns.handles.gateway.load().now;
    if has("queues") {
        load["queues"] = queues(&stats);
    }
    if has("memory") {
        load["memory"] = json!({"token_capacity": tokens(stats.pages_used + stats.pages_free)});
    }
    Ok(HttpResponse::Ok().json(json!({
        "timestamp": rfc3339(now),
        "version": env!("CARGO_PKG_VERSION"),
        "dp_rank_count": 1,
        "loads": [load],
    })))
}

fn core(app: &App) -> Value {
    let (load, slots) = (app.turns.handles.gateway.load(), app.slots);
    let stats = load.now;
    let (used, all) = (tokens(stats.pages_used), tokens(stats.pages_used + stats.pages_free));
    json!({
        "dp_rank": 0,
        "num_running_reqs": stats.requests_running,
        "num_waiting_reqs": stats.requests_waiting,
        "num_waiting_uncached_tokens": stats.prompt_tokens_waiting,
        "num_total_reqs": stats.requests_running + stats.requests_waiting,
        "num_used_tokens": used,
        "max_total_num_tokens": all,
        "token_usage": used as f64 / all.max(1) as f64,
        "gen_throughput": app.turns.handles.gateway.tokens_a_second(),
        "cache_hit_rate": load.hit_rate(),
        "utilization": load.usage(),
        "max_running_requests": slots,
    })
}

fn queues(stats: &Stats) -> Value {
    let preempted = stats.requests_waiting.saturating_sub(stats.requests_new);
    json!({"waiting": stats.requests_new, "grammar": 0, "paused": 0, "retracted": preempted})
}

fn tokens(pages: u32) -> u64 {
    u64::from(pages) * u64::from(PAGE_TOKENS)
}

/// `GET /server_info`: what a router has to know of a worker, under SGLang's names.
async fn server_info(app: web::Data<App>) -> HttpResponse {
    let stats = app.turns.handles.gateway.load().now;
    let name = &app.limits.name;
    HttpResponse::Ok().json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "model_path": name,
        "served_model_name": name,
        "context_length": app.turns.handles.context,
        "max_total_num_tokens": tokens(stats.pages_used + stats.pages_free),
        "max_running_requests": app.slots,
        "page_size": PAGE_TOKENS,
        "dp_size": 1,
        "tp_size": 1,
    }))
}

/// `GET /is_sleeping`: the engine never does.
async fn is_sleeping() -> HttpResponse {
    HttpResponse::Ok().json(json!({"is_sleeping": false}))
}

/// `POST /flush_cache`: gives up what is kept of prompts, but for what somebody is about to go on from.
async fn flush_cache(app: web::Data<App>, request: HttpRequest) -> Result<HttpResponse, ApiError> {
    require_admin(&request)?;
    let flushed = app.turns.handles.dispatcher.flush().await;
    let flushed = flushed.ok_or_else(|| unavailable("there is no engine any more", "engine_unavailable"))?;
    Ok(HttpResponse::Ok().json(json!({"success": true, "flushed": flushed.flushed, "kept": flushed.kept})))
}

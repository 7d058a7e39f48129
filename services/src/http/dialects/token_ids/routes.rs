//! `POST /inference/v1/generate`, and the ids that chat would read.

use super::answer::TokenIds;
use super::request::TokenIdsRequest;
use crate::http::app::App;
use crate::http::intake::bodies::{ParsedBody, SeenApp, take};
use crate::http::intake::written::written;
use crate::http::reply::converse::{go_on_from, prompt_of_chat};
use crate::http::reply::tokens::rendered;
use crate::http::wire::error::ApiError;
use crate::http::wire::reply::RequestName;
use crate::http::wire::routing::only;
use crate::turn::options::ChatRequest;
use actix_web::{HttpRequest, HttpResponse, web};

/// The paths of token ids, but for that of completions, which stands beside their parser.
pub(in crate::http::dialects) fn routes(config: &mut web::ServiceConfig) {
    config.service(only("/inference/v1/generate", "POST", web::post().to(generate))).service(only(
        "/v1/chat/completions/render",
        "POST",
        web::post().to(render_chat),
    ));
}

/// Goes on from ids, with ids.
async fn generate(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let parse = |body: &[u8], app: &SeenApp<'_>| TokenIdsRequest::parse(body, &app.limits);
    let ParsedBody { asked: TokenIdsRequest { generation, prompt, request_id }, room, .. } =
        take(&app, &request, payload, parse).await?;
    let spec = &generation.spec.engine;
    let stops = spec.end_ids.iter().copied().filter(|id| !app.limits.end_ids.contains(id)).collect();
    let shape = TokenIds { request_id, logprobs: spec.sampling.logprobs.is_some(), stops };
    let answer = go_on_from(&app, &request, (vec![prompt.into()], generation, room), shape, "gen-").await;
    answer.map_err(|error| error.renamed(&[("`prompt`", "`token_ids`")]))
}

/// The ids behind which the answer of a conversation would begin.
async fn render_chat(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let parse = |body: &[u8], app: &SeenApp<'_>| ChatRequest::parse(body, &app.limits);
    let ParsedBody { asked, bytes, room: _room } = take(&app, &request, payload, parse).await?;
    let prompt = prompt_of_chat(&app, &request, (asked, bytes)).await?;
    let (name, model) = (RequestName::of(&request), app.limits.name.clone());
    let write = move || serde_json::to_vec(&rendered(&name, &model, &prompt.ids));
    written(&app, app.holder(&request), bytes, write).await
}

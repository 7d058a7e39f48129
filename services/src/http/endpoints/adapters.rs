//! `/v1/load_lora_adapter` and `/v1/unload_lora_adapter`, which vLLM has: an administrator has an adapter of the
//! operator's directory served, or no longer served, while the service runs.

use crate::adapters::AdapterError;
use crate::http::app::App;
use crate::http::body::fields::{Fields, missing};
use crate::http::edge::keys::auth::require_admin;
use crate::http::intake::bodies::parsed;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::busy;
use crate::http::wire::routing::only;
use crate::turn::decisions::adapter_probe::probe;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config.service(only("/v1/load_lora_adapter", "POST", web::post().to(load))).service(only(
        "/v1/unload_lora_adapter",
        "POST",
        web::post().to(unload),
    ));
}

/// A body of either call.
struct AdapterCall {
    name: String,
    /// The file in the directory, or its path.
    file: Option<String>,
}

impl AdapterCall {
    fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let name = fields.string("lora_name")?.ok_or_else(|| missing("lora_name", "the adapter's name"))?;
        let file = fields.string("lora_path")?;
        fields.refuse("load_inplace", "is not supported: unload the adapter first")?;
        fields.ignore_rest();
        Ok(Self { name, file })
    }
}

/// `POST /v1/load_lora_adapter`: reads the adapter on a thread of long texts, and asks the model about it.
async fn load(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    require_admin(&request)?;
    let asked = parsed(&app, &request, payload, |body, _| AdapterCall::parse(body)).await?;
    let AdapterCall { name, file } = asked;
    let (adapters, own) = (app.limits.adapters.clone(), name.clone());
    let read = move || adapters.read(&own, file.as_deref());
    let holder = app.holder(&request);
    let read = app.turns.lanes.for_bytes(usize::MAX).run(holder, read).await.map_err(busy)?.map_err(refusal)?;
    let probed = probe(&app.turns, &read.adapter, app.limits.adapters.kl_max()).await;
    probed.map_err(|error| ApiError::invalid("lora_path", format!("the adapter {name:?} is refused: {error}")))?;
    app.limits.adapters.keep(read).map_err(refusal)?;
    Ok(HttpResponse::Ok().body(format!("Success: LoRA adapter '{name}' added successfully.")))
}

/// `POST /v1/unload_lora_adapter`: requests that have the adapter keep it.
async fn unload(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    require_admin(&request)?;
    let AdapterCall { name, .. } = parsed(&app, &request, payload, |body, _| AdapterCall::parse(body)).await?;
    app.limits.adapters.unload(&name).map_err(refusal)?;
    tracing::info!(adapter = name, "unloaded");
    Ok(HttpResponse::Ok().body(format!("Success: LoRA adapter '{name}' removed successfully.")))
}

fn refusal(error: AdapterError) -> ApiError {
    let message = error.to_string();
    match error {
        AdapterError::BadName(_) | AdapterError::Taken(..) | AdapterError::TooMany => {
            ApiError::invalid("lora_name", message)
        }
        AdapterError::Refused(_) | AdapterError::NoRoom { .. } => ApiError::invalid("lora_path", message),
        AdapterError::NoDirectory => ApiError::new(StatusCode::CONFLICT, "invalid_request_error", message),
        AdapterError::NoFile(_) => not_found("lora_path", message),
        AdapterError::NotLoaded(_) => not_found("lora_name", message),
    }
}

fn not_found(field: &str, message: String) -> ApiError {
    let error = ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", message).with_code("adapter_not_found");
    ApiError { param: Some(field.into()), ..error }
}

//! What every handler reaches: one value, shared by all HTTP threads.

use super::auth::Keys;
use super::error::ApiError;
use super::generate::count_rejected;
use super::request::ModelLimits;
use crate::actors::live::Live;
use crate::actors::phase::Phase;
use crate::actors::request::Around;
use crate::limits;
use crate::text::{TextModel, TextPool};
use actix_rt::time::timeout;
use actix_web::http::StatusCode;
use actix_web::web::{Bytes, Payload};
use futures_util::StreamExt;
use metrics_exporter_prometheus::PrometheusHandle;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// The service as the handlers see it.
pub struct App {
    /// What requests are checked against.
    pub limits: ModelLimits,
    /// Tokenizer and template.
    pub text: Arc<TextModel>,
    /// Threads for long prompts.
    pub pool: TextPool,
    /// What a request actor needs.
    pub around: Around,
    /// Where the service stands.
    pub phase: watch::Receiver<Phase>,
    /// Requests that are not answered yet.
    pub live: Live,
    /// Who may come in.
    pub keys: Keys,
    /// Renders the metrics.
    pub recorder: PrometheusHandle,
    /// Bytes of a request body.
    pub body_bytes_max: usize,
    /// Silence after which a stream gets a comment.
    pub keep_alive: Duration,
    /// Changes when the same request may give other bytes.
    pub fingerprint: Arc<str>,
    /// When the service started, in seconds since 1970.
    pub created: u64,
}

impl App {
    /// Nothing new is taken after the end has begun.
    pub fn check_open(&self) -> Result<(), ApiError> {
        let (message, code) = match &*self.phase.borrow() {
            Phase::Starting | Phase::Ready => return Ok(()),
            Phase::Draining | Phase::Drained => ("the service is shutting down", "shutting_down"),
            Phase::Lost(_) => ("the engine is lost", "engine_unavailable"),
        };
        count_rejected(if code == "shutting_down" { "draining" } else { "engine_lost" });
        Err(unavailable(message, code))
    }

    /// The whole body, if it keeps to the limits in bytes and in time.
    pub async fn body(&self, payload: Payload, announced: Option<usize>) -> Result<Bytes, ApiError> {
        let seconds = limits::BODY_SECONDS;
        let late = |_| {
            let message = format!("the body took more than {seconds} s to arrive");
            ApiError::new(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", message).with_code("body_too_slow")
        };
        timeout(Duration::from_secs(seconds), self.whole_body(payload, announced)).await.map_err(late)?
    }

    async fn whole_body(&self, mut payload: Payload, announced: Option<usize>) -> Result<Bytes, ApiError> {
        let max = self.body_bytes_max;
        let too_large = || {
            let message = format!("the body is larger than {max} bytes, the most that is taken");
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message).with_code("body_too_large")
        };
        if announced.is_some_and(|n| n > max) {
            return Err(too_large());
        }
        let mut body = bytes::BytesMut::new();
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|e| ApiError::invalid_body(format!("the body broke off: {e}")))?;
            if body.len() + chunk.len() > max {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }
}

/// 503 with a reason.
pub fn unavailable(message: &str, code: &'static str) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message).with_code(code)
}

/// Seconds since 1970.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

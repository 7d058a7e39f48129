//! What every handler reaches: one value, shared by all HTTP threads.

use super::encoding::Coding;
use super::error::ApiError;
use super::grammar::GrammarMaker;
use super::origin::Origins;
use super::rendered::Rendered;
use super::request::{Generation, ModelLimits};
use super::ring::Ring;
use super::shares::{Room, Share};
use super::wrong_keys::WrongKeys;
use crate::actors::live::LiveRequests;
use crate::actors::phase::{ENGINE_LOST, Phase, SHUTTING_DOWN};
use crate::actors::request::ServiceHandles;
use crate::actors::step_log::StepLog;
use crate::audit::Audit;
use crate::engram::EngramParts;
use crate::holder::Holder;
use crate::responses::ResponseStore;
use crate::semantic::Collections;
use crate::text::{Lanes, TextModel};
use crate::traces::Traces;
use actix_rt::time::timeout;
use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Bytes, Payload};
use futures_util::StreamExt;
use metrics_exporter_prometheus::PrometheusHandle;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;

/// Code of a refusal for want of room for the body, whose rest nobody reads.
pub(super) const BODIES_FULL: &str = "bodies_full";
/// How soon there should be room for a body: most are read within that.
const BODIES_RETRY: Duration = Duration::from_secs(1);

/// A request's body. Its bytes count among those in flight until it is dropped, so handlers drop it when they have read
/// it.
pub struct Body {
    bytes: Bytes,
    _share: Option<Share>,
}

impl std::ops::Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The service as the handlers see it.
pub struct App {
    /// What requests are checked against.
    pub limits: ModelLimits,
    /// Tokenizer and template.
    pub text: Arc<TextModel>,
    /// Tables that requests can name.
    pub engram: EngramParts,
    /// What accounts keep to find it by its meaning.
    pub collections: Arc<Collections>,
    /// What accounts keep of their conversations.
    pub responses: ResponseStore,
    /// Threads for long prompts.
    pub lanes: Lanes,
    /// What answers have to look like.
    pub grammars: GrammarMaker,
    /// What a request actor needs.
    pub handles: ServiceHandles,
    /// Where the service stands.
    pub phase: watch::Receiver<Phase>,
    /// Requests that are not answered yet.
    pub live: LiveRequests,
    /// Who may come in.
    pub keys: Arc<Ring>,
    /// How long whoever brings keys that are not known has to wait.
    pub wrong_keys: WrongKeys,
    /// From where pages may call, and by which names.
    pub origins: Origins,
    /// Addresses that many come from.
    pub proxies: Vec<std::net::IpAddr>,
    /// The log of who changed what.
    pub audit: Audit,
    /// A gateway says whose a request is.
    pub trust_gateway: bool,
    /// Log what is asked.
    pub log_prompts: bool,
    /// Where traces go.
    pub traces: Traces,
    /// How long a body may take to arrive.
    pub body_time: Duration,
    /// The web console is served.
    pub console: bool,
    /// Sequences that may run at once.
    pub slots: u32,
    /// What the scheduler does, for who looks.
    pub step_log: Arc<StepLog>,
    /// Renders the metrics, if they are kept.
    pub recorder: Option<PrometheusHandle>,
    /// What it rendered last.
    pub rendered: Rendered,
    /// `/openapi.json`, once somebody has asked for it.
    pub openapi: OnceLock<Bytes>,
    /// Bytes of a request body.
    pub body_bytes_max: usize,
    /// Bytes that all bodies in flight may take together.
    pub bodies: Arc<Room>,
    /// Bytes that all bodies which were taken apart may take until they are prompts.
    pub parsed: Arc<Room>,
    /// Bytes that all large whole replies may take until they are read.
    pub replies: Arc<Room>,
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
        let (message, code, reason) = match &*self.phase.borrow() {
            Phase::Starting | Phase::Ready => return Ok(()),
            Phase::Draining | Phase::Drained => (SHUTTING_DOWN, "shutting_down", "draining"),
            Phase::Lost(_) => (ENGINE_LOST, "engine_unavailable", "engine_lost"),
        };
        Err(unavailable(message, code).rejected_as(reason))
    }

    /// On whose account a request takes of what is shared.
    pub(super) fn holder(&self, request: &HttpRequest) -> Holder {
        Holder::of(request, &self.proxies)
    }

    /// The most tokens of a prompt that leave room for the output that is asked for.
    pub fn room(&self, generation: &Generation) -> usize {
        let output = u32::from(generation.spec.engine.max_tokens != Some(0));
        self.handles.context.saturating_sub(output) as usize
    }

    /// The whole body as it came, if it keeps to the limits in bytes and in time.
    pub async fn body(&self, payload: Payload, request: &HttpRequest, holder: Holder) -> Result<Body, ApiError> {
        let seconds = self.body_time.as_secs_f32();
        let late = |_| {
            let message = format!("the body took more than {seconds} s to arrive");
            ApiError::new(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", message)
                .with_code("body_too_slow")
                .rejected_as("body_too_slow")
        };
        let body = self.whole_body(payload, super::intake::announced(request.headers()), holder);
        timeout(self.body_time, body).await.map_err(late)?
    }

    /// A body as it was before it was compressed. Its bytes count as they come out, so a small one that becomes huge is
    /// refused as soon as it has, and never takes more memory than any other. That takes as long as parsing does.
    pub(super) fn decoded(&self, body: Body, coding: Coding, holder: Holder) -> Result<Body, ApiError> {
        if coding == Coding::Identity {
            return Ok(body);
        }
        let (max, mut plain, mut share) = (self.body_bytes_max, bytes::BytesMut::new(), None);
        coding.decode(&body, |piece| {
            if plain.len() + piece.len() > max {
                return Err(too_large("decodes to more than", max));
            }
            self.grow(&mut share, holder, piece.len())?;
            plain.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(Body { bytes: plain.freeze(), _share: share })
    }

    async fn whole_body(
        &self,
        mut payload: Payload,
        announced: Option<usize>,
        holder: Holder,
    ) -> Result<Body, ApiError> {
        let max = self.body_bytes_max;
        if announced.is_some_and(|n| n > max) {
            return Err(too_large("is larger than", max));
        }
        let mut body = bytes::BytesMut::new();
        let mut share: Option<Share> = None;
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|e| ApiError::invalid_body(format!("the body broke off: {e}")))?;
            if body.len() + chunk.len() > max {
                return Err(too_large("is larger than", max));
            }
            // Taken as bytes arrive: what a head announces takes nothing, or a few heads could keep everybody out.
            self.grow(&mut share, holder, chunk.len())?;
            body.extend_from_slice(&chunk);
        }
        Ok(Body { bytes: body.freeze(), _share: share })
    }

    /// Room for this many bytes more among those of all bodies in flight.
    fn grow(&self, share: &mut Option<Share>, holder: Holder, bytes: usize) -> Result<(), ApiError> {
        let taken = match share {
            Some(share) => share.grow(bytes),
            None => {
                *share = self.bodies.take(holder, bytes);
                share.is_some()
            }
        };
        if taken { Ok(()) } else { Err(self.no_room()) }
    }

    /// Says what there is for all, and nothing of who has it.
    fn no_room(&self) -> ApiError {
        let total = self.bodies.total();
        let message = format!("there is no room for this body now: the bodies of all requests share {total} bytes");
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message).with_code(BODIES_FULL);
        error.with_retry_after(BODIES_RETRY).rejected_as(BODIES_FULL)
    }
}

fn too_large(how: &str, max: usize) -> ApiError {
    let message = format!("the body {how} {max} bytes, the most that is taken");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
        .with_code("body_too_large")
        .rejected_as("body_too_large")
}

/// 503 with a reason.
pub fn unavailable(message: &str, code: &'static str) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message).with_code(code)
}

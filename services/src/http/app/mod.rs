//! What every handler reaches: one value, shared by all HTTP threads.

mod grammar;
mod rendered;

pub use grammar::GrammarMaker;

use crate::actors::live::LiveRequests;
use crate::actors::phase::{ENGINE_LOST, Phase, SHUTTING_DOWN};
use crate::actors::request::ServiceHandles;
use crate::actors::step_log::StepLog;
use crate::engram::EngramParts;
use crate::holder::Holder;
use crate::http::body::generation::Generation;
use crate::http::body::model::ModelLimits;
use crate::http::edge::arrival::Bodies;
use crate::http::edge::gate::Gatekeeper;
use crate::http::edge::shares::Room;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::unavailable;
use crate::responses::ResponseStore;
use crate::semantic::Collections;
use crate::text::{Lanes, TextModel};
use crate::traces::Traces;
use actix_web::HttpRequest;
use actix_web::web::{Bytes, Data};
use metrics_exporter_prometheus::PrometheusHandle;
use rendered::Rendered;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;

/// The service as the handlers see it.
pub struct App {
    /// What requests are checked against.
    pub limits: ModelLimits,
    /// The model's tokenizer and its chat template.
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
    /// Who is let in.
    pub gate: Data<Gatekeeper>,
    /// Log what is asked.
    pub log_prompts: bool,
    /// Where the traces of requests are sent.
    pub traces: Traces,
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
    /// Within which bounds bodies arrive.
    pub bodies: Bodies,
    /// Bytes that all bodies which were taken apart may take until they are prompts.
    pub parsed: Arc<Room>,
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
    pub(in crate::http) fn holder(&self, request: &HttpRequest) -> Holder {
        self.gate.holder(request)
    }

    /// The most tokens of a prompt that leave room for the output that is asked for.
    pub fn room(&self, generation: &Generation) -> usize {
        let output = u32::from(generation.spec.engine.max_tokens != Some(0));
        self.handles.context.saturating_sub(output) as usize
    }
}

//! What every handler reaches: one value, shared by all HTTP threads.

mod rendered;

use crate::actors::phase::Phases;
use crate::actors::scheduler::step_log::StepLog;
use crate::holder::Holder;
use crate::http::body::model::ModelLimits;
use crate::http::edge::arrival::Bodies;
use crate::http::edge::gate::Gatekeeper;
use crate::http::edge::shares::Room;
use crate::http::edge::sockets::Sockets;
use crate::learning::LearningService;
use crate::responses::ResponseStore;
use crate::traces::Traces;
use crate::turn::TurnServices;
use actix_web::HttpRequest;
use actix_web::web::{Bytes, Data};
use metrics_exporter_prometheus::PrometheusHandle;
use rendered::Rendered;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The service as the handlers see it.
pub struct App {
    /// What requests are checked against.
    pub limits: ModelLimits,
    /// The parts of the service that turns use.
    pub turns: Arc<TurnServices>,
    /// What accounts keep of their conversations.
    pub responses: ResponseStore,
    /// Where each replica stands.
    pub phases: Phases,
    /// Replicas that have to live for the service to call itself ready.
    pub ready_replicas: usize,
    /// What is kept of answers that people rate and correct.
    pub learning: LearningService,
    /// Who is let in.
    pub gate: Data<Gatekeeper>,
    /// Where the traces of requests are sent.
    pub traces: Traces,
    /// The web console is served.
    pub console: bool,
    /// The Model Context Protocol is served.
    pub mcp: bool,
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
    /// Within which bounds sockets are served.
    pub sockets: Sockets,
    /// Files that may be arriving at once.
    pub uploads: Arc<Room>,
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
    /// On whose account a request takes of what is shared.
    pub(in crate::http) fn holder(&self, request: &HttpRequest) -> Holder {
        self.gate.holder(request)
    }
}

//! The running service: actors, threads and the HTTP server, started together and ended together. Where the model comes
//! from and what a signal means is not here.

use crate::actors::deferred_rules::DeferredRules;
use crate::actors::live::LiveRequests;
use crate::actors::messages::{RequestEvent, Submit};
use crate::actors::phase::Phase;
use crate::actors::request::ServiceHandles;
use crate::actors::scheduler::SchedulerActor;
use crate::actors::scheduler::step_log::StepLog;
use crate::actors::telemetry::TelemetryActor;
use crate::actors::watchdog::StepLimits;
use crate::adapters::LoadedAdapter;
use crate::audit::Audit;
use crate::clock::{Clock, unix_seconds};
use crate::decide::DecideSettings;
use crate::documents::Documents;
use crate::embedder::Embedder;
use crate::engram::{EngramParts, Keeper, Store, Tables, Teacher};
use crate::events::{EventSink, Publisher};
use crate::hosted::Toolbox;
use crate::http::app::App;
use crate::http::edge::{Bodies, Edge, Gatekeeper, KeyFile, Origins, Room, Sockets};
use crate::http::request::ModelLimits;
use crate::http::server::{probes, server};
use crate::http::{keep_learning, restore};
use crate::learning::LearningService;
use crate::metrics::gateway::Gateway;
use crate::replicas::{ReplicaBuild, ReplicaSettings, Replicas, ReplicasParts, SchedulerSettings};
use crate::responses::ResponseStore;
use crate::semantic::Collections;
use crate::text::{Fingerprint, Lanes, TextModel};
use crate::traces::Traces;
use crate::turn::decisions::adapter_probe::probe;
use crate::turn::{GrammarMaker, TurnServices, keep_stores, keep_tested};
use crate::web::Web;
use crate::{limits, metrics};
use actix::{Actor, Addr};
use actix_web::dev::ServerHandle;
use actix_web::web;
use chimere_engine::backend::BackendInfo;
use chimere_engine::engram::Strengths;
use chimere_engine::scheduler::{DraftSettings, Event, Pace, Request, SchedulerConfig, Spec, Terms};
use metrics_exporter_prometheus::PrometheusHandle;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// How long the last bytes of replies may take to reach their clients when the service ends.
const FLUSH: Duration = Duration::from_secs(2);

/// What a service is made of.
pub struct ServiceParts {
    /// A socket that is bound already.
    pub listener: TcpListener,
    /// How many threads serve HTTP.
    pub workers: usize,
    /// Connections open at once.
    pub connections: usize,
    /// Make the backends, one for each replica, each on its own thread.
    pub builds: Vec<ReplicaBuild>,
    /// What NVML knows the GPUs by that compute.
    pub gpus: Vec<String>,
    /// What is drafted, as far as the backend takes drafts.
    pub drafts: DraftSettings,
    /// The tokenizer and the chat template of the model.
    pub text: TextModel,
    /// What requests are checked against.
    pub limits: ModelLimits,
    /// Who may come in.
    pub keys: Arc<KeyFile>,
    /// The log of who changed what.
    pub audit: Audit,
    /// Tables that requests can name.
    pub tables: Arc<Tables>,
    /// What accounts keep to find it by its meaning.
    pub collections: Collections,
    /// What accounts keep of documents.
    pub documents: Documents,
    /// Tools of the MCP servers that the operator names.
    pub tools: Toolbox,
    /// The web, as far as it is offered.
    pub web: Web,
    /// Maker of their vectors.
    pub embedder: Embedder,
    /// How questions with given options are decided.
    pub decide: DecideSettings,
    /// What accounts keep of their conversations.
    pub responses: ResponseStore,
    /// What is kept of answers that people rate and correct.
    pub learning: LearningService,
    /// What tables learn is at least this good, 0 to 1.
    pub learn_quality_min: f64,
    /// How far matches are believed where no strength is given.
    pub strengths: Arc<Strengths>,
    /// How often their directory is looked at; zero for never.
    pub tables_period: Duration,
    /// Threads that share large batches of lookups.
    pub lookup_threads: usize,
    /// Bytes of one body, and of all bodies together, until they are taken apart.
    pub body_bytes: (usize, usize),
    /// How clients are met.
    pub edge: Edge,
    /// Log what is asked.
    pub log_prompts: bool,
    /// What time it is.
    pub clock: Clock,
    /// A gateway says whose a request is.
    pub trust_gateway: bool,
    /// Silence after which a stream gets a comment.
    pub keep_alive: Duration,
    /// Replicas that have to live for the service to call itself ready.
    pub ready_replicas: usize,
    /// When a step is overdue and the engine is held to be lost; and what ends the process at once, without
    /// destructors, if a service whose engine is lost does not end by itself.
    pub watchdog: (StepLimits, fn()),
    /// Collector to which the spans of traced requests are sent.
    pub traces: Traces,
    /// Publisher of KV events, if they are published, and the way to it.
    pub events: Option<(Publisher, EventSink)>,
    /// Keep metrics; without, what is recorded goes nowhere.
    pub metrics: bool,
    /// Changes when the same request may give other bytes.
    pub fingerprint: Arc<str>,
}

impl ServiceParts {
    /// Keeps metrics if they are wanted, and tells them what there is: it was opened before there was anybody to tell.
    fn export(&self) -> Option<PrometheusHandle> {
        let recorder = self.metrics.then(metrics::install);
        self.tables.export();
        self.collections.export();
        self.documents.export();
        self.limits.pipelines.export();
        self.learning.export();
        recorder
    }
}

/// A service that accepts connections.
pub struct Service {
    address: SocketAddr,
    replicas: Replicas,
    live: LiveRequests,
    server: ServerHandle,
    probes: Option<ServerHandle>,
    /// Tests collections while nothing else is to do, and looks at the files of pipelines.
    upkeep: JoinHandle<()>,
    app: web::Data<App>,
}

impl Service {
    /// Starts everything on the current actix system. The service answers from now on, but is ready only after
    /// [`Service::warm_up`].
    pub async fn start(parts: ServiceParts) -> Result<Self, String> {
        let (recorder, (config, pace)) = (parts.export(), common(&parts.builds)?);
        let (clock, live, step_log) = (parts.clock, LiveRequests::default(), Arc::new(StepLog::default()));
        let gateway = Arc::new(Gateway::new(&parts.limits.name, &config));
        let scheduler = SchedulerSettings {
            config,
            drafts: parts.drafts,
            pace,
            clock: clock.clone(),
            live: live.clone(),
            gateway: gateway.clone(),
            step_log: step_log.clone(),
        };
        let settings = ReplicaSettings { scheduler, lookup_threads: parts.lookup_threads, watchdog: parts.watchdog };
        let events = parts.events.map(started).transpose()?;
        let replicas = Replicas::start(ReplicasParts { builds: parts.builds, settings, events }).await?;
        TelemetryActor::new(recorder.clone(), &parts.gpus).start();
        say_what_runs(replicas.info(), &parts.limits.name);
        let (text, dispatcher, context) = (Arc::new(parts.text), replicas.dispatcher.clone(), config.context);
        let (tokenizer, unread) = (text.tokenizer().clone(), parts.edge.patience.unread);
        let handles = ServiceHandles { dispatcher, context, tokenizer, clock, unread, gateway };
        let gate = gatekeeper(&parts.edge, parts.keys, (parts.audit, parts.trust_gateway), &parts.listener, &handles);
        let engram =
            engram_parts((parts.tables, parts.tables_period, parts.learn_quality_min), parts.strengths, &text)?;
        let turns = TurnServices {
            thoughts: parts.limits.thinking.clone(),
            grammars: GrammarMaker::new(text.tokenizer().clone(), parts.limits.end_ids.clone(), text.call_form())?,
            engram,
            collections: Arc::new(parts.collections),
            documents: Arc::new(parts.documents),
            tools: Arc::new(parts.tools),
            web: Arc::new(parts.web),
            embedder: parts.embedder,
            decide: parts.decide,
            text,
            lanes: text_threads()?,
            handles,
            phase: replicas.phase.clone(),
            live: live.clone(),
            log_prompts: parts.log_prompts,
        };
        let app = web::Data::new(App {
            limits: parts.limits,
            turns: Arc::new(turns),
            responses: parts.responses,
            learning: parts.learning,
            gate: web::Data::new(gate),
            traces: parts.traces,
            console: parts.edge.console,
            mcp: parts.edge.mcp,
            slots: config.slots,
            phases: replicas.phases.clone(),
            ready_replicas: parts.ready_replicas,
            step_log,
            recorder,
            rendered: Default::default(),
            openapi: Default::default(),
            bodies: bodies(parts.edge.patience.body, parts.body_bytes.0, parts.body_bytes.1),
            sockets: Sockets::within(&parts.edge.patience),
            uploads: Room::new(limits::DOCUMENT_UPLOADS_MAX, 1),
            parsed: Room::new(limits::PARSED_TOTAL_BYTES_MAX, limits::PARSED_BYTES_MAX),
            keep_alive: parts.keep_alive,
            fingerprint: parts.fingerprint,
            created: unix_seconds(),
        });
        restore(&app);
        let address = parts.listener.local_addr().map_err(|e| format!("address: {e}"))?;
        let (server, probes) = listen(app.clone(), parts.listener, (parts.workers, parts.connections), parts.edge)?;
        Ok(Self { address, replicas, live, server, probes, upkeep: upkeep(app.clone()), app })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What computes, and how much it can hold.
    pub fn info(&self) -> &BackendInfo {
        self.replicas.info()
    }

    /// Requests that are not answered yet.
    pub fn live(&self) -> LiveRequests {
        self.live.clone()
    }

    /// Where it stands, to look at and to wait for.
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.replicas.phase.clone()
    }

    /// Runs one small request through each engine, asks the model about its adapters, and opens the doors.
    pub async fn warm_up(&self) -> Result<(), String> {
        for scheduler in self.replicas.schedulers() {
            self.warm_up_one(scheduler).await.map_err(|why| format!("warm-up: {why}"))?;
        }
        self.judge_adapters().await?;
        self.replicas.open().await.map_err(|e| format!("warm-up: {e}"))
    }

    async fn warm_up_one(&self, scheduler: &Addr<SchedulerActor>) -> Result<(), String> {
        let entry = self.live.enter("warm-up".into());
        let request = Request::new(entry.id, [0], Spec::greedy(2));
        let (events, mut heard) = mpsc::channel(Submit::events_max(&request, self.info().context));
        let (terms, rules) = (Terms { exempt: true, ..Terms::default() }, DeferredRules::default());
        let submitted = scheduler.send(Submit { request, terms, events, rules, warm_up: true }).await;
        submitted.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        while let Some(event) = heard.recv().await {
            if let RequestEvent::Event(Event::Failed(why)) = event {
                return Err(match &*self.replicas.phase.borrow() {
                    Phase::Lost(reason) => reason.clone(),
                    _ => why,
                });
            }
        }
        Ok(())
    }

    /// Asks the model about all adapters of the directory: one that is refused ends the start.
    async fn judge_adapters(&self) -> Result<(), String> {
        let adapters = &self.app.limits.adapters;
        for LoadedAdapter { adapter, .. } in adapters.loaded() {
            let probed = probe(&self.app.turns, &adapter, adapters.kl_max()).await;
            probed.map_err(|e| format!("adapters.directory: {:?} is refused: {e}", adapter.name))?;
        }
        Ok(())
    }

    /// Takes nothing new, and ends what still runs when the time is over. Returns when all replies are on their way.
    pub async fn drain(&self, within: Duration) {
        self.replicas.drain(within);
        let mut phase = self.replicas.phase.clone();
        // An error means that the scheduler is gone, and then nothing runs any more.
        phase.wait_for(|p| matches!(p, Phase::Drained | Phase::Lost(_))).await.ok();
        self.flush().await;
    }

    /// Waits for the request actors to pass on their last outputs.
    pub async fn flush(&self) {
        let end = tokio::time::Instant::now() + FLUSH;
        while !self.live.is_empty() && tokio::time::Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Why the engine was lost; never returns while it lives.
    pub async fn lost(&self) -> String {
        let mut phase = self.replicas.phase.clone();
        match phase.wait_for(|p| matches!(p, Phase::Lost(_))).await.as_deref() {
            Ok(Phase::Lost(why)) => why.clone(),
            _ => "the scheduler is gone".into(),
        }
    }

    /// Closes the socket, lets connections send what they have, and ends the actors.
    pub async fn stop(self) {
        self.upkeep.abort();
        self.server.stop(true).await;
        if let Some(probes) = &self.probes {
            probes.stop(true).await;
        }
        self.replicas.stop();
    }
}

/// What replicas have in common, with the slots and pages of all of them.
fn common(builds: &[ReplicaBuild]) -> Result<(SchedulerConfig, Pace), String> {
    let first = builds.first().ok_or("a service has at least one replica")?;
    let sum =
        |of: fn(&SchedulerConfig) -> u32| builds.iter().map(|build| of(&build.config)).fold(0, u32::saturating_add);
    let (slots, pages) = (sum(|config| config.slots), sum(|config| config.pages));
    Ok((SchedulerConfig { slots, pages, ..first.config }, first.pace))
}

/// The way to a publisher of events whose thread has been started.
fn started((publisher, sink): (Publisher, EventSink)) -> Result<EventSink, String> {
    publisher.start().map_err(|e| format!("thread of the events: {e}"))?;
    Ok(sink)
}

/// Tests collections, and makes and tests the vectors of stores, while the service is idle, until it ends.
fn upkeep(app: web::Data<App>) -> JoinHandle<()> {
    actix_rt::spawn(async move {
        let pipelines = app.limits.pipelines.clone();
        tokio::join!(keep_tested(&app.turns), keep_stores(&app.turns), pipelines.keep(), keep_learning(&app));
    })
}

/// The part that decides who is let in.
fn gatekeeper(
    edge: &Edge,
    keys: Arc<KeyFile>,
    (audit, trust_gateway): (Audit, bool),
    listener: &TcpListener,
    handles: &ServiceHandles,
) -> Gatekeeper {
    let address = listener.local_addr().ok().map(|address| address.ip());
    Gatekeeper {
        origins: Origins::of(&edge.origins, &edge.hosts, &keys.keys(), address),
        keys,
        wrong_keys: Default::default(),
        proxies: edge.proxies.clone(),
        trust_gateway,
        audit,
        clock: handles.clock.clone(),
        replies: Room::new(limits::WHOLE_REPLIES_BYTES_MAX, 0),
        unread: handles.unread,
    }
}

/// The bounds within which bodies arrive.
fn bodies(time: Duration, bytes_max: usize, all_bytes_max: usize) -> Bodies {
    // One body must fit, whatever the configuration says of the size of all.
    Bodies { time, bytes_max, room: Room::new(all_bytes_max.max(bytes_max), bytes_max) }
}

/// Starts the HTTP servers: the one for all, and the one of probes where they have a socket.
fn listen(
    app: web::Data<App>,
    listener: TcpListener,
    (workers, connections): (usize, usize),
    mut edge: Edge,
) -> Result<(ServerHandle, Option<ServerHandle>), String> {
    let probes = edge.probes.take().map(|listener| probes(app.clone(), listener, edge.patience)).transpose();
    let probes = probes.map_err(|e| format!("server of probes: {e}"))?;
    let server = server(app, listener, workers, connections, edge).map_err(|e| format!("HTTP server: {e}"))?;
    let handles = (server.handle(), probes.as_ref().map(|server| server.handle()));
    actix_rt::spawn(server);
    probes.into_iter().for_each(|server| drop(actix_rt::spawn(server)));
    Ok(handles)
}

/// Gauges that never change while the service runs.
fn say_what_runs(info: &BackendInfo, model: &str) {
    let build = [("version", env!("CARGO_PKG_VERSION")), ("device", info.device), ("model", model)];
    ::metrics::gauge!(metrics::START_TIME).set(unix_seconds() as f64);
    ::metrics::gauge!(metrics::BUILD_INFO, &build.map(|(k, v)| (k, v.to_owned()))).set(1.0);
}

/// Threads for long prompts: a quarter of the cores.
fn text_threads() -> Result<Lanes, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Lanes::new((cores / 4).clamp(1, 4)).map_err(|e| format!("text threads: {e}"))
}

/// Tables, what they are taught through, and the thread that looks after both.
fn engram_parts(
    (tables, period, quality_min): (Arc<Tables>, Duration, f64),
    strengths: Arc<Strengths>,
    text: &TextModel,
) -> Result<EngramParts, String> {
    let tokenizer = text.tokenizer();
    let ids = Fingerprint::of(tokenizer);
    let words = Arc::new(tokenizer.word_starts());
    let store = tables.directory().map(|directory| Store::new(directory.to_owned(), ids));
    let teacher = store.map(|store| Teacher::new(store, tables.clone()).map(Arc::new)).transpose();
    let teacher = teacher.map_err(|e| format!("engram.directory: {e}"))?;
    let keeper =
        Keeper::start(tables.clone(), teacher.clone(), period).map_err(|e| format!("thread of the tables: {e}"))?;
    Ok(EngramParts { ids, words, strengths, tables, teacher, keeper, quality_min })
}

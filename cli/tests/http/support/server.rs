//! A whole service in this process, on a free port, with a fake backend.

use super::fake::Breakable;
use super::{Fake, PATIENCE, eventually};
use chimere::actors::engine::Build;
use chimere::actors::live::LiveRequests;
use chimere::actors::phase::Phase;
use chimere::actors::watchdog::StepLimits;
use chimere::adapters::{AdapterDirectory, AdapterSettings, Adapters};
use chimere::clock::Clock;
use chimere::config::{Device, Engine};
use chimere::device::{Built, DeviceRequest};
use chimere::documents::{DocumentSettings, Documents, PageReader};
use chimere::embedder::{Embedder, EmbedderSettings, VectorMaker};
use chimere::engram::Tables;
use chimere::hosted::Toolbox;
use chimere::http::auth::AcceptedKeys;
use chimere::http::edge::{Edge, Patience};
use chimere::http::request::ModelLimits;
use chimere::learning::{Consent, LearnerSettings, LearningService, LearningSettings};
use chimere::names::ServedNames;
use chimere::pipelines::Pipelines;
use chimere::replicas::ReplicaBuild;
use chimere::semantic::{Collections, Settings};
use chimere::service::{Service, ServiceParts};
use chimere::text::{Fingerprint, TextModel, Thoughts};
use chimere::web::Web;
use chimere_engine::backend::BackendInfo;
use chimere_engine::backend::cpu::{CpuBackend, CpuConfig, KvType};
use chimere_engine::backend::cuda::{CudaBackend, CudaConfig};
use chimere_engine::drafts::{DraftKinds, DraftMode};
use chimere_engine::model::{self, AdapterTargets};
use chimere_engine::scheduler::{DraftSettings, Pace, PrefixConfig, SchedulerConfig};
use chimere_engine::step::DraftRoom;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Bounds of the service under test.
#[derive(Clone)]
pub struct Options {
    /// Replicas, each with all that follows, and how many of them have to live for the service to be ready.
    pub replicas: usize,
    pub ready_replicas: usize,
    pub slots: u32,
    pub pages: u32,
    pub context: u32,
    pub queue_requests: u32,
    pub queue_tokens: u64,
    pub body_bytes: usize,
    pub bodies_bytes: usize,
    pub keep_alive: Duration,
    pub unread: Duration,
    pub silence: Duration,
    /// Between two requests of a WebSocket, and for all of one.
    pub socket_times: (Duration, Duration),
    pub body_time: Duration,
    /// For a request's head.
    pub head_time: Duration,
    /// Addresses that many come from.
    pub proxies: Vec<std::net::IpAddr>,
    /// A listener for probes alone.
    pub probes: bool,
    pub trust_gateway: bool,
    pub pace: Pace,
    /// When a step is overdue. Tests hold steps back for as long as a busy machine needs, so by default hardly ever.
    pub step_limits: StepLimits,
    /// Ends the process if the service whose engine is lost does not.
    pub end_process: fn(),
    pub clock: Clock,
    pub tls: bool,
    pub origins: &'static [&'static str],
    /// Serve the Model Context Protocol.
    pub mcp: bool,
    pub keys: AcceptedKeys,
    pub connections: usize,
    pub audit: chimere::audit::Audit,
    /// A chat template in the place of the golden model's.
    pub template: Option<&'static str>,
    pub thinking: chimere::config::Thinking,
    /// Maker of the vectors of collections, if the model is not.
    pub embedder: EmbedderSettings,
    /// Where tables lie, if any are offered; looked at again every 50 ms.
    pub tables: Option<PathBuf>,
    /// Where adapters of the golden model lie, if there are some.
    pub adapters: Option<PathBuf>,
    /// Bounds of the adapters.
    pub adapter_settings: AdapterSettings,
    /// Where the files of pipelines lie, if there are some; looked at again every 50 ms.
    pub pipelines: Option<PathBuf>,
    /// Where documents lie, if any are taken.
    pub documents: Option<PathBuf>,
    /// File of tools, if there are some.
    pub tools: Option<PathBuf>,
    /// Where examples to learn from are kept, if they are, and what is kept of callers without a key.
    pub learning: Option<(PathBuf, chimere::learning::Consent)>,
    /// What is learned of them.
    pub learner: LearnerSettings,
    /// MCP servers that requests may name themselves.
    pub request_hosts: chimere::hosted::RequestHosts,
    /// What is kept of conversations.
    pub responses: chimere::responses::ResponseBounds,
    /// The web, as the configuration has it.
    pub web: chimere::config::WebKeys,
    /// How questions with given options are decided.
    pub decide: chimere::decide::DecideSettings,
    /// Compute instead of doing what prompts say.
    pub real: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            replicas: 1,
            ready_replicas: 1,
            slots: 16,
            pages: 1024,
            context: 2048,
            queue_requests: 64,
            queue_tokens: 1 << 16,
            body_bytes: 1 << 20,
            bodies_bytes: 1 << 24,
            keep_alive: Duration::from_secs(10),
            unread: Duration::from_secs(60),
            silence: Duration::from_secs(60),
            socket_times: (Duration::from_secs(600), Duration::from_secs(3600)),
            body_time: Duration::from_secs(60),
            head_time: Duration::from_secs(30),
            proxies: Vec::new(),
            probes: false,
            trust_gateway: false,
            pace: Pace::default(),
            step_limits: StepLimits { least: Duration::from_secs(3_600), ..StepLimits::default() },
            end_process: || {},
            clock: Clock::start(),
            tls: false,
            origins: &[],
            mcp: false,
            keys: AcceptedKeys::Open,
            connections: 1000,
            audit: Default::default(),
            template: None,
            thinking: Default::default(),
            embedder: EmbedderSettings::default(),
            tables: None,
            adapters: None,
            adapter_settings: AdapterSettings::default(),
            pipelines: None,
            documents: None,
            tools: None,
            learning: None,
            learner: LearnerSettings::default(),
            request_hosts: Default::default(),
            responses: chimere::config::Responses::default().bounds(),
            web: Default::default(),
            decide: Default::default(),
            real: false,
        }
    }
}

/// To the thread that the service lives on: drain within this time, and say when it is over.
type Drains = tokio::sync::mpsc::UnboundedSender<(Duration, oneshot::Sender<()>)>;

/// A service that runs in this process, around the backend of these tests.
pub struct Server {
    pub addr: SocketAddr,
    /// Where probes are answered, if they have a listener.
    pub probes: Option<SocketAddr>,
    pub fake: Fake,
    drains: Option<Drains>,
    phase: tokio::sync::watch::Receiver<Phase>,
    live: LiveRequests,
    thread: Option<JoinHandle<()>>,
}

/// The model whose tokenizer and template are used.
pub fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden/moe/model.gguf")
}

/// Numbers of the golden model's hidden states.
pub const WIDTH: u32 = 32;

/// A file beside these tests.
pub fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../services/tests/data").join(file)
}

impl Server {
    pub fn start(options: Options) -> Self {
        let (server, warm) = Self::start_to_judge(options);
        warm.unwrap();
        server
    }

    /// Also one whose warm-up ends with an error, which the program would end with.
    pub fn start_to_judge(options: Options) -> (Self, Result<(), String>) {
        let (ready, started) = mpsc::channel();
        let listener = options.probes.then(|| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let probes = listener.as_ref().map(|listener| listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            actix_rt::System::new().block_on(async move {
                let mut assets = model::load(&golden()).unwrap().text;
                let own = || std::fs::read_to_string(golden().with_file_name("chat_template.jinja")).unwrap();
                assets.chat_template = Some(options.template.map_or_else(own, str::to_owned));
                let text = TextModel::new(&assets).unwrap();
                let end_id = text.tokenizer().id("<|im_end|>").unwrap();
                let fake = Fake::new(text.tokenizer().clone(), end_id);
                let service = Service::start(parts(options, text, &fake, end_id, listener)).await.unwrap();
                let warm = service.warm_up().await;
                let (drains, mut inbox): (Drains, _) = tokio::sync::mpsc::unbounded_channel();
                ready.send(((service.address(), fake, drains, service.phase(), service.live()), warm)).unwrap();
                while let Some((within, done)) = inbox.recv().await {
                    service.drain(within).await;
                    done.send(()).ok();
                }
                service.stop().await;
            });
        });
        let ((addr, fake, drains, phase, live), warm) = started.recv_timeout(PATIENCE).expect("the service starts");
        (Self { addr, probes, fake, drains: Some(drains), phase, live, thread: Some(thread) }, warm)
    }

    /// Begins to drain; the receiver hears when it is over.
    pub fn drain(&self, within: Duration) -> oneshot::Receiver<()> {
        let (done, over) = oneshot::channel();
        self.drains.as_ref().unwrap().send((within, done)).ok().unwrap();
        over
    }

    /// Waits until no step moves any more: as many have finished as may, and as many as may be in flight hang. What is
    /// launched after that is launched because a step was let go.
    #[track_caller]
    pub fn wait_for_standstill(&self) {
        eventually("the engine stands still", || self.fake.hangs(chimere::limits::STEPS_IN_FLIGHT_MAX));
    }

    /// Waits until this many requests are live. Ask for a number that stays: one that only passes by may never be seen.
    #[track_caller]
    pub fn wait_for_live(&self, want: usize) {
        eventually(&format!("{want} live requests"), || self.live.len() == want);
    }

    /// Requests that are not answered yet.
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Requests that there have been, those that are answered too. Each generation of a turn is one.
    pub fn entered(&self) -> u64 {
        self.live.entered()
    }

    pub fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Steps that a test holds back must not hold up its end.
        self.fake.allow_all();
        drop(self.drains.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the service's thread panicked");
        }
    }
}

/// The GPUs that compute instead of the CPU, one for each replica: numbers with commas between them, as `--devices` has
/// them.
pub fn test_devices() -> Option<Vec<usize>> {
    let text = std::env::var("CHIMERE_TEST_DEVICES").ok()?;
    Some(text.split(',').map(|number| number.parse().expect("a number of a GPU")).collect())
}

/// The golden model on the CPU, or on the GPU that `CHIMERE_TEST_DEVICES` names for this replica. Its weights are
/// random, but they are weights.
fn real(options: &Options, fake: &Fake, replica: usize) -> Build {
    let fake = fake.clone();
    if let Some(devices) = test_devices() {
        let wanted = DeviceRequest {
            device: Device::Cuda,
            seqs: options.slots,
            step_tokens: 512,
            ..DeviceRequest::of(&Engine::default(), options.context)
        };
        let ordinal = devices[replica % devices.len()];
        let own_context = (0..replica).any(|before| devices[before % devices.len()] == ordinal);
        let config = CudaConfig { ordinal, own_context, pages: options.pages, ..wanted.cuda() };
        return Box::new(move || {
            let model = model::load(&golden()).map_err(|e| e.to_string())?;
            let inner = CudaBackend::new(&model, &config, &mut |_| {}).map_err(|e| e.to_string())?;
            Ok(Box::new(Breakable { inner: Built::Cuda(inner), fake }))
        });
    }
    let config = CpuConfig {
        threads: 2,
        slots: options.slots,
        pages: options.pages,
        checkpoints: 0,
        kv_type: KvType::F16,
        exact: false,
        step_rows_max: 512,
        context: options.context,
        drafts: 7,
        draft_head: true,
    };
    Box::new(move || {
        let model = model::load(&golden()).map_err(|e| e.to_string())?;
        let inner = CpuBackend::new(&model, &config, &mut |_| {}).map_err(|e| e.to_string())?;
        Ok(Box::new(Breakable { inner: Built::Cpu(inner), fake }))
    })
}

/// Those of the golden model.
fn adapters(dir: &Path, names: ServedNames, settings: AdapterSettings) -> Adapters {
    let targets = AdapterTargets::of(&model::load(&golden()).unwrap());
    AdapterDirectory::open(dir, targets, names, settings).and_then(Adapters::load_all).unwrap()
}

/// As the configuration has it but for its directory.
fn learning(kept: Option<&(PathBuf, Consent)>, learner: LearnerSettings) -> LearningService {
    let settings = chimere::config::LearningKeys::default().settings();
    let keyless = kept.map_or(Consent::Off, |(_, keyless)| *keyless);
    let settings = LearningSettings { keyless, learner, ..settings };
    LearningService::open(kept.map(|(dir, _)| dir.as_path()), settings)
}

/// Beside the model's own names.
fn pipelines(path: &Path, names: ServedNames) -> Pipelines {
    Pipelines::open(path, Duration::from_millis(50), names, 16).unwrap()
}

fn parts(
    options: Options,
    text: TextModel,
    fake: &Fake,
    end_id: u32,
    probes: Option<std::net::TcpListener>,
) -> ServiceParts {
    let scheduler = SchedulerConfig {
        slots: options.slots,
        pages: options.pages,
        step_tokens: 256,
        context: options.context,
        queue_requests_max: options.queue_requests,
        queue_prompt_tokens_max: options.queue_tokens,
        steps_in_flight_max: chimere::limits::STEPS_IN_FLIGHT_MAX,
        adapter_slots: 8,
        prefix: PrefixConfig::OFF,
    };
    let info = BackendInfo {
        device: "cpu",
        slots: options.slots,
        pages: options.pages,
        checkpoints: 0,
        host_blocks: 0,
        step_rows_max: 512,
        vocab: text.tokenizer().len(),
        context: options.context,
        drafts: DraftRoom::default(),
        threads: 1,
        adapter_slots: 8,
    };
    let build = |replica| -> Build {
        if options.real {
            return real(&options, fake, replica);
        }
        let (fake, info) = (fake.clone(), info.clone());
        Box::new(move || Ok(fake.backend(info)))
    };
    let builds = (0..options.replicas)
        .map(|replica| ReplicaBuild { build: build(replica), core: None, config: scheduler, pace: options.pace })
        .collect();
    let ids = Fingerprint::of(text.tokenizer());
    let tables = Tables::open(options.tables.clone(), ids.hash, Default::default()).unwrap();
    let tables = tables.with_learned(options.learner.table.clone());
    let embedder = Embedder::open(&options.embedder).unwrap();
    let of_model = VectorMaker { identity: "tiny".into(), width: WIDTH as usize };
    let VectorMaker { identity, width } = embedder.maker().unwrap_or(of_model);
    let settings = Settings { model: identity, width, bytes_max: 1 << 20 };
    let collections = Collections::open(options.tables.as_deref(), settings).unwrap();
    let tokenizer = text.tokenizer().clone();
    let settings = DocumentSettings {
        file_bytes_max: 4 << 20,
        account_bytes_max: 8 << 20,
        program: env!("CARGO_BIN_EXE_chimere").into(),
        parse_seconds: 60,
        parse_bytes: 512 << 20,
        chunk_tokens: 400,
        threads: 2,
        count: Arc::new(move |text| tokenizer.encode_plain(text).len()),
        vectors: embedder.maker(),
    };
    let reader = PageReader {
        program: settings.program.clone(),
        memory_bytes: settings.parse_bytes,
        seconds: settings.parse_seconds,
        chunk_tokens: settings.chunk_tokens,
        count: settings.count.clone(),
    };
    let web = Web::new(options.web.settings().unwrap(), reader, options.audit.clone()).unwrap();
    let documents = Documents::open(options.documents.as_deref(), settings).unwrap();
    let tools = options.tools.as_deref().map(|file| Toolbox::open(file, options.audit.clone()).unwrap());
    let mut tools = tools.unwrap_or_else(|| Toolbox::without_file(options.audit.clone()));
    tools.request_hosts = options.request_hosts;
    let names = ServedNames::of_model(["tiny", "gpt-tiny"].into_iter());
    let limits = ModelLimits {
        name: "tiny".into(),
        aliases: vec!["gpt-tiny".into()],
        vocab: text.tokenizer().len(),
        width: WIDTH,
        choices_max: chimere::limits::CHOICES_MAX.min(options.slots),
        end_ids: vec![end_id],
        defaults: Default::default(),
        template_options: text.template().unwrap().options().map(str::to_owned).collect(),
        experts: Some(4),
        thinking: Thoughts::new(text.tokenizer(), text.tokenizer().len(), &options.thinking).unwrap(),
        adapters: options
            .adapters
            .as_deref()
            .map_or_else(Default::default, |dir| adapters(dir, names.clone(), options.adapter_settings)),
        pipelines: options.pipelines.as_deref().map_or_else(Default::default, |dir| pipelines(dir, names)),
        web: web.offer(),
    };
    ServiceParts {
        listener: std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
        workers: 1,
        connections: options.connections,
        builds,
        gpus: Vec::new(),
        drafts: DraftSettings { mode: DraftMode::Auto, kinds: DraftKinds::all(), ..DraftSettings::default() },
        text,
        limits,
        keys: Arc::new(options.keys.into()),
        audit: options.audit,
        tables: Arc::new(tables),
        collections,
        documents,
        tools,
        web,
        embedder,
        decide: options.decide,
        responses: chimere::responses::ResponseStore::open(None, options.responses, 0).unwrap(),
        learning: learning(options.learning.as_ref(), options.learner),
        learn_quality_min: 0.5,
        strengths: chimere_engine::engram::Strengths::shipped(),
        tables_period: Duration::from_millis(50),
        lookup_threads: 2,
        body_bytes: (options.body_bytes, options.bodies_bytes),
        edge: Edge {
            patience: Patience {
                unread: options.unread,
                silence: options.silence,
                body: options.body_time,
                head: options.head_time,
                socket_idle: options.socket_times.0,
                socket_life: options.socket_times.1,
                ..Patience::default()
            },
            tls: options
                .tls
                .then(|| chimere::http::tls::load(data("tls_certificate.pem"), data("tls_key.pem")).unwrap().unwrap()),
            origins: options.origins.iter().map(|origin| origin.to_string()).collect(),
            console: true,
            mcp: options.mcp,
            hosts: Vec::new(),
            proxies: options.proxies,
            probes,
        },
        log_prompts: false,
        clock: options.clock,
        trust_gateway: options.trust_gateway,
        keep_alive: options.keep_alive,
        ready_replicas: options.ready_replicas,
        watchdog: (options.step_limits, options.end_process),
        traces: Default::default(),
        events: None,
        metrics: true,
        fingerprint: "fp_test".into(),
    }
}

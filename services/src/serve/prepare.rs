//! Everything that is decided before the service starts: the socket, the keys, the model, the memory.

use super::hello::Hello;
use super::log::ProcessLog;
use super::named::named;
use super::reload::Renewals;
use super::{ServeError, audit, documents, files, replicas};
use crate::actors::watchdog::StepLimits;
use crate::adapters::Adapters;
use crate::audit::Audit;
use crate::clock::{Clock, unix_seconds};
use crate::config::{Config, Engine, aliases, items};
use crate::decide::{DecideSettings, TemperaturesError};
use crate::device::{EarlyLook, Setup};
use crate::embedder::{Embedder, VectorMaker};
use crate::engram::{Asker, DirectoryClaim, Tables};
use crate::events::{EventSink, Publisher};
use crate::hosted::Toolbox;
use crate::http::auth::AcceptedKeys;
use crate::http::edge::{Edge, KeyFile, Patience};
use crate::http::request::ModelLimits;
use crate::http::tls::Certificate;
use crate::pipelines::Pipelines;
use crate::printable::one_line;
use crate::responses::ResponseStore;
use crate::semantic::{Collections, Settings};
use crate::service::ServiceParts;
use crate::text::{Fingerprint, TextModel, Thoughts};
use crate::traces::Traces;
use crate::{limits, locate, metrics};
use chimere_engine::engram::{Strengths, StrengthsError};
use chimere_engine::files::read_regular_text;
use chimere_engine::model::{self, Model, MoeConfig, Summary};
use chimere_engine::scheduler::{DraftSettings, KeyLimits};
use sha2::{Digest, Sha256};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A service about to start.
pub(super) struct Prepared {
    pub(super) parts: ServiceParts,
    /// What is read again while it runs.
    pub(super) renewals: Renewals,
    /// What is said once it answers.
    pub(super) hello: Hello,
    /// The directories of tables and documents, this process' own until the service has ended.
    pub(super) claims: Vec<DirectoryClaim>,
}

impl Prepared {
    /// Does it all, cheap things and likely mistakes first.
    pub(super) fn new(config: &Config, log: &ProcessLog) -> Result<Self, ServeError> {
        if config.server.metrics {
            metrics::install();
        }
        let (path, look) = (find_model(config)?, EarlyLook::begin(config.engine.device, &config.engine.devices));
        files::allow(config.limits.connections);
        let ring = keys(config)?;
        let certificate = certificate(config)?;
        let tls = certificate.as_ref().map(|one| one.config()).transpose().map_err(ServeError::Usage)?;
        let (audit, listener) = (audit::open(&config.log.audit)?, listen(config, &ring.keys())?);
        let address = listener.local_addr().map_err(|e| ServeError::Start(format!("address: {e}")))?;
        let keys = Arc::new(if address.ip().is_loopback() { ring } else { ring.beyond_loopback() });
        let (probes, model) = (probes(config, address)?, load_model(config, &path)?);
        let events = events(config)?;
        log.say(&about(&model, &Summary::of(&model), &path));
        let (text, set_up) = thread::scope(|scope| {
            let text = scope.spawn(|| TextModel::new(&model.text));
            let set_up = replicas::set_up(config, &model, look, log);
            (text.join().expect("a model's texts are read or refused"), set_up)
        });
        let text = text.map_err(|e| ServeError::Start(format!("cannot use {}: {e}", path.display())))?;
        let planned = set_up?;
        let setup = planned[0].setup.clone();
        let name = if config.model.name.is_empty() { api_name(&model.config.name) } else { config.model.name.clone() };
        let claims = documents::claims(config)?;
        let mut limits = model_limits(&model, &text, name, &setup, config)?;
        let (embedder, collections) = collections(config, &text, &limits, log)?;
        (limits.adapters, limits.pipelines) = named(config, &model, (&limits, &embedder))?;
        let parts = ServiceParts {
            listener,
            workers: workers(config),
            connections: config.limits.connections,
            documents: documents::documents(config, &text, &embedder)?,
            web: documents::web(config, &text, audit.clone())?,
            drafts: drafts(config),
            fingerprint: fingerprint(&limits.name, &setup, config).into(),
            gpus: replicas::gpus(&planned),
            tables: Arc::new(tables(config, &text)?),
            text,
            limits,
            keys: keys.clone(),
            audit: audit.clone(),
            collections,
            tools: tools(config, &audit)?,
            embedder,
            decide: decide(config)?,
            responses: responses(config)?,
            learning: documents::learning(config)?,
            learn_quality_min: config.engram.learn_quality_min,
            strengths: strengths(config)?,
            tables_period: Duration::from_secs(config.engram.reload_seconds),
            lookup_threads: lookup_threads(config),
            ready_replicas: ready_replicas(config, planned.len()),
            body_bytes: (config.limits.body_bytes, config.limits.bodies_bytes),
            edge: edge(config, tls, probes),
            log_prompts: config.log.prompts,
            clock: Clock::start(),
            trust_gateway: config.server.trust_gateway,
            keep_alive: Duration::from_secs(config.server.keep_alive_seconds),
            watchdog: (step_limits(config), super::end_process_now),
            traces: traces(config)?,
            events,
            metrics: config.server.metrics,
            builds: replicas::builds(config, model, planned, log),
        };
        let hello = hello(config, address, !keys.keys().is_empty(), parts.edge.tls.is_some());
        Ok(Self { parts, renewals: Renewals { keys, certificate, audit }, hello, claims })
    }
}

/// The certificate that the configuration names, if it names one.
fn certificate(config: &Config) -> Result<Option<Arc<Certificate>>, ServeError> {
    Certificate::open(&config.server.tls_certificate, &config.server.tls_key).map_err(ServeError::Usage)
}

fn hello(config: &Config, address: SocketAddr, guarded: bool, encrypted: bool) -> Hello {
    Hello {
        address,
        guarded,
        encrypted,
        console: config.server.console,
        pages: config.server.cors_origins.clone(),
        program: std::env::args().next().unwrap_or_else(|| "chimere".into()),
        took: Duration::ZERO,
    }
}

/// Loads the model, with the ids that its draft head may choose.
fn load_model(config: &Config, path: &Path) -> Result<Model, ServeError> {
    let mut model = model::load(path).map_err(|e| ServeError::Start(format!("cannot load {}: {e}", path.display())))?;
    config.engine.draft_ids.limit(&mut model).map_err(ServeError::Usage)?;
    Ok(model)
}

/// When the watchdog declares the engine lost.
fn step_limits(config: &Config) -> StepLimits {
    StepLimits { least: Duration::from_secs(config.engine.watchdog_seconds), ..StepLimits::default() }
}

fn find_model(config: &Config) -> Result<std::path::PathBuf, ServeError> {
    let asked = Path::new(&config.model.path);
    let env = std::env::var_os("CHIMERE_MODEL");
    let exe = std::env::current_exe().ok();
    locate::model(Some(asked), env.as_deref().map(Path::new), exe.as_deref()).map_err(ServeError::Start)
}

fn keys(config: &Config) -> Result<KeyFile, ServeError> {
    match config.server.api_key_file.as_str() {
        "" => Ok(AcceptedKeys::Open.into()),
        file => {
            let limits = &config.limits;
            let limits = KeyLimits {
                requests: limits.key_requests,
                tokens_per_minute: limits.key_tokens_per_minute,
                ..KeyLimits::default()
            };
            KeyFile::of_file(file.into(), limits).map_err(ServeError::Usage)
        }
    }
}

/// Opens the socket. Beyond loopback only with keys, or when it was said that nobody needs one.
fn listen(config: &Config, keys: &AcceptedKeys) -> Result<TcpListener, ServeError> {
    let server = &config.server;
    let name = format!("{}:{}", server.host, server.port);
    let found = (server.host.as_str(), server.port).to_socket_addrs();
    let addresses: Vec<SocketAddr> = found.map_err(|e| ServeError::Usage(format!("address {name}: {e}")))?.collect();
    let open = addresses.iter().any(|a| !a.ip().is_loopback());
    if open && matches!(keys, AcceptedKeys::Open) && !server.allow_open {
        return Err(ServeError::Usage(format!(
            "{name} can be reached from other machines: give --api-key-file, or --allow-open to serve everybody"
        )));
    }
    TcpListener::bind(addresses.as_slice()).map_err(|e| cannot_listen(&name, &e, "--port"))
}

/// The socket of probes, on the host of the service.
fn probes(config: &Config, address: SocketAddr) -> Result<Option<TcpListener>, ServeError> {
    if config.server.admin_port == 0 {
        return Ok(None);
    }
    let at = SocketAddr::new(address.ip(), config.server.admin_port);
    TcpListener::bind(at).map(Some).map_err(|e| cannot_listen(&format!("{at} (admin_port)"), &e, "--admin-port"))
}

/// With the flag to change where another program listens there already.
fn cannot_listen(name: &str, error: &std::io::Error, flag: &str) -> ServeError {
    let hint = match error.kind() {
        ErrorKind::AddrInUse => format!("; another program listens there: end it, or choose another port with {flag}"),
        ErrorKind::PermissionDenied => format!("; choose a port from 1024 up with {flag}"),
        _ => String::new(),
    };
    ServeError::Start(format!("cannot listen on {name}: {error}{hint}"))
}

fn workers(config: &Config) -> usize {
    match config.server.workers {
        0 => (cores() / 2).clamp(1, 8),
        n => n as usize,
    }
}

fn lookup_threads(config: &Config) -> usize {
    match config.engram.threads {
        0 => (cores() / 4).clamp(1, 4),
        n => n as usize,
    }
}

/// Of a file, or those that come with the program.
fn strengths(config: &Config) -> Result<Arc<Strengths>, ServeError> {
    let path = &config.engram.strengths;
    if path.is_empty() {
        return Ok(Strengths::shipped());
    }
    let wrong = |e: &dyn std::fmt::Display| ServeError::Start(format!("engram.strengths: {path}: {e}"));
    let text = read_regular_text(Path::new(path), limits::STRENGTHS_BYTES_MAX).map_err(|e| wrong(&e))?;
    text.parse().map(Arc::new).map_err(|e: StrengthsError| wrong(&e))
}

/// The tools that the service runs for models.
fn tools(config: &Config, audit: &Audit) -> Result<Toolbox, ServeError> {
    let request_hosts =
        config.mcp.request_hosts().map_err(|(key, why)| ServeError::Usage(format!("mcp.{key}: {why}")))?;
    let file = &config.tools.file;
    let mut tools = match file.as_str() {
        "" => Toolbox::without_file(audit.clone()),
        file => {
            Toolbox::open(Path::new(file), audit.clone()).map_err(|e| ServeError::Usage(format!("tools.file: {e}")))?
        }
    };
    tools.request_hosts = request_hosts;
    Ok(tools)
}

/// How questions are decided, with the temperatures of a file if there is one.
fn decide(config: &Config) -> Result<DecideSettings, ServeError> {
    let (orders, path) = (config.decide.orders, &config.decide.calibration);
    if path.is_empty() {
        return Ok(DecideSettings { orders, ..DecideSettings::default() });
    }
    let wrong = |e: &dyn std::fmt::Display| ServeError::Start(format!("decide.calibration: {path}: {e}"));
    let text = read_regular_text(Path::new(path), limits::CALIBRATION_BYTES_MAX).map_err(|e| wrong(&e))?;
    let calibration = text.parse().map_err(|e: TemperaturesError| wrong(&e))?;
    Ok(DecideSettings { orders, calibration: Arc::new(calibration) })
}

/// The tables that requests can name. One that cannot be used is refused here, by its file's name.
fn tables(config: &Config, text: &TextModel) -> Result<Tables, ServeError> {
    let (engram, defaults) = (&config.engram, config.engram.defaults());
    let directory = (!engram.directory.is_empty()).then(|| Path::new(&engram.directory).to_owned());
    let tables = Tables::open(directory, Fingerprint::of(text.tokenizer()).hash, defaults);
    let tables = tables.map_err(|e| ServeError::Start(format!("engram.directory: {e}")))?;
    let tables = tables.with_learned(config.learning.settings().learner.table);
    let set = tables.snapshot();
    for name in &engram.tables {
        set.find(name, &Asker::default()).map_err(|e| {
            let hint = "for requests without a key; a table that access.toml does not name is for administrators";
            ServeError::Usage(format!("engram.tables: {e} ({hint})"))
        })?;
    }
    Ok(tables)
}

/// The publisher of KV events, bound, if there is to be one.
fn events(config: &Config) -> Result<Option<(Publisher, EventSink)>, ServeError> {
    let settings = config.events.settings().map_err(|(key, why)| ServeError::Usage(format!("events.{key} {why}")))?;
    let Some(settings) = settings else { return Ok(None) };
    let topic = settings.topic.clone();
    let bound = Publisher::bind(settings).map_err(|why| ServeError::Start(format!("events: {why}")))?;
    let (listen, replay) = bound.0.addresses();
    tracing::info!(?listen, ?replay, topic, "KV events are published: they have the tokens of everybody's prompts");
    Ok(Some(bound))
}

fn traces(config: &Config) -> Result<Traces, ServeError> {
    match config.trace.endpoint.as_str() {
        "" => Ok(Traces::default()),
        endpoint => {
            Traces::to(endpoint, config.trace.share).map_err(|e| ServeError::Start(format!("trace.endpoint: {e}")))
        }
    }
}

/// Who makes the vectors of collections.
fn embedder(config: &Config, limits: &ModelLimits, log: &ProcessLog) -> Result<Embedder, ServeError> {
    let embedder = Embedder::open(&config.documents.embedder).map_err(|e| ServeError::Start(e.to_string()))?;
    if let Some(encoder) = embedder.encoder() {
        let name = encoder.name();
        if limits.answers_to(name) {
            let why = format!("documents.embedder.name: {name:?} is a name of the served model, choose another one");
            return Err(ServeError::Usage(why));
        }
        log.say(&encoder.about());
    }
    Ok(embedder)
}

/// The maker of vectors, and what accounts keep of them. Weights of the served model are not told apart: they are
/// those of a name, a width and a tokenizer. Vectors of texts that were read as they stand, as they were until a
/// template was laid around them, are another model's.
fn collections(
    config: &Config,
    text: &TextModel,
    limits: &ModelLimits,
    log: &ProcessLog,
) -> Result<(Embedder, Collections), ServeError> {
    let embedder = embedder(config, limits, log)?;
    let directory = (!config.engram.directory.is_empty()).then(|| Path::new(&config.engram.directory));
    let tokenizer: String = Fingerprint::of(text.tokenizer()).hash.to_string().chars().take(12).collect();
    let turns = if text.template().is_some() { " turns" } else { "" };
    let VectorMaker { identity, width } = embedder.maker().unwrap_or_else(|| VectorMaker {
        identity: format!("{} {} {tokenizer}{turns}", limits.name, limits.width),
        width: limits.width as usize,
    });
    let settings = Settings { model: identity, width, bytes_max: config.engram.collections_mib << 20 };
    let all = Collections::open(directory, settings);
    Ok((embedder, all.map_err(|e| ServeError::Start(format!("engram.directory: {e}")))?))
}

/// What is kept of conversations.
fn responses(config: &Config) -> Result<ResponseStore, ServeError> {
    let directory = (!config.responses.directory.is_empty()).then(|| Path::new(&config.responses.directory));
    let all = ResponseStore::open(directory, config.responses.bounds(), unix_seconds());
    all.map_err(|e| ServeError::Start(format!("responses.directory: {e}")))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The model's own name as people can type it: ASCII, blanks as dashes.
fn api_name(own: &str) -> String {
    let plain = |c: char| match c {
        'à'..='å' | 'À'..='Å' => 'a',
        'ç' | 'Ç' => 'c',
        'è'..='ë' | 'È'..='Ë' => 'e',
        'ì'..='ï' | 'Ì'..='Ï' => 'i',
        'ñ' | 'Ñ' => 'n',
        'ò'..='ö' | 'Ò'..='Ö' => 'o',
        'ù'..='ü' | 'Ù'..='Ü' => 'u',
        c if c.is_ascii_graphic() => c,
        _ => '-',
    };
    let name: String = own.trim().chars().map(plain).collect();
    if name.is_empty() { "model".into() } else { name }
}

fn model_limits(
    model: &Model,
    text: &TextModel,
    name: String,
    setup: &Setup,
    config: &Config,
) -> Result<ModelLimits, ServeError> {
    let vocab = u32::try_from(model.config.vocab).unwrap_or(u32::MAX);
    Ok(ModelLimits {
        name,
        aliases: aliases(&config.model.aliases).map(str::to_owned).collect(),
        vocab,
        width: u32::try_from(model.config.hidden).unwrap_or(u32::MAX),
        choices_max: limits::CHOICES_MAX.min(setup.slots()),
        end_ids: model.text.end_ids.clone(),
        defaults: model.text.defaults.clone(),
        template_options: text.template().map(|t| t.options().map(str::to_owned).collect()).unwrap_or_default(),
        experts: experts(model),
        thinking: Thoughts::new(text.tokenizer(), vocab, &config.thinking).map_err(ServeError::Usage)?,
        pipelines: Pipelines::default(),
        adapters: Adapters::default(),
        web: documents::web_settings(config)?.offer(),
    })
}

/// How many experts a token takes; `None` for a dense model.
fn experts(model: &Model) -> Option<u32> {
    model.config.each::<MoeConfig>().map(|moe| moe.used).max().and_then(|used| u32::try_from(used).ok())
}

/// What is drafted; how much the backend takes, it says itself.
fn drafts(config: &Config) -> DraftSettings {
    let Engine { drafts, draft_sources, .. } = &config.engine;
    DraftSettings { mode: drafts.0, kinds: draft_sources.0, ..DraftSettings::default() }
}

fn edge(config: &Config, tls: Option<rustls::ServerConfig>, probes: Option<TcpListener>) -> Edge {
    let server = &config.server;
    Edge {
        patience: patience(config),
        tls,
        origins: items(&server.cors_origins).map(str::to_owned).collect(),
        console: server.console,
        mcp: config.mcp.serve,
        hosts: items(&server.hosts).map(str::to_owned).collect(),
        proxies: items(&server.trusted_proxies).filter_map(|text| text.parse().ok()).collect(),
        probes,
    }
}

fn patience(config: &Config) -> Patience {
    let limits = &config.limits;
    Patience {
        head: Duration::from_secs(limits.head_seconds),
        body: Duration::from_secs(limits.body_seconds),
        idle: Duration::from_secs(limits.idle_seconds),
        unread: Duration::from_secs(limits.unread_seconds),
        silence: Duration::from_secs(limits.peer_silence_seconds),
        ..Patience::default()
    }
}

/// Changes with whatever may change a request's bytes: version, model, arithmetic, how thinking is bounded. Threads and
/// batches do not.
fn fingerprint(model: &str, setup: &Setup, config: &Config) -> String {
    let what = format!("{} {model} {} {:?}", env!("CARGO_PKG_VERSION"), setup.arithmetic(), config.thinking);
    Sha256::digest(what).iter().take(6).fold(String::from("fp_"), |text, byte| text + &format!("{byte:02x}"))
}

/// How many of so many replicas have to live for the service to call itself ready: at least one.
fn ready_replicas(config: &Config, replicas: usize) -> usize {
    ((config.engine.ready_share * replicas as f64).ceil() as usize).clamp(1, replicas)
}

fn about(model: &Model, summary: &Summary, path: &Path) -> String {
    let c = &model.config;
    format!(
        "model {} ({}, {:.1} M parameters, {:.1} MiB, {} layers, vocabulary {}) from {}",
        one_line(&c.name),
        c.architecture,
        summary.parameters() as f64 / 1e6,
        summary.bytes() as f64 / f64::from(1 << 20),
        c.layers.len(),
        c.vocab,
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_host(host: &str, allow_open: bool) -> Config {
        let mut config = Config::default();
        config.server = crate::config::Server { host: host.into(), port: 0, allow_open, ..config.server };
        config
    }

    #[test]
    fn beyond_loopback_only_with_keys_or_when_told_so() {
        let keys = AcceptedKeys::one("sk-test");
        assert!(listen(&with_host("127.0.0.1", false), &AcceptedKeys::Open).is_ok());
        assert!(
            matches!(listen(&with_host("0.0.0.0", false), &AcceptedKeys::Open), Err(ServeError::Usage(why)) if why.contains("--api-key-file"))
        );
        assert!(listen(&with_host("0.0.0.0", true), &AcceptedKeys::Open).is_ok());
        assert!(listen(&with_host("0.0.0.0", false), &keys).is_ok());
    }

    #[test]
    fn a_model_answers_to_a_name_that_can_be_typed() {
        for (own, want) in [("Chimère Nano", "Chimere-Nano"), ("Qwen3.5 35B A3B", "Qwen3.5-35B-A3B"), (" ", "model")] {
            assert_eq!(api_name(own), want);
        }
    }

    #[test]
    fn an_address_in_use_is_an_error_that_names_it() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let mut config = with_host("127.0.0.1", false);
        config.server.port = port;
        let err = listen(&config, &AcceptedKeys::Open).unwrap_err().to_string();
        assert!(err.contains(&format!("127.0.0.1:{port}")) && err.contains("another port with --port"), "{err}");
        config.server.admin_port = port;
        let err = probes(&config, "127.0.0.1:1".parse().unwrap()).unwrap_err().to_string();
        assert!(err.contains(&format!("127.0.0.1:{port}")) && err.contains("--admin-port"), "{err}");
    }
}

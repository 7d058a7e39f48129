//! Configuration: defaults < file < environment < flags, every key known, and its check.
//!
//! All four layers meet in one TOML table whose shape is that of [`Config::default`], so a key that no field has cannot come in by
//! any of them. `config/chimere.toml` shows every key; a test holds it to the struct.

mod activations;

pub use activations::Activations;

use crate::engram::{Defaults, ModeName, PhaseName};
use crate::limits;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// What the service runs with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Who may connect, and how it ends.
    pub server: Server,
    /// Which model.
    pub model: ModelChoice,
    /// How it is computed.
    pub engine: Engine,
    /// How long models think.
    pub thinking: Thinking,
    /// Bounds.
    pub limits: Limits,
    /// Tables of n-grams.
    pub engram: Engram,
    /// What is written to standard error.
    pub log: Log,
    /// Where spans of requests go.
    pub trace: Trace,
}

/// Address, keys, shutdown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Address to listen on.
    pub host: String,
    /// Port to listen on; 0 takes a free one.
    pub port: u16,
    /// HTTP threads; 0 takes one for every two cores, at least 1 and at most 8.
    pub workers: u32,
    /// File of API keys; empty asks for none.
    pub api_key_file: String,
    /// Listen beyond loopback without keys.
    pub allow_open: bool,
    /// PEM file with the certificate and those that vouch for it; empty serves plain HTTP.
    pub tls_certificate: String,
    /// PEM file with the certificate's private key.
    pub tls_key: String,
    /// Origins whose pages may call the service from a browser, with commas between them; `*` lets all.
    pub cors_origins: String,
    /// Take the id that a gateway sends with a request for whose it is.
    pub trust_gateway: bool,
    /// Seconds that running streams may take after a signal.
    pub drain_seconds: u64,
    /// Seconds of silence before a stream gets a comment.
    pub keep_alive_seconds: u64,
    /// Keep metrics and show them under `/metrics`.
    pub metrics: bool,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".into(),
            port: 8080,
            workers: 0,
            api_key_file: String::new(),
            allow_open: false,
            tls_certificate: String::new(),
            tls_key: String::new(),
            cors_origins: String::new(),
            trust_gateway: false,
            drain_seconds: limits::DRAIN_SECONDS,
            keep_alive_seconds: limits::KEEP_ALIVE_SECONDS,
            metrics: true,
        }
    }
}

/// The model and the name that it answers to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelChoice {
    /// GGUF file or directory; empty looks in the usual places.
    pub path: String,
    /// Name in the API; empty takes the model's own.
    pub name: String,
}

/// Device, memory, arithmetic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Engine {
    /// Where steps run.
    pub device: Device,
    /// Threads that compute on the CPU; 0 takes every core.
    pub threads: u32,
    /// Core that the thread of the engine is pinned to; -1 lets the system choose.
    pub core: i64,
    /// Sequences that run at once; 0 takes 16 on a CPU and 64 on a GPU.
    pub max_seqs: u32,
    /// Positions a sequence may have, prompt and output together; 0 takes the model's own.
    pub max_context: u32,
    /// Positions one step may compute; 0 takes 512 on a CPU and 2048 on a GPU.
    pub step_tokens: u32,
    /// Milliseconds between two tokens of a stream that steps are planned to keep while prompts are computed; 0 sets no target.
    pub itl_target_ms: u32,
    /// Bytes for everything that the process takes on its device; `auto` takes the free memory less a margin.
    pub vram_budget: Budget,
    /// Type of the KV cache.
    pub kv_type: KvType,
    /// Bits of activations when a GPU computes.
    pub activations: Activations,
    /// Where the rows of the embedding lie when a GPU computes.
    pub embedding: Embedding,
    /// Decoded weights, f32 activations and KV.
    pub exact: bool,
    /// Equal bytes for equal requests; on the CPU always so.
    pub deterministic: bool,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            device: Device::Auto,
            threads: 0,
            core: -1,
            max_seqs: 0,
            max_context: 0,
            step_tokens: 0,
            itl_target_ms: limits::ITL_TARGET_MS,
            vram_budget: Budget::Auto,
            kv_type: KvType::F16,
            activations: Activations::Auto,
            embedding: Embedding::Device,
            exact: false,
            deterministic: false,
        }
    }
}

/// How long a model thinks for requests that say something about it. Entropies are shares of the greatest one that the vocabulary allows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thinking {
    /// What is forced to close a thought.
    pub end_text: String,
    /// Thinking tokens of the effort `minimal`; 0 for no bound.
    pub minimal_tokens: u32,
    /// Thinking tokens of the effort `low`; 0 for no bound.
    pub low_tokens: u32,
    /// Thinking tokens of the effort `medium`; 0 for no bound.
    pub medium_tokens: u32,
    /// Thinking tokens of the effort `high`; 0 for no bound.
    pub high_tokens: u32,
    /// Tokens over which certainty is averaged.
    pub window_tokens: u32,
    /// Words of doubt.
    pub hold_words: Vec<String>,
    /// Most entropy at which these are held back.
    pub hold_entropy: f64,
    /// Least probability of the best token at which these are held back.
    pub hold_top_prob: f64,
    /// Thinking tokens before certainty may close a thought; 0 for never.
    pub stop_tokens_min: u32,
    /// Most entropy at which a thought is closed.
    pub stop_entropy: f64,
    /// Least probability of the best token at which a thought is closed.
    pub stop_top_prob: f64,
    /// Tokens of the answer that the effort `auto` tries without a thought.
    pub probe_tokens: u32,
    /// Most entropy of any of these tokens for that answer to be sure.
    pub probe_entropy: f64,
}

impl Default for Thinking {
    fn default() -> Self {
        Self {
            end_text: "\n</think>\n\n".into(),
            minimal_tokens: 256,
            low_tokens: 1024,
            medium_tokens: 4096,
            high_tokens: 0,
            window_tokens: 16,
            hold_words: ["Wait", "Hmm", "Let", "Alternatively", "Actually"].map(str::to_owned).to_vec(),
            hold_entropy: 0.02,
            hold_top_prob: 0.95,
            stop_tokens_min: 0,
            stop_entropy: 0.01,
            stop_top_prob: 0.98,
            probe_tokens: 24,
            probe_entropy: 0.02,
        }
    }
}

/// Bounds that an operator can change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Requests that may wait.
    pub queue_requests: u32,
    /// Prompt tokens that may wait, all requests together.
    pub queue_prompt_tokens: u64,
    /// Seconds that a request may be predicted to wait; 0 sets no bound.
    pub predicted_wait_seconds: u64,
    /// Requests that a key may have at once, unless its line says otherwise; 0 sets no bound.
    pub key_requests: u32,
    /// Tokens that a key may take in a minute, unless its line says otherwise; 0 sets no bound.
    pub key_tokens_per_minute: u32,
    /// Bytes of a request body.
    pub body_bytes: usize,
    /// Bytes of all request bodies in flight.
    pub bodies_bytes: usize,
    /// Seconds that a client may take for its request's head.
    pub head_seconds: u64,
    /// Seconds that a body may take to arrive.
    pub body_seconds: u64,
    /// Seconds that an idle connection is kept.
    pub idle_seconds: u64,
    /// Seconds that a client may leave its reply unread.
    pub unread_seconds: u64,
    /// Seconds that a connection is kept whose peer neither takes what was sent to it nor says that it is still there.
    pub peer_silence_seconds: u64,
    /// Connections open at once.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue_requests: limits::QUEUE_REQUESTS_MAX,
            queue_prompt_tokens: limits::QUEUE_PROMPT_TOKENS_MAX,
            predicted_wait_seconds: limits::PREDICTED_WAIT_SECONDS,
            key_requests: 0,
            key_tokens_per_minute: 0,
            body_bytes: limits::BODY_BYTES_MAX,
            bodies_bytes: limits::BODIES_BYTES_MAX,
            head_seconds: limits::HEAD_SECONDS,
            body_seconds: limits::BODY_SECONDS,
            idle_seconds: limits::IDLE_SECONDS,
            unread_seconds: limits::UNREAD_SECONDS,
            peer_silence_seconds: limits::PEER_SILENCE_SECONDS,
            connections: limits::CONNECTIONS_MAX,
        }
    }
}

/// Tables of n-grams, and what holds for requests that do not say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Engram {
    /// Where tables lie; empty offers none.
    pub directory: String,
    /// Tables for requests that name none.
    pub tables: Vec<String>,
    /// How tables change probabilities.
    pub mode: ModeName,
    /// Strength of a bias.
    pub alpha: f64,
    /// Share of a mixture.
    pub lambda: f64,
    /// Continuations with fewer occurrences are passed over.
    pub min_count: u32,
    /// Where tables speak.
    pub phase: PhaseName,
    /// Threads that share the lookups of large batches; 0 takes one for every four cores, at least 1 and at most 4.
    pub threads: u32,
    /// Seconds after which the directory is looked at again; 0 never looks.
    pub reload_seconds: u64,
    /// Texts are learned if they are at least this good, 0 to 1.
    pub learn_quality_min: f64,
    /// Mebibytes that all collections may take in memory.
    pub collections_mib: u64,
}

impl Default for Engram {
    fn default() -> Self {
        let own = Defaults::default();
        // The shortest decimals that read as these, where f64 would show what f32 rounds to.
        let decimal = |x: f32| x.to_string().parse().expect("a number reads back");
        Self {
            directory: String::new(),
            tables: own.tables,
            mode: own.mode,
            alpha: decimal(own.alpha),
            lambda: decimal(own.lambda),
            min_count: own.min_count,
            phase: own.phase,
            threads: 0,
            reload_seconds: 10,
            learn_quality_min: 0.5,
            collections_mib: limits::COLLECTIONS_MIB,
        }
    }
}

impl Engram {
    /// What holds for a request that does not say.
    pub fn defaults(&self) -> Defaults {
        Defaults {
            tables: self.tables.clone(),
            mode: self.mode,
            alpha: self.alpha as f32,
            lambda: self.lambda as f32,
            min_count: self.min_count,
            phase: self.phase,
        }
    }
}

/// Log lines; outputs are never among them, prompts only when asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Log {
    /// Filter as of `tracing`: `info`, `chimere=debug`.
    pub filter: String,
    /// One line a record, or JSON.
    pub format: LogFormat,
    /// Log the prompt of every request, as the model reads it.
    pub prompts: bool,
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "warn,chimere=info".into(), format: LogFormat::Text, prompts: false }
    }
}

/// Spans of requests, for a collector of OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// The collector; empty sends nothing.
    pub endpoint: String,
    /// Share of the requests that are traced whose caller does not say.
    pub share: f64,
}

impl Default for Trace {
    fn default() -> Self {
        Self { endpoint: String::new(), share: 1.0 }
    }
}

/// Shape of a log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// An object for programs.
    Json,
}

/// Where steps run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// A GPU where one can be used, else this machine's cores.
    Auto,
    /// This machine's cores.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
}

/// Types of the KV cache that the command line knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum KvType {
    /// 4 bytes a value.
    #[serde(rename = "f32")]
    F32,
    /// 2 bytes a value.
    #[serde(rename = "f16")]
    F16,
    /// 8.5 bits a value; on a GPU only.
    #[serde(rename = "q8_0:q8_0", alias = "q8_0")]
    #[value(name = "q8_0:q8_0", alias = "q8_0")]
    Q8_0,
    /// Keys 8.5 bits a value, values 4.5; on a GPU only.
    #[serde(rename = "q8_0:q4_0")]
    #[value(name = "q8_0:q4_0")]
    Q8_0Q4_0,
}

/// Where the rows of the embedding lie when a GPU computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Embedding {
    /// With the other weights.
    Device,
    /// In the host's memory, read over the bus: a row a token, so it costs little time and spares the device a whole matrix.
    Host,
}

impl KvType {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F32 => "f32",
            KvType::F16 => "f16",
            KvType::Q8_0 => "q8_0:q8_0",
            KvType::Q8_0Q4_0 => "q8_0:q4_0",
        }
    }
}

/// A number of bytes as people write it: `12GiB`, `900MB`, `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Budget {
    /// What is free, less a margin.
    Auto,
    /// This many bytes.
    Bytes(u64),
}

impl std::str::FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const UNITS: [(&str, u64); 8] = [
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("TiB", 1 << 40),
            ("KB", 1_000),
            ("MB", 1_000_000),
            ("GB", 1_000_000_000),
            ("B", 1),
        ];
        let text = text.trim();
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Self::Auto);
        }
        let wanted = || format!("wanted auto or bytes such as 12GiB, got {text:?}");
        let (number, unit) =
            UNITS.iter().find_map(|(name, bytes)| text.strip_suffix(name).map(|rest| (rest, *bytes))).unwrap_or((text, 1));
        let number: f64 = number.trim().parse().map_err(|_| wanted())?;
        let bytes = number * unit as f64;
        // The upper bound also refuses infinity and NaN; 2^53 keeps every byte exact.
        if bytes >= 1.0 && bytes < (1u64 << 53) as f64 { Ok(Self::Bytes(bytes as u64)) } else { Err(wanted()) }
    }
}

impl TryFrom<String> for Budget {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Budget> for String {
    fn from(budget: Budget) -> String {
        match budget {
            Budget::Auto => "auto".into(),
            Budget::Bytes(n) => format!("{n}B"),
        }
    }
}

/// Flags of `chimere serve`. Each overrides a key of the configuration; what is absent here comes from the environment
/// (`CHIMERE_SERVER__PORT`), then from the file, then from the defaults.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ServeArgs {
    /// Model: a GGUF file (the first of a split one), or a directory with one, or a Hugging Face directory
    /// [default: $CHIMERE_MODEL, ./models/nano, <exe>/../share/chimere/nano]
    #[arg(long, value_name = "FILE|DIR")]
    pub model: Option<PathBuf>,
    /// Name of the model in the API [default: the model's own]
    #[arg(long, value_name = "S")]
    pub model_name: Option<String>,
    /// Address to listen on; beyond loopback only with --api-key-file or --allow-open [default: 127.0.0.1]
    #[arg(long, value_name = "H")]
    pub host: Option<String>,
    /// Port to listen on, 0 for a free one [default: 8080]
    #[arg(long, value_name = "P")]
    pub port: Option<u16>,
    /// Where to compute [default: auto]
    #[arg(long, value_enum)]
    pub device: Option<Device>,
    /// Threads that compute on the CPU, 0 for every core [default: 0]
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// Sequences that run at once [default: 16 on a CPU, 64 on a GPU]
    #[arg(long, value_name = "N")]
    pub max_seqs: Option<u32>,
    /// Tokens a sequence may have, prompt and output together [default: the model's own]
    #[arg(long, value_name = "N")]
    pub max_context: Option<u32>,
    /// Tokens that one step may compute [default: 512 on a CPU, 2048 on a GPU]
    #[arg(long, value_name = "N")]
    pub step_tokens: Option<u32>,
    /// Memory for all that the process takes on its device: bytes such as 12GiB, or auto for what is free less a margin [default: auto]
    #[arg(long, value_name = "BYTES")]
    pub vram_budget: Option<Budget>,
    /// Type of the KV cache: keys and values, or keys:values; f32 on the CPU only, q8_0 on a GPU only [default: f16]
    #[arg(long, value_enum)]
    pub kv_type: Option<KvType>,
    /// Bits of activations when a GPU computes: int16 is closer to the exact path, at twice the matrix instructions; auto takes it for
    /// models of less than 1 GiB and for 16-bit weights [default: auto]
    #[arg(long, value_enum)]
    pub activations: Option<Activations>,
    /// Where the rows of the embedding lie when a GPU computes; host spares device memory [default: device]
    #[arg(long, value_enum)]
    pub embedding: Option<Embedding>,
    /// Compute with decoded weights and f32 activations and KV: on the CPU only, slow, the yardstick
    #[arg(long)]
    pub exact: bool,
    /// Equal bytes for equal requests whatever else runs; on the CPU always so
    #[arg(long)]
    pub deterministic: bool,
    /// File of API keys, one a line, # starts a comment
    #[arg(long, value_name = "F")]
    pub api_key_file: Option<PathBuf>,
    /// Listen beyond loopback without API keys
    #[arg(long)]
    pub allow_open: bool,
    /// Seconds that running streams may take to finish after SIGINT or SIGTERM [default: 15]
    #[arg(long, value_name = "S")]
    pub drain_seconds: Option<u64>,
    /// Collector of OpenTelemetry that spans of requests are sent to, over HTTP as JSON, such as http://127.0.0.1:4318 [default: none]
    #[arg(long, value_name = "URL")]
    pub trace_endpoint: Option<String>,
    /// Configuration file; config/chimere.toml lists every key
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl ServeArgs {
    /// The keys that these flags set.
    fn overrides(&self) -> Vec<(&'static str, &'static str, Value)> {
        fn text(path: &Path) -> Value {
            Value::String(path.to_string_lossy().into_owned())
        }
        let mut set = Vec::new();
        let mut put = |section, key, value: Option<Value>| set.extend(value.map(|v| (section, key, v)));
        put("model", "path", self.model.as_deref().map(text));
        put("model", "name", self.model_name.clone().map(Value::String));
        put("server", "host", self.host.clone().map(Value::String));
        put("server", "port", self.port.map(|n| Value::Integer(n.into())));
        put("server", "api_key_file", self.api_key_file.as_deref().map(text));
        put("server", "allow_open", self.allow_open.then_some(Value::Boolean(true)));
        put("server", "drain_seconds", self.drain_seconds.map(integer));
        put("trace", "endpoint", self.trace_endpoint.clone().map(Value::String));
        put("engine", "device", self.device.and_then(|d| Value::try_from(d).ok()));
        put("engine", "threads", self.threads.map(|n| Value::Integer(n.into())));
        put("engine", "max_seqs", self.max_seqs.map(|n| Value::Integer(n.into())));
        put("engine", "max_context", self.max_context.map(|n| Value::Integer(n.into())));
        put("engine", "step_tokens", self.step_tokens.map(|n| Value::Integer(n.into())));
        put("engine", "vram_budget", self.vram_budget.map(|b| Value::String(b.into())));
        put("engine", "kv_type", self.kv_type.map(|k| Value::String(k.name().into())));
        put("engine", "activations", self.activations.and_then(|a| Value::try_from(a).ok()));
        put("engine", "embedding", self.embedding.and_then(|e| Value::try_from(e).ok()));
        put("engine", "exact", self.exact.then_some(Value::Boolean(true)));
        put("engine", "deterministic", self.deterministic.then_some(Value::Boolean(true)));
        set
    }
}

fn integer(n: u64) -> Value {
    Value::Integer(i64::try_from(n).unwrap_or(i64::MAX))
}

/// Why a configuration was refused. Messages name the layer, the key, and what was wanted.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's words.
        why: String,
    },
    /// The file is not TOML.
    #[error("{path} is not TOML: {why}")]
    NotToml {
        /// The file.
        path: String,
        /// The parser's words.
        why: String,
    },
    /// No such key.
    #[error("{origin}: no key {key}{}", nearest.as_ref().map(|n| format!(", did you mean {n}?")).unwrap_or_default())]
    UnknownKey {
        /// File or environment variable.
        origin: String,
        /// The key as written.
        key: String,
        /// The known key that reads most like it.
        nearest: Option<String>,
    },
    /// A value of the wrong type, or out of range.
    #[error("{origin}: {key} {why}")]
    BadValue {
        /// File, environment variable, or flags.
        origin: String,
        /// The key.
        key: String,
        /// What was wanted and what came.
        why: String,
    },
}

impl Config {
    /// Lays the four layers over each other and checks the result. `env` is the process environment, or a test's.
    pub fn load(args: &ServeArgs, env: impl Iterator<Item = (String, String)>) -> Result<Config, ConfigError> {
        let mut table = defaults();
        if let Some(path) = &args.config {
            overlay_file(&mut table, path)?;
        }
        let mut env: Vec<_> = env.collect();
        env.sort(); // so that of two errors always the same one is reported
        for (name, value) in &env {
            overlay_env(&mut table, name, value)?;
        }
        for (section, key, value) in args.overrides() {
            section_mut(&mut table, section).insert(key.into(), value);
        }
        let config: Config = Value::Table(table).try_into().map_err(|e: toml::de::Error| ConfigError::BadValue {
            origin: "configuration".into(),
            key: String::new(),
            why: e.message().into(),
        })?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let bad = |key: &str, why: String| Err(ConfigError::BadValue { origin: "configuration".into(), key: key.into(), why });
        let chunk = chimere_engine::CHUNK_TOKENS;
        if (1..chunk).contains(&self.engine.step_tokens) {
            return bad("engine.step_tokens", format!("must be 0 or at least {chunk}, got {}", self.engine.step_tokens));
        }
        if let Err((key, why)) = self.engram.defaults().check() {
            return bad(&format!("engram.{key}"), why);
        }
        if !(0.0..=1.0).contains(&self.engram.learn_quality_min) {
            return bad("engram.learn_quality_min", format!("must lie between 0 and 1, got {}", self.engram.learn_quality_min));
        }
        if self.engram.collections_mib > limits::COLLECTIONS_MIB_MAX {
            let (got, max) = (self.engram.collections_mib, limits::COLLECTIONS_MIB_MAX);
            return bad("engram.collections_mib", format!("must be at most {max}, got {got}"));
        }
        let threads = [
            ("engine.threads", self.engine.threads),
            ("server.workers", self.server.workers),
            ("engram.threads", self.engram.threads),
        ];
        for (key, threads) in threads {
            if threads > limits::THREADS_MAX {
                return bad(key, format!("must be at most {}, got {threads}", limits::THREADS_MAX));
            }
        }
        if self.limits.queue_requests == 0 {
            return bad("limits.queue_requests", "must be at least 1, got 0".into());
        }
        if self.limits.queue_prompt_tokens == 0 {
            return bad("limits.queue_prompt_tokens", "must be at least 1, got 0".into());
        }
        let limits = &self.limits;
        for (key, value) in [
            ("limits.body_bytes", limits.body_bytes as u64),
            ("limits.head_seconds", limits.head_seconds),
            ("limits.body_seconds", limits.body_seconds),
            ("limits.idle_seconds", limits.idle_seconds),
            ("limits.unread_seconds", limits.unread_seconds),
            ("limits.peer_silence_seconds", limits.peer_silence_seconds),
        ] {
            if value == 0 {
                return bad(key, "must be at least 1, got 0".into());
            }
        }
        if limits.bodies_bytes < limits.body_bytes {
            let why = format!("must be at least limits.body_bytes, {}, got {}", limits.body_bytes, limits.bodies_bytes);
            return bad("limits.bodies_bytes", why);
        }
        if self.limits.connections == 0 || self.limits.connections > limits::CONNECTIONS_MAX {
            return bad(
                "limits.connections",
                format!("must lie in 1..={}, got {}", limits::CONNECTIONS_MAX, self.limits.connections),
            );
        }
        if self.server.tls_certificate.is_empty() != self.server.tls_key.is_empty() {
            let (have, lacks) =
                if self.server.tls_key.is_empty() { ("tls_certificate", "tls_key") } else { ("tls_key", "tls_certificate") };
            return bad(&format!("server.{lacks}"), format!("must be given with server.{have}, got nothing"));
        }
        if let Some(origin) = origins(&self.server.cors_origins).find(|origin| !is_origin(origin)) {
            return bad("server.cors_origins", format!("wants * or origins such as https://app.example.org, got {origin:?}"));
        }
        self.thinking.check().or_else(|(key, why)| bad(key, why))?;
        if !self.trace.endpoint.is_empty() && !is_collector(&self.trace.endpoint) {
            let why = format!("wants an address such as http://127.0.0.1:4318, unencrypted, got {:?}", self.trace.endpoint);
            return bad("trace.endpoint", why);
        }
        if !(0.0..=1.0).contains(&self.trace.share) {
            return bad("trace.share", format!("must lie between 0 and 1, got {}", self.trace.share));
        }
        if self.engine.core < -1 {
            return bad("engine.core", format!("must be a core's number or -1, got {}", self.engine.core));
        }
        if self.server.keep_alive_seconds == 0 {
            return bad("server.keep_alive_seconds", "must be at least 1, got 0".into());
        }
        Ok(())
    }
}

/// The origins of a list.
pub fn origins(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|origin| !origin.is_empty())
}

/// Scheme and host, without a path: a browser sends no more, so anything else would never match.
fn is_origin(origin: &str) -> bool {
    let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    origin == "*"
        || host.is_some_and(|host| !host.is_empty() && host.bytes().all(|b| b.is_ascii_graphic() && !b"/?#*".contains(&b)))
}

impl Thinking {
    /// The key at fault and what is wrong with it. What depends on the model is checked where the model is known.
    fn check(&self) -> Result<(), (&'static str, String)> {
        let shares = [
            ("thinking.hold_entropy", self.hold_entropy),
            ("thinking.hold_top_prob", self.hold_top_prob),
            ("thinking.stop_entropy", self.stop_entropy),
            ("thinking.stop_top_prob", self.stop_top_prob),
            ("thinking.probe_entropy", self.probe_entropy),
        ];
        if let Some((key, got)) = shares.into_iter().find(|(_, share)| !(0.0..=1.0).contains(share)) {
            return Err((key, format!("must lie in 0..=1, got {got}")));
        }
        for (key, got, max) in [
            ("thinking.window_tokens", self.window_tokens, limits::THINKING_WINDOW_TOKENS_MAX),
            ("thinking.probe_tokens", self.probe_tokens, limits::PROBE_TOKENS_MAX),
        ] {
            if !(1..=max).contains(&got) {
                return Err((key, format!("must lie in 1..={max}, got {got}")));
            }
        }
        if self.hold_words.iter().any(|word| word.trim().is_empty()) {
            return Err(("thinking.hold_words", "must not have an empty word".into()));
        }
        if self.hold_words.len() > limits::HOLD_WORDS_MAX {
            return Err((
                "thinking.hold_words",
                format!("has {} words, at most {} are taken", self.hold_words.len(), limits::HOLD_WORDS_MAX),
            ));
        }
        Ok(())
    }
}

/// `http://` and a host, perhaps a port and a path.
fn is_collector(address: &str) -> bool {
    let uri = address.parse::<actix_web::http::Uri>();
    uri.is_ok_and(|uri| {
        uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty()) && uri.query().is_none()
    })
}

fn defaults() -> Table {
    Table::try_from(Config::default()).expect("the default configuration is a table of plain values")
}

fn section_mut<'a>(table: &'a mut Table, section: &str) -> &'a mut Table {
    table.get_mut(section).and_then(Value::as_table_mut).expect("flags and environment name sections that exist")
}

fn overlay_file(table: &mut Table, path: &Path) -> Result<(), ConfigError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| ConfigError::Unreadable { path: name.clone(), why: e.to_string() })?;
    let file: Table = text.parse().map_err(|e: toml::de::Error| ConfigError::NotToml { path: name.clone(), why: e.to_string() })?;
    for (section, value) in file {
        let Value::Table(keys) = value else {
            return Err(unknown(table, &name, &section));
        };
        for (key, value) in keys {
            put(table, &name, &section, &key, value)?;
        }
    }
    Ok(())
}

/// `CHIMERE_SERVER__PORT=9000`. Variables without a double underscore mean something else (`CHIMERE_MODEL`) and are left alone.
fn overlay_env(table: &mut Table, name: &str, text: &str) -> Result<(), ConfigError> {
    let Some((section, key)) = name.strip_prefix("CHIMERE_").and_then(|rest| rest.split_once("__")) else { return Ok(()) };
    let (section, key) = (section.to_ascii_lowercase(), key.to_ascii_lowercase());
    let value = match table.get(&section).and_then(|s| s.get(&key)) {
        Some(Value::Integer(_)) => text.parse().map(Value::Integer).ok(),
        Some(Value::Boolean(_)) => text.parse().map(Value::Boolean).ok(),
        Some(Value::Float(_)) => text.parse().map(Value::Float).ok(),
        _ => None,
    };
    put(table, name, &section, &key, value.unwrap_or_else(|| Value::String(text.into())))
}

fn put(table: &mut Table, origin: &str, section: &str, key: &str, value: Value) -> Result<(), ConfigError> {
    let full = format!("{section}.{key}");
    let Some(Value::Table(keys)) = table.get_mut(section) else { return Err(unknown(table, origin, &full)) };
    let Some(old) = keys.get_mut(key) else { return Err(unknown(table, origin, &full)) };
    let value = match (&*old, value) {
        // People write 0 and 1 for shares too.
        (Value::Float(_), Value::Integer(n)) => Value::Float(n as f64),
        (_, value) => value,
    };
    if old.type_str() != value.type_str() {
        let why = format!("wants {}, got {} {value}", article(old.type_str()), article(value.type_str()));
        return Err(ConfigError::BadValue { origin: origin.into(), key: full, why });
    }
    let before = std::mem::replace(old, value);
    // Ranges and names of variants are the struct's knowledge, so it is asked at once, while the layer is known.
    if let Err(e) = Value::Table(table.clone()).try_into::<Config>() {
        let wanted = if before.is_integer() { "is out of range" } else { "is not accepted" };
        return Err(ConfigError::BadValue { origin: origin.into(), key: full, why: format!("{wanted}: {}", e.message().trim()) });
    }
    Ok(())
}

fn article(kind: &str) -> String {
    if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { format!("an {kind}") } else { format!("a {kind}") }
}

fn unknown(table: &Table, origin: &str, key: &str) -> ConfigError {
    let known = table
        .iter()
        .flat_map(|(section, keys)| keys.as_table().into_iter().flat_map(|t| t.keys()).map(move |key| format!("{section}.{key}")));
    let nearest = known.map(|k| (strsim::jaro_winkler(&k, key), k)).max_by(|a, b| a.0.total_cmp(&b.0));
    let nearest = nearest.filter(|(score, _)| *score > 0.6).map(|(_, k)| k);
    ConfigError::UnknownKey { origin: origin.into(), key: key.into(), nearest }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = include_str!("../../config/chimere.toml");

    fn load(file: &str, env: &[(&str, &str)], args: ServeArgs) -> Result<Config, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        std::fs::write(&path, file).unwrap();
        let args = ServeArgs { config: Some(path), ..args };
        Config::load(&args, env.iter().map(|(k, v)| (k.to_string(), v.to_string()))).map_err(|e| match e {
            ConfigError::UnknownKey { key, nearest, .. } => ConfigError::UnknownKey { origin: "c".into(), key, nearest },
            ConfigError::BadValue { key, why, .. } => ConfigError::BadValue { origin: "c".into(), key, why },
            other => other,
        })
    }

    #[test]
    fn the_shown_file_has_every_key_with_its_default_and_says_what_it_is() {
        let shown: Table = SHOWN.parse().unwrap();
        assert_eq!(shown, defaults());
        let mut comment = false;
        for line in SHOWN.lines() {
            if line.contains('=') && !line.starts_with('#') {
                assert!(comment || line.contains('#'), "no comment at: {line}");
            }
            comment = line.starts_with('#');
        }
    }

    #[test]
    fn the_shown_file_names_the_fixed_limits_with_their_values() {
        for (name, value) in [
            ("choices of one request", limits::CHOICES_MAX.to_string()),
            ("prompts of one completion request", limits::PROMPTS_MAX.to_string()),
            ("stop strings of one request", limits::STOP_STRINGS_MAX.to_string()),
            ("bytes of a stop string", limits::STOP_STRING_BYTES_MAX.to_string()),
            ("stop token ids of one request", limits::STOP_TOKEN_IDS_MAX.to_string()),
            ("tokens with a bias in one request", limits::LOGIT_BIAS_MAX.to_string()),
            ("tools of one request", limits::TOOLS_MAX.to_string()),
            ("tokens of a window of certainty", limits::THINKING_WINDOW_TOKENS_MAX.to_string()),
            ("tokens of an answer that is tried", limits::PROBE_TOKENS_MAX.to_string()),
            ("words that are held back", limits::HOLD_WORDS_MAX.to_string()),
            ("bytes of a tool's name", limits::TOOL_NAME_BYTES_MAX.to_string()),
            ("texts of one request for embeddings", limits::EMBEDDING_INPUTS_MAX.to_string()),
            ("tokens of all texts of one request for embeddings", limits::EMBEDDING_TOKENS_MAX.to_string()),
            ("texts of one request for embeddings that are read at a time", limits::EMBEDDING_IN_FLIGHT_MAX.to_string()),
            ("tables that one request may name", limits::ENGRAM_TABLES_MAX.to_string()),
            ("documents that one request may bring", limits::ENGRAM_DOCUMENTS_MAX.to_string()),
            ("tokens of all documents of one request", limits::ENGRAM_DOCUMENT_TOKENS_MAX.to_string()),
            ("texts that a table is taught in one request", limits::ENGRAM_TEXTS_MAX.to_string()),
            ("tokens that one table may have been taught and not forgotten", limits::ENGRAM_LEARNED_TOKENS_MAX.to_string()),
            ("versions of a table that can be gone back to", limits::ENGRAM_VERSIONS_MAX.to_string()),
            ("collections of one key", limits::COLLECTIONS_MAX.to_string()),
            ("items of a collection", limits::COLLECTION_ITEMS_MAX.to_string()),
            ("bytes of an item's text and answer", limits::COLLECTION_ITEM_BYTES_MAX.to_string()),
            ("bytes of an item's id", limits::ITEM_ID_BYTES_MAX.to_string()),
            ("items that one search finds", limits::SEMANTIC_K_MAX.to_string()),
            ("top_logprobs", limits::TOP_LOGPROBS_MAX.to_string()),
            ("prompts that wait for a text thread", limits::TEXT_JOBS_MAX.to_string()),
            ("bytes above which a text has the thread of the long ones", limits::LONG_TEXT_BYTES.to_string()),
            ("long prompts that wait for their text thread", limits::LONG_TEXT_JOBS_MAX.to_string()),
            ("milliseconds of a request's own deadline, at most", limits::DEADLINE_MS_MAX.to_string()),
            (
                "recomputed positions of a sequence in a step, where each is a pass of its own",
                limits::RECOMPUTED_PASSES_MAX.to_string(),
            ),
            ("API keys with a label of their own in the metrics", limits::KEY_LABELS_MAX.to_string()),
            ("steps of the template engine for one conversation", limits::TEMPLATE_STEPS_MAX.to_string()),
            ("connections that wait to be accepted", limits::ACCEPTS_WAITING_MAX.to_string()),
            ("bytes of log records that wait to be written", limits::LOG_BYTES_MAX.to_string()),
            ("spans of traces that wait for their collector", limits::SPANS_WAITING_MAX.to_string()),
            ("steps in flight", limits::STEPS_IN_FLIGHT_MAX.to_string()),
            ("messages of a mailbox", limits::MAILBOX_MESSAGES.to_string()),
            ("seconds of Retry-After, at most", limits::RETRY_AFTER_SECONDS.end().to_string()),
        ] {
            assert!(SHOWN.contains(&format!("# {name}: {value}\n")), "{name}: {value}");
        }
    }

    #[test]
    fn flags_win_over_environment_over_file_over_defaults() {
        let file = "[server]\nport = 1\nhost = \"::1\"\ndrain_seconds = 3\n";
        let env = [("CHIMERE_SERVER__PORT", "2"), ("CHIMERE_SERVER__HOST", "127.0.0.2"), ("CHIMERE_MODEL", "elsewhere")];
        let args = ServeArgs { port: Some(4), ..Default::default() };
        let got = load(file, &env, args).unwrap();
        assert_eq!((got.server.port, got.server.host.as_str(), got.server.drain_seconds), (4, "127.0.0.2", 3));
        assert_eq!(got.limits, Limits::default());
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_name() {
        let err = load("[server]\nprot = 1\n", &[], ServeArgs::default()).unwrap_err();
        assert_eq!(err.to_string(), "c: no key server.prot, did you mean server.port?");
        let err = load("", &[("CHIMERE_ENGINE__THREAD", "2")], ServeArgs::default()).unwrap_err();
        assert_eq!(err.to_string(), "c: no key engine.thread, did you mean engine.threads?");
        let err = load("[sever]\nport = 1\n", &[], ServeArgs::default()).unwrap_err();
        assert_eq!(err.to_string(), "c: no key sever.port, did you mean server.port?");
        let err = load("port = 1\n", &[], ServeArgs::default()).unwrap_err();
        assert!(err.to_string().starts_with("c: no key port"), "{err}");
    }

    #[test]
    fn a_value_of_the_wrong_type_or_range_names_its_key() {
        let err = load("[server]\nport = \"x\"\n", &[], ServeArgs::default()).unwrap_err();
        assert_eq!(err.to_string(), "c: server.port wants an integer, got a string \"x\"");
        let err = load("[server]\nport = 70000\n", &[], ServeArgs::default()).unwrap_err();
        assert!(err.to_string().starts_with("c: server.port is out of range"), "{err}");
        let err = load("[engine]\nthreads = 1025\n", &[], ServeArgs::default()).unwrap_err();
        assert_eq!(err.to_string(), "c: engine.threads must be at most 1024, got 1025");
        let err = load("[engine]\nkv_type = \"q9\"\n", &[], ServeArgs::default()).unwrap_err();
        assert!(err.to_string().starts_with("c: engine.kv_type is not accepted"), "{err}");
        let err = load("", &[("CHIMERE_SERVER__ALLOW_OPEN", "yes")], ServeArgs::default()).unwrap_err();
        assert!(err.to_string().starts_with("c: server.allow_open wants a boolean"), "{err}");
    }

    #[test]
    fn a_type_of_the_cache_reads_as_it_is_written_and_one_word_means_both() {
        for (text, want) in
            [("f16", KvType::F16), ("q8_0:q4_0", KvType::Q8_0Q4_0), ("q8_0:q8_0", KvType::Q8_0), ("q8_0", KvType::Q8_0)]
        {
            let got = load(&format!("[engine]\nkv_type = \"{text}\"\n"), &[], ServeArgs::default()).unwrap();
            assert_eq!(got.engine.kv_type, want);
        }
        for (text, want) in [("auto", Activations::Auto), ("int8", Activations::Int8), ("int16", Activations::Int16)] {
            let got = load(&format!("[engine]\nactivations = \"{text}\"\n"), &[], ServeArgs::default()).unwrap();
            assert_eq!(got.engine.activations, want);
        }
        let args = ServeArgs { activations: Some(Activations::Int8), ..Default::default() };
        assert_eq!(load("[engine]\nactivations = \"int16\"\n", &[], args).unwrap().engine.activations, Activations::Int8);
        let args = ServeArgs { embedding: Some(Embedding::Host), kv_type: Some(KvType::Q8_0), ..Default::default() };
        let got = load("", &[], args).unwrap();
        assert_eq!((got.engine.embedding, got.engine.kv_type), (Embedding::Host, KvType::Q8_0));
    }

    #[test]
    fn a_certificate_comes_with_its_key_and_an_origin_has_no_path() {
        let err = load("[server]\ntls_key = \"k.pem\"\n", &[], ServeArgs::default()).unwrap_err();
        assert_eq!(err.to_string(), "c: server.tls_certificate must be given with server.tls_key, got nothing");
        let good =
            load("[server]\ncors_origins = \"https://a.example, http://localhost:3000\"\n", &[], ServeArgs::default()).unwrap();
        assert_eq!(origins(&good.server.cors_origins).count(), 2);
        for bad in ["a.example", "https://a.example/", "https://", "https://*.example"] {
            let err = load(&format!("[server]\ncors_origins = \"{bad}\"\n"), &[], ServeArgs::default()).unwrap_err();
            assert!(err.to_string().starts_with("c: server.cors_origins wants"), "{err}");
        }
        let err = load("[limits]\nbodies_bytes = 1\n", &[], ServeArgs::default()).unwrap_err();
        assert_eq!(err.to_string(), "c: limits.bodies_bytes must be at least limits.body_bytes, 8388608, got 1");
        let err = load("[limits]\nhead_seconds = 0\n", &[], ServeArgs::default()).unwrap_err();
        assert_eq!(err.to_string(), "c: limits.head_seconds must be at least 1, got 0");
    }

    #[test]
    fn a_collector_of_traces_is_an_address_without_encryption() {
        for bad in ["127.0.0.1:4318", "https://collector:4318", "http://", "http://a/?b", "collector"] {
            let err = load(&format!("[trace]\nendpoint = \"{bad}\"\n"), &[], ServeArgs::default()).unwrap_err();
            assert!(err.to_string().starts_with("c: trace.endpoint wants an address such as"), "{err}");
        }
        for good in ["http://127.0.0.1:4318", "http://collector", "http://[::1]:4318/prefix/"] {
            let args = ServeArgs { trace_endpoint: Some(good.into()), ..Default::default() };
            assert_eq!(load("", &[], args).unwrap().trace, Trace { endpoint: good.into(), share: 1.0 });
        }
        let err = load("[trace]\nshare = 2\n", &[], ServeArgs::default()).unwrap_err();
        assert_eq!(err.to_string(), "c: trace.share must lie between 0 and 1, got 2");
    }

    #[test]
    fn a_step_has_room_for_a_chunk_or_takes_the_device_s_own() {
        let err = load("[engine]\nstep_tokens = 63\n", &[], ServeArgs::default()).unwrap_err();
        assert_eq!(err.to_string(), "c: engine.step_tokens must be 0 or at least 64, got 63");
        assert!(load("[engine]\nstep_tokens = 0\n", &[], ServeArgs::default()).is_ok());
    }

    #[test]
    fn shares_are_numbers_of_any_kind_between_0_and_1() {
        let env = [("CHIMERE_THINKING__PROBE_ENTROPY", "0.25"), ("CHIMERE_THINKING__HOLD_ENTROPY", "1")];
        let got = load("[thinking]\nstop_top_prob = 1\n", &env, ServeArgs::default()).unwrap().thinking;
        assert_eq!((got.probe_entropy, got.hold_entropy, got.stop_top_prob), (0.25, 1.0, 1.0));
        for (file, why) in [
            ("hold_entropy = 1.5", "c: thinking.hold_entropy must lie in 0..=1, got 1.5"),
            ("hold_words = [\"Wait\", \" \"]", "c: thinking.hold_words must not have an empty word"),
            ("window_tokens = 0", "c: thinking.window_tokens must lie in 1..=1024, got 0"),
            ("probe_tokens = 300", "c: thinking.probe_tokens must lie in 1..=256, got 300"),
        ] {
            assert_eq!(load(&format!("[thinking]\n{file}\n"), &[], ServeArgs::default()).unwrap_err().to_string(), why);
        }
        let err = load("[thinking]\nhold_words = \"Wait\"\n", &[], ServeArgs::default()).unwrap_err();
        assert!(err.to_string().starts_with("c: thinking.hold_words wants an array"), "{err}");
    }

    #[test]
    fn bytes_read_as_people_write_them() {
        for (text, want) in [("12GiB", 12 << 30), ("1.5 GiB", 3 << 29), ("900MB", 900_000_000), ("4096", 4096), ("7B", 7)] {
            assert_eq!(text.parse(), Ok(Budget::Bytes(want)), "{text}");
        }
        assert_eq!("auto".parse(), Ok(Budget::Auto));
        for text in ["", "GiB", "-1GiB", "1e400", "NaN", "12 parsecs", "0"] {
            assert!(text.parse::<Budget>().is_err(), "{text}");
        }
    }
}

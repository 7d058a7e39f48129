//! The flags of `chimere serve`.

use super::{
    Activations, Budget, Device, Devices, DraftIds, DraftSources, Drafts, Embedding, KvType, PrefixCacheMode, Residents,
};
use std::path::{Path, PathBuf};
use toml::Value;

// Headings of --help.
const MODEL: &str = "Model";
const NETWORK: &str = "Network";
const ACCESS: &str = "Access";
const COMPUTING: &str = "Computing";
const SIZES_AND_MEMORY: &str = "Sizes and memory";

/// Flags of `chimere serve`. Each overrides a key of the configuration; what is absent here comes from the environment
/// (`CHIMERE_SERVER__PORT`), then from the file, then from the defaults.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ServeArgs {
    /// Model: a GGUF file (the first of a split one), or a directory with one, or a Hugging Face directory
    /// [default: $CHIMERE_MODEL, ./models/nano, <exe>/../share/chimere/nano]
    #[arg(long, value_name = "FILE|DIR", help_heading = MODEL)]
    pub model: Option<PathBuf>,
    /// Name of the model in the API [default: the model's own]
    #[arg(long, value_name = "S", help_heading = MODEL)]
    pub model_name: Option<String>,
    /// Configuration file; config/chimere.toml lists every key
    #[arg(long, value_name = "FILE", help_heading = MODEL)]
    pub config: Option<PathBuf>,
    /// Address to listen on; beyond loopback only with --api-key-file or --allow-open [default: 127.0.0.1]
    #[arg(long, value_name = "H", help_heading = NETWORK)]
    pub host: Option<String>,
    /// Port to listen on, 0 for a free one [default: 8080]
    #[arg(long, value_name = "P", help_heading = NETWORK)]
    pub port: Option<u16>,
    /// Port of a listener of its own for /health, /ready and /metrics, on the same address [default: none]
    #[arg(long, value_name = "P", help_heading = NETWORK)]
    pub admin_port: Option<u16>,
    /// Serve no web console at /
    #[arg(long, help_heading = NETWORK)]
    pub no_console: bool,
    /// Seconds that running streams may take to finish after SIGINT or SIGTERM [default: 15]
    #[arg(long, value_name = "S", help_heading = NETWORK)]
    pub drain_seconds: Option<u64>,
    /// Collector of OpenTelemetry that spans of requests are sent to, over HTTP as JSON, such as http://127.0.0.1:4318
    /// [default: none]
    #[arg(long, value_name = "URL", help_heading = NETWORK)]
    pub trace_endpoint: Option<String>,
    /// File of API keys, one a line, # starts a comment
    #[arg(long, value_name = "F", help_heading = ACCESS)]
    pub api_key_file: Option<PathBuf>,
    /// Listen beyond loopback without API keys
    #[arg(long, help_heading = ACCESS)]
    pub allow_open: bool,
    /// Where to compute [default: auto]
    #[arg(long, value_enum, help_heading = COMPUTING)]
    pub device: Option<Device>,
    /// GPUs that compute, each with a replica of the engine: all that hold the model, or numbers with commas between
    /// them; one that is named twice has two replicas, which share its memory [default: the first one]
    #[arg(long, value_name = "all|N,N", help_heading = COMPUTING)]
    pub devices: Option<Devices>,
    /// Threads that compute on the CPU, 0 for every core [default: 0]
    #[arg(long, value_name = "N", help_heading = COMPUTING)]
    pub threads: Option<u32>,
    /// Replicas of the engine that share the CPU's threads and memory, 1 to 32; on GPUs --devices says how
    /// many [default: 1]
    #[arg(long, value_name = "N", help_heading = COMPUTING)]
    pub replicas: Option<u32>,
    /// Bits of activations when a GPU computes: int16 is closer to the exact path, at twice the matrix instructions;
    /// auto takes it for models of less than 1 GiB and for 16-bit weights [default: auto]
    #[arg(long, value_enum, help_heading = COMPUTING)]
    pub activations: Option<Activations>,
    /// Compute with decoded weights and f32 activations and KV: on the CPU only, slow, the yardstick
    #[arg(long, help_heading = COMPUTING)]
    pub exact: bool,
    /// Tokens to draft behind one: auto as many as save time, off, or a number from 1 to 7; changes no answer [default:
    /// auto]
    #[arg(long, value_name = "N", help_heading = COMPUTING)]
    pub drafts: Option<Drafts>,
    /// Who drafts, with commas between them: ngram (what came before after the same tokens), prediction (what a request
    /// says its answer may be), grammar (what a form leaves no choice of), mtp (the model's own draft head) [default: all]
    #[arg(long, value_name = "S", help_heading = COMPUTING)]
    pub draft_sources: Option<DraftSources>,
    /// What the model's draft head guesses among: all ids, those below a number, those in a file, one a line; auto the
    /// first 65,536 of 131,072 and more [default: auto]
    #[arg(long, value_name = "auto|all|N|FILE", help_heading = COMPUTING)]
    pub draft_ids: Option<DraftIds>,
    /// Sequences that run at once [default: 16 on a CPU, 64 on a GPU]
    #[arg(long, value_name = "N", help_heading = SIZES_AND_MEMORY)]
    pub max_seqs: Option<u32>,
    /// Tokens a sequence may have, prompt and output together [default: the model's own]
    #[arg(long, value_name = "N", help_heading = SIZES_AND_MEMORY)]
    pub max_context: Option<u32>,
    /// Tokens that one step may compute [default: 512 on a CPU, 2048 to 8192 on a GPU, by its memory]
    #[arg(long, value_name = "N", help_heading = SIZES_AND_MEMORY)]
    pub step_tokens: Option<u32>,
    /// Memory for all that the process takes on its device: bytes such as 12GiB, or auto for what is free less a margin
    /// [default: auto]
    #[arg(long, value_name = "BYTES", help_heading = SIZES_AND_MEMORY)]
    pub vram_budget: Option<Budget>,
    /// Type of the KV cache: keys and values, or keys:values; f32 on the CPU only, q8_0 on a GPU only [default: f16]
    #[arg(long, value_enum, help_heading = SIZES_AND_MEMORY)]
    pub kv_type: Option<KvType>,
    /// Where the rows of the embedding lie when a GPU computes; host spares device memory [default: device]
    #[arg(long, value_enum, help_heading = SIZES_AND_MEMORY)]
    pub embedding: Option<Embedding>,
    /// Routed experts in the memory of a GPU: auto (all, or as many as fit beside the rest), a number of each layer, or
    /// bytes such as 9GiB; the others are read in the host's memory, which changes no byte of an answer [default: auto]
    #[arg(long, value_name = "N|BYTES", help_heading = SIZES_AND_MEMORY)]
    pub experts_resident: Option<Residents>,
    /// Keep what prompts leave behind, so that the next turn of a conversation costs its last exchange: auto where the
    /// memory has room for it, on or there is no service, off to read every prompt whole [default: auto]
    #[arg(long, value_enum, help_heading = SIZES_AND_MEMORY)]
    pub prefix_cache: Option<PrefixCacheMode>,
    /// Memory of the host for prompts that a GPU has no room to keep: bytes such as 8GiB, 0 for none; auto takes a
    /// quarter of what is free, at most 16GiB [default: auto]
    #[arg(long, value_name = "BYTES", help_heading = SIZES_AND_MEMORY)]
    pub host_cache_budget: Option<Budget>,
}

impl ServeArgs {
    /// The keys that these flags set.
    pub(super) fn overrides(&self) -> Vec<(&'static str, &'static str, Value)> {
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
        put("server", "admin_port", self.admin_port.map(|n| Value::Integer(n.into())));
        put("server", "allow_open", self.allow_open.then_some(Value::Boolean(true)));
        put("server", "console", self.no_console.then_some(Value::Boolean(false)));
        put("server", "drain_seconds", self.drain_seconds.map(integer));
        put("trace", "endpoint", self.trace_endpoint.clone().map(Value::String));
        put("engine", "device", self.device.and_then(|d| Value::try_from(d).ok()));
        put("engine", "devices", self.devices.clone().map(|d| Value::String(d.into())));
        put("engine", "threads", self.threads.map(|n| Value::Integer(n.into())));
        put("engine", "replicas", self.replicas.map(|n| Value::Integer(n.into())));
        put("engine", "max_seqs", self.max_seqs.map(|n| Value::Integer(n.into())));
        put("engine", "max_context", self.max_context.map(|n| Value::Integer(n.into())));
        put("engine", "step_tokens", self.step_tokens.map(|n| Value::Integer(n.into())));
        put("engine", "vram_budget", self.vram_budget.map(|b| Value::String(b.into())));
        put("engine", "kv_type", self.kv_type.map(|k| Value::String(k.name().into())));
        put("engine", "activations", self.activations.and_then(|a| Value::try_from(a).ok()));
        put("engine", "embedding", self.embedding.and_then(|e| Value::try_from(e).ok()));
        put("engine", "experts_resident", self.experts_resident.map(|r| Value::String(r.into())));
        put("engine", "drafts", self.drafts.map(|d| Value::String(d.into())));
        put("engine", "draft_sources", self.draft_sources.map(|s| Value::String(s.into())));
        put("engine", "draft_ids", self.draft_ids.clone().map(|ids| Value::String(ids.into())));
        put("engine", "exact", self.exact.then_some(Value::Boolean(true)));
        put("cache", "prefix", self.prefix_cache.and_then(|c| Value::try_from(c).ok()));
        put("cache", "host_budget", self.host_cache_budget.map(|b| Value::String(b.into())));
        set
    }
}

fn integer(n: u64) -> Value {
    Value::Integer(i64::try_from(n).unwrap_or(i64::MAX))
}

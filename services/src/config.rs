//! Configuration: defaults < file < environment < flags, every key known, and its check.
//!
//! All four layers meet in one TOML table whose shape is that of [`Config::default`], so a key that no field has cannot
//! come in by any of them. `config/chimere.toml` shows every key; a test holds it to the struct.

mod args;
mod cache;
mod check;
mod decide;
mod documents;
mod engine;
mod engram;
mod error;
mod layers;
mod limits;
mod log;
mod model;
mod responses;
mod server;
#[cfg(test)]
mod tests;
mod thinking;
mod trace;

pub use crate::web::{WebFetch, WebKeys};
pub use args::ServeArgs;
pub use cache::{Cache, EventKeys, PrefixCacheMode};
pub use decide::Decide;
pub use documents::DocumentKeys;
pub(crate) use engine::shares;
pub use engine::{
    Activations, Budget, Device, Devices, DraftIds, DraftSources, Drafts, Embedding, Engine, KvType, Residents,
};
pub use engram::Engram;
pub use error::ConfigError;
pub use limits::Limits;
pub use log::{Log, LogFormat};
pub use model::{AdapterKeys, ModelChoice, PipelineKeys, aliases};
pub use responses::{LearningKeys, Responses};
pub use server::{Mcp, Server, ToolKeys, items};
pub use trace::Trace;

/// How a model thinks.
pub use crate::text::thinking::Settings as Thinking;

use serde::{Deserialize, Serialize};
use toml::Value;

/// What the service runs with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Who may connect, and how it ends.
    pub server: Server,
    /// Section `[model]`: the file or folder that is served, and the name it goes by.
    pub model: ModelChoice,
    /// How it is computed.
    pub engine: Engine,
    /// What prompts leave behind.
    pub cache: Cache,
    /// How long models think.
    pub thinking: Thinking,
    /// Section `[limits]`: bounds on waiting, on memory and on what one request may ask for.
    pub limits: Limits,
    /// Section `[engram]`: tables of n-grams, and how strongly they change probabilities.
    pub engram: Engram,
    /// Section `[documents]`: files that accounts upload, and how they are read to be searched.
    pub documents: DocumentKeys,
    /// Section `[adapters]`: low-rank changes of the model that are served beside it.
    pub adapters: AdapterKeys,
    /// Section `[events]`: what the prefix cache keeps, told to routers.
    pub events: EventKeys,
    /// Section `[decide]`: questions with given options.
    pub decide: Decide,
    /// Section `[pipelines]`: workflows that are asked for by a model's name.
    pub pipelines: PipelineKeys,
    /// Section `[web]`: searches of the web, and pages that are read.
    pub web: WebKeys,
    /// Section `[mcp]`: tools for agents.
    pub mcp: Mcp,
    /// Section `[tools]`: tools that the service runs for models.
    pub tools: ToolKeys,
    /// What is kept for those who go on from it.
    pub responses: Responses,
    /// Section `[learning]`: answers that people rate and correct.
    pub learning: LearningKeys,
    /// What is written to standard error.
    pub log: Log,
    /// Where spans of requests go.
    pub trace: Trace,
}

impl Config {
    /// Lays the four layers over each other and checks the result. `env` is the process environment, or a test's.
    pub fn load(args: &ServeArgs, env: impl Iterator<Item = (String, String)>) -> Result<Config, ConfigError> {
        let table = layers::table(args, env)?;
        let refused = |key: String, why: String| ConfigError::BadValue { origin: "configuration".into(), key, why };
        let config: Result<Config, toml::de::Error> = Value::Table(table).try_into();
        let config = config.map_err(|e| refused(String::new(), e.message().into()))?;
        for (section, checked) in [
            ("server", config.server.check()),
            ("engine", config.engine.check()),
            ("thinking", thinking::check(&config.thinking)),
            ("limits", config.limits.check()),
            ("engram", config.engram.check()),
            ("documents", config.documents.check()),
            ("decide", config.decide.check()),
            ("events", config.events.check()),
            ("adapters", config.adapters.check()),
            ("pipelines", config.pipelines.check()),
            ("web", config.web.check()),
            ("mcp", config.mcp.check()),
            ("responses", config.responses.check()),
            ("learning", config.learning.check()),
            ("trace", config.trace.check()),
        ] {
            checked.map_err(|(key, why)| refused(format!("{section}.{key}"), why))?;
        }
        Ok(config)
    }
}

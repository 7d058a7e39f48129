//! The section `log`.

use serde::{Deserialize, Serialize};

/// Log lines; outputs are never among them, prompts only when asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Log {
    /// Filter as of `tracing`: `info`, `chimere=debug`.
    pub filter: String,
    /// One line a record, or JSON.
    pub format: LogFormat,
    /// Log the prompt of every request, as the model reads it.
    pub prompts: bool,
    /// File that the audit records are added to; empty writes them to the log.
    pub audit: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "warn,chimere=info".into(), format: LogFormat::Text, prompts: false, audit: String::new() }
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

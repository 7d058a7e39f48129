//! The section `pipelines`.

use super::check::{InvalidKey, within};
use crate::limits::SECONDS_MAX;
use serde::{Deserialize, Serialize};

/// Workflows that are asked for by a model's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PipelineKeys {
    /// Directory of their files; empty has none.
    pub directory: String,
    /// Seconds after which the directory is looked at again; 0 for never.
    pub reload_seconds: u64,
}

impl Default for PipelineKeys {
    fn default() -> Self {
        Self { directory: String::new(), reload_seconds: 10 }
    }
}

impl PipelineKeys {
    pub(super) fn check(&self) -> Result<(), InvalidKey> {
        within("reload_seconds", self.reload_seconds, 0..=SECONDS_MAX)
    }
}

//! The section `cache`.

use super::Budget;
use serde::{Deserialize, Serialize};

/// What prompts leave behind for others that begin alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cache {
    /// Keep it on the device that computes.
    pub prefix: PrefixCacheMode,
    /// Memory of the host for what a GPU has no room for; 0 for none.
    pub host_budget: Budget,
}

impl Default for Cache {
    fn default() -> Self {
        Self { prefix: PrefixCacheMode::default(), host_budget: Budget::Auto }
    }
}

/// Whether there is a prefix cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PrefixCacheMode {
    /// Where the memory has room for it.
    #[default]
    Auto,
    /// Or there is no service.
    On,
    /// Every prompt is read whole.
    Off,
}

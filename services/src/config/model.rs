//! The sections `model`, `adapters` and `pipelines`: what answers to which name.

use super::check::{InvalidKey, within};
use crate::limits::{
    self, ADAPTER_HOST_MIB, ADAPTER_HOST_MIB_MAX, ADAPTER_KL_MAX, ADAPTER_SLOTS, ADAPTERS_MAX, SECONDS_MAX,
};
use chimere_engine::backend::cuda::AdapterRoom;
use serde::{Deserialize, Serialize};

/// The model and the name that it answers to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelChoice {
    /// GGUF file or directory; empty looks in the usual places.
    pub path: String,
    /// Name in the API; empty takes the model's own.
    pub name: String,
    /// Other names that it answers to, with commas between them.
    pub aliases: String,
}

/// The names of a list.
pub fn aliases(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// Adapters that are served beside the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdapterKeys {
    /// Directory of adapters: directories in PEFT's layout and GGUF files; empty serves none.
    pub directory: String,
    /// Different adapters that the rows of one step may have.
    pub slots: usize,
    /// The largest rank that is accepted.
    pub rank_max: usize,
    /// Mebibytes of the host's memory that all loaded adapters may take.
    pub host_mib: u64,
    /// Nats that an adapter may change what the model says by, on average over the prompts of its probe.
    pub kl_max: f64,
}

impl Default for AdapterKeys {
    fn default() -> Self {
        let directory = String::new();
        let (slots, rank_max, host_mib) = (ADAPTER_SLOTS, limits::ADAPTER_RANK_MAX, ADAPTER_HOST_MIB);
        Self { directory, slots, rank_max, host_mib, kl_max: ADAPTER_KL_MAX }
    }
}

impl AdapterKeys {
    /// The slots, where adapters are served at all.
    pub fn slots_used(&self) -> usize {
        if self.directory.is_empty() { 0 } else { self.slots }
    }

    /// What a GPU keeps of them.
    pub fn room(&self) -> AdapterRoom {
        AdapterRoom { slots: self.slots_used(), rank_max: self.rank_max }
    }

    pub(super) fn check(&self) -> Result<(), InvalidKey> {
        within("slots", self.slots, 1..=ADAPTERS_MAX)?;
        within("rank_max", self.rank_max, 1..=chimere_engine::adapter::ADAPTER_RANK_MAX)?;
        within("host_mib", self.host_mib, 1..=ADAPTER_HOST_MIB_MAX)?;
        within("kl_max", self.kl_max, 0.0..=f64::MAX)
    }
}

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

//! The section `engine`.

mod activations;
mod budget;
mod devices;
mod draft_ids;
mod drafts;
mod residents;

pub use activations::Activations;
pub use budget::Budget;
pub use devices::Devices;
pub(crate) use devices::shares;
pub use draft_ids::DraftIds;
pub use drafts::{DraftSources, Drafts};
pub use residents::Residents;

use super::check::{InvalidKey, threads, within};
use crate::limits;
use chimere_engine::drafts::{DraftKinds, DraftMode};
use serde::{Deserialize, Serialize};

/// On which device the model is computed, in how much memory, and how exactly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Engine {
    /// The device that computes steps.
    pub device: Device,
    /// GPUs that compute, each with a replica.
    pub devices: Devices,
    /// Threads that compute on the CPU; 0 takes every core.
    pub threads: u32,
    /// Core that the thread of the engine is pinned to; -1 lets the system choose.
    pub core: i64,
    /// Replicas of the engine that share the CPU's threads and memory, each with its own scheduler; on GPUs as many as
    /// `devices` names.
    pub replicas: u32,
    /// Share of the replicas that have to live for the service to call itself ready, 0 to 1; one always has to.
    pub ready_share: f64,
    /// Sequences that run at once; 0 takes 16 on a CPU and 64 on a GPU.
    pub max_seqs: u32,
    /// Positions a sequence may have, prompt and output together; 0 takes the model's own.
    pub max_context: u32,
    /// Positions one step may compute; 0 takes 512 on a CPU and 2048 to 8192 on a GPU, by its memory.
    pub step_tokens: u32,
    /// Milliseconds between two tokens of a stream that steps are planned to keep while prompts are computed; 0 sets no
    /// target.
    pub itl_target_ms: u32,
    /// Seconds that a step may go without progress before the engine is held to be lost; a step that should take long
    /// may take twenty times its prediction.
    pub watchdog_seconds: u64,
    /// Bytes for everything that the process takes on its device; `auto` takes the free memory less a margin.
    pub vram_budget: Budget,
    /// Type of the KV cache.
    pub kv_type: KvType,
    /// Bits of activations when a GPU computes.
    pub activations: Activations,
    /// Where the rows of the embedding lie when a GPU computes.
    pub embedding: Embedding,
    /// Which routed experts lie in a GPU's own memory.
    pub experts_resident: Residents,
    /// Decoded weights, f32 activations and KV.
    pub exact: bool,
    /// How many tokens are drafted behind one; changes no byte.
    pub drafts: Drafts,
    /// The proposers that speculative decoding may use; changes no byte.
    pub draft_sources: DraftSources,
    /// What the model's draft head guesses among; changes no byte.
    pub draft_ids: DraftIds,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            device: Device::Auto,
            devices: Devices::First,
            threads: 0,
            core: -1,
            replicas: 1,
            ready_share: 0.5,
            max_seqs: 0,
            max_context: 0,
            step_tokens: 0,
            itl_target_ms: limits::ITL_TARGET_MS,
            watchdog_seconds: limits::WATCHDOG_SECONDS,
            vram_budget: Budget::Auto,
            kv_type: KvType::F16,
            activations: Activations::Auto,
            embedding: Embedding::Device,
            experts_resident: Residents::Auto,
            exact: false,
            drafts: Drafts(DraftMode::Auto),
            draft_sources: DraftSources(DraftKinds::all()),
            draft_ids: DraftIds::Auto,
        }
    }
}

impl Engine {
    pub(super) fn check(&self) -> Result<(), InvalidKey> {
        threads("threads", self.threads)?;
        let chunk = chimere_engine::CHUNK_TOKENS;
        if (1..chunk).contains(&self.step_tokens) {
            return Err(("step_tokens", format!("must be 0 or at least {chunk}, got {}", self.step_tokens)));
        }
        if !(1..=limits::WATCHDOG_SECONDS_MAX).contains(&self.watchdog_seconds) {
            let (max, got) = (limits::WATCHDOG_SECONDS_MAX, self.watchdog_seconds);
            return Err(("watchdog_seconds", format!("must be 1 to {max}, got {got}")));
        }
        within("replicas", self.replicas, 1..=limits::REPLICAS_MAX)?;
        within("ready_share", self.ready_share, 0.0..=1.0)?;
        if self.core < -1 {
            return Err(("core", format!("must be a core's number or -1, got {}", self.core)));
        }
        Ok(())
    }
}

/// A device that can compute steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// A GPU where one can be used, else this machine's cores.
    Auto,
    /// The cores of this machine.
    Cpu,
    /// A GPU of NVIDIA's, through CUDA.
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

/// Where the rows of the embedding lie when a GPU computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Embedding {
    /// With the other weights.
    Device,
    /// In the host's memory, read over the bus: a row a token, so it costs little time and spares the device a whole
    /// matrix.
    Host,
}

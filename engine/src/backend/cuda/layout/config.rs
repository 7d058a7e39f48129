//! Sizes of a CUDA backend as they are configured, before a model is known.

use chimere_kernels::cuda::attention::KvType;
use chimere_kernels::cuda::lora::RANK_MULTIPLE;
use std::path::PathBuf;

/// How keys and values are stored on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvStorage {
    /// 16 bits a value.
    F16,
    /// Keys Q8_0 after a Hadamard rotation, values Q8_0: 8.5 bits each.
    Q8Q8,
    /// Keys Q8_0 after a Hadamard rotation, values Q4_0: 8.5 and 4.5 bits.
    Q8Q4,
}

/// How many adapters a device holds at a time, and how large they may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdapterRoom {
    /// Adapters whose matrices lie on the device; 0 for a backend without.
    pub slots: usize,
    /// Largest rank of any matrix.
    pub rank_max: usize,
}

impl AdapterRoom {
    /// The largest rank of adapters that there is room for, as they lie in memory; 0 where there is none.
    pub(crate) fn rank(self) -> usize {
        if self.slots > 0 { self.rank_max.next_multiple_of(RANK_MULTIPLE) } else { 0 }
    }

    /// Whether there is room for any adapter.
    pub(crate) fn holds_any(self) -> bool {
        self.rank() > 0
    }
}

/// Bits of an activation, of which 32 share a scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// 16 where that costs little speed or the weights deserve it, 8 elsewhere: see [`Activations::of`].
    #[default]
    Auto,
    /// 8 bits a value.
    Int8,
    /// 16: twice the matrix instructions, which bound many rows and large models, and twice the bytes of a step's rows.
    Int16,
}

/// Sizes of a CUDA backend; all counts are positive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaConfig {
    /// Which of the devices that the driver shows.
    pub ordinal: usize,
    /// The backend has a context of its own on that device. One device's backends share its primary context otherwise,
    /// and an error that ends it ends all of them.
    pub own_context: bool,
    /// How many sequences can have state at once.
    pub slots: u32,
    /// How many recurrent states the prefix cache can keep.
    pub checkpoints: u32,
    /// Bytes of the host's memory for what the prefix cache keeps beyond them; 0 for none.
    pub host_cache_bytes: u64,
    /// How many pages of keys and values there are.
    pub pages: u32,
    /// Type of keys and values.
    pub kv: KvStorage,
    /// How many bits activations are rounded to.
    pub activations: Activations,
    /// Rows one step may have.
    pub step_rows_max: u32,
    /// Positions a sequence may have.
    pub context: u32,
    /// Drafted tokens that may stand behind one sequence's own; 0 takes none.
    pub drafts: u32,
    /// Guesses of the model's draft head are wanted, where it has one.
    pub draft_head: bool,
    /// Rows of the embedding stay in pinned host memory and are read over the bus.
    pub host_embedding: bool,
    /// Bytes of the device's memory for routed experts. Those beyond lie in pinned memory of the host, and kernels read
    /// them there. `None` for all that there are.
    pub expert_bytes: Option<u64>,
    /// Decode rows take the experts that [`crate::backend::cuda::CudaBackend::give_experts`] says and choose none: for benchmarks.
    pub replayed: bool,
    /// Room for low-rank adapters; none by default.
    pub adapters: AdapterRoom,
    /// Where compiled kernels are kept; `None` takes [`crate::backend::cuda::KernelCache::default_dir`].
    pub kernel_cache: Option<PathBuf>,
}

/// What of a model's weights is brought, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The embedding lies in the host's memory.
    pub(crate) host_embedding: bool,
    /// Bytes of the device's memory for routed experts, if there is such a limit.
    pub(crate) expert_bytes: Option<u64>,
    /// The draft head is brought too.
    pub(crate) draft: bool,
}

impl From<KvStorage> for KvType {
    fn from(kv: KvStorage) -> Self {
        match kv {
            KvStorage::F16 => KvType::F16,
            KvStorage::Q8Q8 => KvType::Q8,
            KvStorage::Q8Q4 => KvType::Q8Q4,
        }
    }
}

#[cfg(test)]
impl CudaConfig {
    /// For tests: so many slots of one page and steps of 64 rows, without anything that may be left out.
    pub(crate) fn of_slots(slots: u32) -> Self {
        Self {
            ordinal: 0,
            own_context: false,
            slots,
            checkpoints: 0,
            host_cache_bytes: 0,
            pages: 1,
            kv: KvStorage::F16,
            activations: Activations::Auto,
            step_rows_max: 64,
            context: 64,
            drafts: 0,
            draft_head: false,
            host_embedding: false,
            expert_bytes: None,
            replayed: false,
            adapters: AdapterRoom::default(),
            kernel_cache: None,
        }
    }
}

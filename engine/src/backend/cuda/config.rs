//! Sizes of a CUDA backend, and the memory that follows from them, known before any of it is taken.

use super::activations::Activations;
use super::blocks::OpQuery;
use super::mtp::{self, Guessing};
use super::shape::{Counts, buckets, passes};
use super::store::StoreShape;
use super::weights::planned_bytes;
use super::workspace::Workspace;
use super::{history, pooling, programs, sampling};
use crate::model::{Model, ModelConfig};
use crate::step::DraftRoom;
use chimere_kernels::cuda::attention::KvType;
use chimere_kernels::cuda::draft_head;
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

/// Sizes of a CUDA backend; all counts are positive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaConfig {
    /// Which of the devices that the driver shows.
    pub ordinal: usize,
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
    pub mtp: bool,
    /// Rows of the embedding stay in pinned host memory and are read over the bus.
    pub host_embedding: bool,
    /// Bytes of the device's memory for routed experts. Those beyond lie in pinned memory of the host, and kernels read
    /// them there. `None` for all that there are.
    pub expert_bytes: Option<u64>,
    /// Decode rows take the experts that [`super::CudaBackend::give_experts`] says and choose none: for benchmarks.
    pub replayed: bool,
    /// Where compiled kernels are kept; `None` takes [`super::KernelCache::default_dir`].
    pub kernel_cache: Option<PathBuf>,
}

impl CudaConfig {
    /// What is done of it for this model: one with an operator whose state drafted rows would change for good takes none.
    pub fn of(&self, model: &ModelConfig) -> Self {
        let takes = model.blocks().all(|block| OpQuery(&block.op).takes_drafts());
        let drafts = if takes { self.drafts } else { 0 };
        // Experts of the head are not among those that lie in two memories.
        let mtp = self.mtp && drafts > 0 && self.expert_bytes.is_none() && mtp::is_computed(model);
        Self { drafts, mtp, ..self.clone() }
    }

    /// The model as far as it is computed: without a draft head where its guesses are not wanted.
    pub(super) fn computed(&self, model: &ModelConfig) -> ModelConfig {
        let draft = if self.mtp { model.draft.clone() } else { Vec::new() };
        ModelConfig { draft, ..model.clone() }
    }

    /// What of the weights is brought, and where.
    pub(super) fn placement(&self) -> Placement {
        Placement { host_embedding: self.host_embedding, expert_bytes: self.expert_bytes, draft: self.mtp }
    }

    /// Drafted tokens that steps may have: as many as the largest decode graph has rows for.
    pub(super) fn draft_room(&self) -> DraftRoom {
        if self.drafts == 0 {
            return DraftRoom::default();
        }
        let rows_max = Counts::of(self).decode as u32;
        let (piece_max, step_max, guesses) = (self.drafts, rows_max, self.mtp);
        let follow_rows_max = rows_max.min(draft_head::ROWS_MAX as u32).min(sampling::LAUNCH_ROWS as u32);
        DraftRoom { piece_max, step_max, rows_max, penalties: false, guesses, follow_rows_max }
    }
}

/// What of a model's weights is brought, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Placement {
    /// The embedding lies in the host's memory.
    pub(super) host_embedding: bool,
    /// Bytes of the device's memory for routed experts, if there is such a limit.
    pub(super) expert_bytes: Option<u64>,
    /// The draft head is brought too.
    pub(super) draft: bool,
}

/// Bytes of device memory by use, for a planner that splits one budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaMemory {
    /// All weights as the kernels read them.
    pub weights: u64,
    /// Buffers of a step: activations, logits, scratch of splits, staging.
    pub workspace: u64,
    /// What no allocation of ours makes: the driver's context, machine code, graphs.
    pub reserve: u64,
    /// One sequence's recurrent states, convolution tails, token history and row of the page table.
    pub slot: u64,
    /// One recurrent state and convolution ring that is kept for the prefix cache.
    pub checkpoint: u64,
    /// One page of keys and values, over all attention layers.
    pub page: u64,
    /// Pinned memory of the host.
    pub host: u64,
    /// Of the weights those of routed experts.
    pub experts: u64,
    /// How many routed experts lie on the device, and how many there are, where not all do.
    pub residents: Option<(usize, usize)>,
}

/// Machine code, what else the driver takes while kernels are loaded, and what it rounds our allocations up by; and
/// what a captured graph takes. Together 5 MiB for the 35B's shape with three graphs and 12 MiB with one graph and
/// larger allocations, on an H200 by NVML. Constants, as the context is.
const CODE_BYTES: u64 = 10 << 20;
/// Stacks of all threads that the chip can hold at a time, as large as the kernel that wants most needs them: 312 bytes
/// (`wide`, an out-projection in Q6_K with activations of 16 bits), for which an H200 keeps 384 for 2,048 threads on
/// each of 132 multiprocessors (by NVML 33 MiB for 120 bytes, 66 MiB for 256); smaller chips take less, and most
/// models' kernels too.
const STACK_BYTES: u64 = 99 << 20;
const GRAPH_BYTES: u64 = 3 << 20;

impl CudaMemory {
    /// What the driver's context takes of the device before anything is allocated in it, without stacks of threads:
    /// 262.8 MiB on an H200 (driver for CUDA 13.0, by NVML on an idle device); smaller chips take less. A constant and
    /// not a measurement, so that the same command makes the same plan on the same card, whoever else uses it.
    pub const CONTEXT_BYTES: u64 = 264 << 20;

    /// What [`super::CudaBackend::new`] will take. Needs no device.
    pub fn of(model: &Model, config: &CudaConfig) -> Self {
        let config = &config.of(&model.config);
        let c = &config.computed(&model.config);
        let (counts, planes) = (Counts::of(config), config.activations.planes(model));
        let (weights, shape) = (planned_bytes(model, config.placement()), StoreShape::of(c, config));
        let outputs = sampling::bytes(counts)
            + pooling::bytes(c.hidden, counts)
            + history::bytes(config.context)
            + Guessing::bytes((model, c), counts, planes);
        let graphs = passes(counts).len() + if config.mtp { buckets(counts.slots).len() } else { 0 };
        Self {
            weights: weights.device(),
            workspace: Workspace::bytes(c, counts, planes) + programs::scratch_bytes(c, config) + outputs,
            reserve: Self::CONTEXT_BYTES + STACK_BYTES + CODE_BYTES + GRAPH_BYTES * graphs as u64,
            slot: shape.slot_bytes(),
            checkpoint: shape.checkpoint_bytes(),
            page: shape.page_bytes(),
            host: weights.host_embedding + weights.host_experts,
            experts: weights.experts,
            residents: weights.residents,
        }
    }
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
    pub(super) fn of_slots(slots: u32) -> Self {
        Self {
            ordinal: 0,
            slots,
            checkpoints: 0,
            host_cache_bytes: 0,
            pages: 1,
            kv: KvStorage::F16,
            activations: Activations::Auto,
            step_rows_max: 64,
            context: 64,
            drafts: 0,
            mtp: false,
            host_embedding: false,
            expert_bytes: None,
            replayed: false,
            kernel_cache: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::WeightsPlan;
    use super::*;
    use crate::format::synth::{Mix, SynthOptions, write_outline};
    use crate::model;
    use chimere_kernels::cuda::product::layout::Layout;
    use std::collections::BTreeMap;

    /// Bits of a weight in a file.
    const FILE_BITS: [(Layout, &str, f64); 3] =
        [(Layout::IQ3_S, "IQ3_S", 3.4375), (Layout::Q5_K, "Q5_K", 5.5), (Layout::Q6_K, "Q6_K", 6.5625)];

    fn released() -> Model {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("outline.gguf");
        let shape = SynthOptions::shapes().next().unwrap().to_owned();
        write_outline(
            &file,
            &SynthOptions {
                shape,
                mix: Mix::Iq3,
                layers: None,
                experts: None,
                vocab: None,
                draft_head: false,
                seed: 1,
            },
        )
        .unwrap();
        model::load(&file).unwrap()
    }

    fn print_weights(model: &Model) {
        let (_, matrices, vectors) = WeightsPlan::of(model, Placement::default()).take_apart();
        let mut kinds = BTreeMap::new();
        for m in &matrices {
            let (_, name, bits) = *FILE_BITS.iter().find(|f| f.0 == m.layout).expect("a layout of the mix");
            let weights = m.count * m.rows * m.cols;
            let entry = kinds.entry(format!("{:?} {name} {} x {}", m.part, m.rows, m.cols)).or_insert((0, 0, 0.0));
            *entry = (entry.0 + m.bytes(), entry.1 + weights, entry.2 + weights as f64 * bits / 8.0);
        }
        for (kind, (bytes, weights, of_file)) in kinds {
            let bits = bytes as f64 * 8.0 / weights as f64;
            println!("{kind:32} {bytes:>14} bytes, {bits:.4} bits; {:>12.0} beyond the file's", bytes as f64 - of_file);
        }
        println!("{:32} {:>14}", "f32", vectors.iter().map(|v| 4 * v.len()).sum::<usize>());
    }

    /// Prints what the 35B's smallest mix takes of a card of 16 GB.
    #[test]
    #[ignore = "a table, of which nothing is asserted"]
    fn bytes_of_the_released_shape_by_part() {
        let model = released();
        print_weights(&model);
        let budget = 31i64 << 29;
        for (slots, context, step_tokens) in
            [(4, 8 << 10, 512), (4, 8 << 10, 256), (4, 8 << 10, 128), (1, 64 << 10, 512), (1, 64 << 10, 128)]
        {
            let config = CudaConfig {
                pages: slots * context / 32,
                kv: KvStorage::Q8Q4,
                step_rows_max: step_tokens.max(slots + 64),
                context,
                host_embedding: true,
                ..CudaConfig::of_slots(slots)
            };
            println!("\n{slots} x {context}, steps of {step_tokens}: {:?}", Counts::of(&config));
            let m = CudaMemory::of(&model, &config);
            let (counts, own) = (Counts::of(&config), programs::scratch_bytes(&model.config, &config));
            Workspace::print(&model.config, counts, config.activations.planes(&model));
            println!("  {:32} {own:>14}", "scratch of attention, router");
            println!("  {:32} {:>14}", "sampler", sampling::bytes(counts));
            println!("  {:32} {:>14}", "sums of hidden states", pooling::bytes(model.config.hidden, counts));
            let states = m.slot * u64::from(slots);
            let kv = m.page * u64::from(config.pages);
            let all = m.weights + m.workspace + m.reserve + states + kv;
            for (name, bytes) in [
                ("weights", m.weights),
                ("workspace", m.workspace),
                ("reserve", m.reserve),
                ("states", states),
                ("kv", kv),
                ("all", all),
            ] {
                println!("{name:34} {bytes:>14} {:8.3} GiB", bytes as f64 / (1u64 << 30) as f64);
            }
            println!("{:34} {:>14}", "left of 15.5 GiB", budget - all as i64);
        }
    }
}

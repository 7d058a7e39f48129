//! Memory that a CUDA backend takes, by use, known before any of it is taken.

use super::config::CudaConfig;
use super::draft_head::guessing_bytes;
use super::operators::adapter_plan::AdapterPlan;
use super::outputs::{history_bytes, pooling_bytes, sampling_bytes};
use super::programs::scratch_bytes;
use super::shape::{Counts, buckets, passes};
use super::store::StoreShape;
use super::weights::{WeightBytes, planned_bytes};
use super::workspace;
use crate::model::{Model, ModelConfig};
use chimere_kernels::cuda::quantized::Planes;

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

/// Counts and shapes that both sums over the memory are made of.
struct MemoryInputs {
    config: CudaConfig,
    /// The model with the layers that the backend computes.
    computed: ModelConfig,
    counts: Counts,
    planes: Planes,
    weights: WeightBytes,
    shape: StoreShape,
}

impl MemoryInputs {
    fn new(model: &Model, config: &CudaConfig) -> Self {
        let config = config.of(&model.config);
        let computed = config.computed(&model.config);
        Self {
            counts: Counts::of(&config),
            planes: config.activations.planes(model),
            weights: planned_bytes(model, config.placement()),
            shape: StoreShape::of(&computed, &config),
            computed,
            config,
        }
    }
}

impl CudaMemory {
    /// What the driver's context takes of the device before anything is allocated in it, without stacks of threads:
    /// 262.8 MiB on an H200 (driver for CUDA 13.0, by NVML on an idle device); smaller chips take less. A constant and
    /// not a measurement, so that the same command makes the same plan on the same card, whoever else uses it.
    pub const CONTEXT_BYTES: u64 = 264 << 20;

    /// What [`crate::backend::cuda::CudaBackend::new`] will take. Needs no device.
    pub fn of(model: &Model, config: &CudaConfig) -> Self {
        let plan = MemoryInputs::new(model, config);
        let MemoryInputs { ref config, computed: ref c, counts, planes, ref weights, ref shape } = plan;
        let outputs = sampling_bytes(counts)
            + pooling_bytes(c.hidden, counts)
            + history_bytes(config.context)
            + guessing_bytes((model, c), counts, planes)
            + adapter_bytes(c, config);
        Self {
            weights: weights.device(),
            workspace: workspace::bytes(c, counts, planes) + scratch_bytes(c, config) + outputs,
            reserve: Self::CONTEXT_BYTES + STACK_BYTES + CODE_BYTES + GRAPH_BYTES * graphs(config) as u64,
            slot: shape.slot_bytes(),
            checkpoint: shape.checkpoint_bytes(),
            page: shape.page_bytes(),
            host: weights.host_embedding + weights.host_experts,
            experts: weights.experts,
            residents: weights.residents,
        }
    }

    /// Every part of these bytes with its name, those of one sequence, one checkpoint and one page among them. Needs no
    /// device.
    pub fn parts(model: &Model, config: &CudaConfig) -> Vec<MemoryPart> {
        let plan = MemoryInputs::new(model, config);
        let MemoryInputs { ref config, computed: ref c, counts, planes, ref weights, ref shape } = plan;
        let buffers = workspace::parts(c, counts, planes).into_iter().map(|(name, bytes)| (name, bytes as u64));
        let outputs = [
            ("scratch of attention and routers", scratch_bytes(c, config)),
            ("sampler", sampling_bytes(counts)),
            ("sums of hidden states", pooling_bytes(c.hidden, counts)),
            ("tokens of a prompt", history_bytes(config.context)),
            ("buffers of the draft head", guessing_bytes((model, c), counts, planes)),
            ("adapters", adapter_bytes(c, config)),
        ];
        let all = [
            ("weights", weights.device_parts().to_vec()),
            ("workspace", buffers.chain(outputs).collect()),
            ("reserve", reserve_parts(config).to_vec()),
            ("states", shape.slot_parts().to_vec()),
            ("checkpoints", vec![("recurrent state, convolution", shape.checkpoint_bytes())]),
            ("kv", shape.page_parts().to_vec()),
            ("host", vec![("embedding", weights.host_embedding), ("routed experts", weights.host_experts)]),
        ];
        let parts =
            all.into_iter().flat_map(|(of, parts)| parts.into_iter().map(move |(name, bytes)| (of, name, bytes)));
        parts.filter(|part| part.2 > 0).map(|(of, name, bytes)| MemoryPart { of, name, bytes }).collect()
    }
}

/// A part of the memory that a backend takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPart {
    /// The use that it is a part of: `weights`, `workspace`, `reserve`, `states`, `checkpoints`, `kv` or `host`.
    pub of: &'static str,
    /// The name of the buffer or of the matrices.
    pub name: &'static str,
    /// Its bytes; those of one sequence, one checkpoint or one page where there are many.
    pub bytes: u64,
}

/// Graphs that the reserve is planned for: one for each shape of a pass. Some shapes are captured more than once, and
/// share most of their memory.
fn graphs(config: &CudaConfig) -> usize {
    let counts = Counts::of(config);
    passes(counts, config.adapters.holds_any()).len() + if config.draft_head { buckets(counts.slots).len() } else { 0 }
}

/// Adapters on the device.
fn adapter_bytes(c: &ModelConfig, config: &CudaConfig) -> u64 {
    let counts = Counts::of(config);
    AdapterPlan::of(c, config.adapters).map_or(0, |plan| plan.bytes(counts.rows(), counts.slots))
}

/// What the driver takes for itself on a backend's behalf.
fn reserve_parts(config: &CudaConfig) -> [(&'static str, u64); 4] {
    [
        ("context of the driver", CudaMemory::CONTEXT_BYTES),
        ("stacks of threads", STACK_BYTES),
        ("machine code, small buffers", CODE_BYTES),
        ("graphs", GRAPH_BYTES * graphs(config) as u64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cuda::layout::config::{KvStorage, Placement};
    use crate::backend::cuda::layout::weights::WeightsPlan;
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
            for MemoryPart { of, name, bytes } in CudaMemory::parts(&model, &config) {
                println!("  {of:12}{name:36} {bytes:>14}");
            }
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

    #[test]
    fn parts_add_up_to_what_is_planned() {
        let model = released();
        let half = planned_bytes(&model, Placement::default()).experts / 2;
        for (host_embedding, expert_bytes, drafts) in [(false, None, 0), (true, None, 7), (true, Some(half), 7)] {
            let (draft_head, checkpoints) = (drafts > 0, drafts);
            let config =
                CudaConfig { host_embedding, expert_bytes, drafts, draft_head, checkpoints, ..CudaConfig::of_slots(4) };
            let (memory, parts) = (CudaMemory::of(&model, &config), CudaMemory::parts(&model, &config));
            let sum = |of: &str| parts.iter().filter(|part| part.of == of).map(|part| part.bytes).sum::<u64>();
            let CudaMemory { weights, workspace, reserve, slot, checkpoint, page, host, .. } = memory;
            let wanted = [weights, workspace, reserve, slot, checkpoint, page, host];
            assert_eq!(["weights", "workspace", "reserve", "states", "checkpoints", "kv", "host"].map(sum), wanted);
        }
    }
}

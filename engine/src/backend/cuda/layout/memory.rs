//! Memory that a CUDA backend takes, by use, known before any of it is taken.

use super::config::CudaConfig;
use super::draft_head::guessing_bytes;
use super::outputs::{history_bytes, pooling_bytes, sampling_bytes};
use super::programs::scratch_bytes;
use super::shape::{Counts, buckets, passes};
use super::store::StoreShape;
use super::weights::planned_bytes;
use super::workspace;
use crate::model::Model;

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
        let outputs = sampling_bytes(counts)
            + pooling_bytes(c.hidden, counts)
            + history_bytes(config.context)
            + guessing_bytes((model, c), counts, planes);
        let graphs = passes(counts).len() + if config.mtp { buckets(counts.slots).len() } else { 0 };
        Self {
            weights: weights.device(),
            workspace: workspace::bytes(c, counts, planes) + scratch_bytes(c, config) + outputs,
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
            let (counts, own) = (Counts::of(&config), scratch_bytes(&model.config, &config));
            workspace::print(&model.config, counts, config.activations.planes(&model));
            println!("  {:32} {own:>14}", "scratch of attention, router");
            println!("  {:32} {:>14}", "sampler", sampling_bytes(counts));
            println!("  {:32} {:>14}", "sums of hidden states", pooling_bytes(model.config.hidden, counts));
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

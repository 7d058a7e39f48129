//! Adapters with random numbers in PEFT's layout, to measure what adapters cost on any model.

use super::places::names_of;
use super::targets::{AdapterTargets, TargetBlock};
use crate::adapter::ADAPTER_RANK_MAX;
use crate::format::blocks::SplitMix;
use crate::format::{LoadError, Problem};
use serde_json::{Map, json};
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// What the numbers of lora_B lie between, around 0: enough to change an answer, too little to spoil it.
const B_MAX: f32 = 0.02;

/// Why a random adapter was not written.
#[derive(Debug, thiserror::Error)]
pub enum RandomAdapterError {
    /// The rank is out of range, or the model's family has no adapters.
    #[error("{0}")]
    Refused(LoadError),
    /// The directory cannot be written.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Writes an adapter of this rank that changes all matrices of a model, as a new directory in PEFT's layout; says its
/// bytes. The same seed makes the same bytes.
pub fn write_random_adapter(
    path: &Path,
    targets: &AdapterTargets,
    rank: usize,
    seed: u64,
) -> Result<u64, RandomAdapterError> {
    let refused = |problem: Problem| RandomAdapterError::Refused(problem.in_file(path));
    targets.check_family().map_err(refused)?;
    if !(1..=ADAPTER_RANK_MAX).contains(&rank) {
        let want = format!("a rank from 1 to {ADAPTER_RANK_MAX}");
        return Err(refused(Problem::container("adapter", want, rank)));
    }
    let tensors = tensors(targets, rank);
    let mut header = Map::new();
    let mut bytes = 0;
    for RandomTensor { name, rows, cols, .. } in &tensors {
        let end = bytes + 2 * rows * cols;
        let entry = json!({"dtype": "BF16", "shape": [rows, cols], "data_offsets": [bytes, end]});
        header.insert(name.clone(), entry);
        bytes = end;
    }
    let mut header = serde_json::Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    fs::create_dir_all(path)?;
    let config = json!({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank});
    fs::write(path.join("adapter_config.json"), config.to_string())?;
    let mut file = BufWriter::new(fs::File::create(path.join("adapter_model.safetensors"))?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    let mut drawn = 0;
    for RandomTensor { rows, cols, max, .. } in &tensors {
        for _ in 0..rows * cols {
            drawn += 1;
            let unit = (SplitMix::nth(seed, drawn) >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
            // The upper half of a number is the bfloat16 at or below it.
            file.write_all(&((unit * max).to_bits() >> 16).to_le_bytes()[..2])?;
        }
    }
    file.flush()?;
    Ok(8 + (header.len() + bytes) as u64)
}

/// A tensor that is to be written.
struct RandomTensor {
    name: String,
    rows: usize,
    cols: usize,
    /// Its numbers lie between this and its negative.
    max: f32,
}

fn tensors(targets: &AdapterTargets, rank: usize) -> Vec<RandomTensor> {
    let mut all = Vec::new();
    for (layer, block) in targets.layers.iter().enumerate().flat_map(|(i, layer)| layer.iter().map(move |b| (i, b))) {
        for (module, (rows, cols)) in modules(block) {
            let of = |half: &str| format!("base_model.model.model.layers.{layer}.{module}.lora_{half}.weight");
            all.push(RandomTensor { name: of("A"), rows: rank, cols, max: 1.0 / (cols as f32).sqrt() });
            all.push(RandomTensor { name: of("B"), rows, cols: rank, max: B_MAX });
        }
    }
    all
}

/// The modules of a block that are one matrix each, with their rows and columns.
fn modules(block: &TargetBlock) -> impl Iterator<Item = (&'static str, (usize, usize))> {
    let alone = names_of(block.kind).iter().filter(|(_, matrices)| matrices.len() == 1);
    alone.filter_map(|(names, matrices)| Some((names[0], block.size_of(matrices[0])?)))
}

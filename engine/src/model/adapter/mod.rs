//! Low-rank adapters of a model from PEFT directories and GGUF files. Every tensor of a file is used, or the file is
//! refused by the tensor's name.

mod gguf;
mod peft;
mod places;
mod random;
mod targets;

use super::HeadOrder;
use crate::adapter::{ADAPTER_RANK_MAX, AdaptedMatrix, Adapter, LowRank};
use crate::format::{LoadError, Problem, Tensor};
use places::MatrixPlace;
pub use random::{RandomAdapterError, write_random_adapter};
use std::collections::BTreeMap;
use std::path::Path;
pub use targets::AdapterTargets;

/// Reads an adapter for the matrices of a model, which requests are to know by a name: a directory in PEFT's layout, or
/// a GGUF file.
///
/// # Errors
/// The file cannot be read, does not fit the model, has a part that is not supported, or changes nothing.
pub fn read_adapter(path: &Path, name: &str, targets: &AdapterTargets) -> Result<Adapter, LoadError> {
    targets.check_family().map_err(|problem| problem.in_file(path))?;
    let (pairs, files) = if path.is_dir() { peft::read(path)? } else { gguf::read(path, targets.architecture)? };
    let mut blocks = vec![Vec::new(); targets.blocks];
    let mut found = BTreeMap::new();
    for pair in &pairs {
        pair.check_rank(targets.rank_max).map_err(|problem| problem.in_file(path))?;
        for place in targets.find(pair).map_err(|problem| problem.in_file(path))? {
            let key = (place.block, place.matrix);
            if let Some(other) = found.insert(key, &pair.module) {
                let got = format!("`{}` and `{other}`", pair.module);
                return Err(Problem::tensor(&pair.b.name, "one change of each matrix", got).in_file(path));
            }
            let part = low_rank(pair, &place).map_err(|problem| problem.in_file(path))?;
            blocks[place.block].push(part);
        }
    }
    files.check()?;
    let adapter = Adapter::new(name, blocks);
    if adapter.blocks.iter().flatten().all(|part| part.b().top() == 0.0) {
        let want = "a matrix that it changes";
        return Err(Problem::container("adapter", want, "no tensor, or zeros in all of lora_B").in_file(path));
    }
    Ok(adapter)
}

/// One pair of matrices as a file has it.
struct Pair {
    /// The module that it changes, by the file's own name without prefix and suffix, such as `mlp.up_proj`.
    module: String,
    /// The layer that the module is of.
    layer: usize,
    /// The matrix A, `[rank, in]`.
    a: Tensor,
    /// The matrix B, `[out, rank]`.
    b: Tensor,
    scale: f32,
    names: ModuleNames,
    /// Of the value heads in it.
    order: HeadOrder,
}

/// The program whose names for modules a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModuleNames {
    HuggingFace,
    Gguf,
}

/// The pair as what it adds to one matrix of the model.
fn low_rank(pair: &Pair, place: &MatrixPlace) -> Result<LowRank, Problem> {
    let (a, b) = (super::reader::finite_values(&pair.a)?, super::reader::finite_values(&pair.b)?);
    let rank = pair.rank();
    let a = match &place.columns {
        None => a,
        Some(columns) => a.chunks_exact(pair.a.cols()).flat_map(|row| columns.iter().map(|at| row[*at])).collect(),
    };
    let b = match &place.rows {
        None => b,
        Some(rows) => rows.iter().flat_map(|row| &b[row * rank..(row + 1) * rank]).copied().collect(),
    };
    let part = LowRank::new(place.matrix, rank, pair.scale, &a, &b);
    assert_eq!((part.out(), part.inputs()), place.size, "{} is what its matrix is", pair.module);
    Ok(part)
}

impl Pair {
    fn rank(&self) -> usize {
        self.a.rows()
    }

    fn check_rank(&self, max: usize) -> Result<(), Problem> {
        let rank = self.rank();
        let fine = (1..=max).contains(&rank);
        fine.then_some(()).ok_or_else(|| Problem::tensor(&self.a.name, format_args!("a rank from 1 to {max}"), rank))
    }

    /// A pair whose two matrices fit each other and, where the file says it, the rank that it says.
    fn checked(self, rank: Option<usize>) -> Result<Self, Problem> {
        for tensor in [&self.a, &self.b] {
            if tensor.shape.len() != 2 {
                return Err(Problem::tensor(&tensor.name, "a matrix", format_args!("shape {:?}", tensor.shape)));
            }
        }
        let rank = rank.unwrap_or(self.rank());
        self.check_rank(ADAPTER_RANK_MAX)?;
        for (tensor, got) in [(&self.a, self.rank()), (&self.b, self.b.cols())] {
            if got != rank {
                return Err(Problem::tensor(&tensor.name, format_args!("rank {rank}"), format_args!("rank {got}")));
            }
        }
        if !self.scale.is_finite() {
            return Err(Problem::tensor(&self.b.name, "a finite alpha", self.scale));
        }
        Ok(self)
    }
}

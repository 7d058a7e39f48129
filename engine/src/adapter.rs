//! Low-rank adapters (LoRA): what a fine-tune adds to matrices of a model, `W x + scale * B (A x)` (Hu et al., 2021).

mod lanes;
mod low_rank;

use crate::ids::AdapterSlotId;
pub(crate) use lanes::{LINE, LaneMatrix};
pub use low_rank::LowRank;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest rank that is read.
pub const ADAPTER_RANK_MAX: usize = 512;

/// Adapters that a process may have loaded at a time.
pub const ADAPTERS_MAX: usize = 256;

/// What a file adds to a model's matrices.
#[derive(Debug)]
pub struct Adapter {
    /// The name that requests know it by.
    pub name: String,
    /// Of all that were read in this process no two have one number: whatever is kept of what an adapter computed is
    /// kept under it, and never under a name that may stand for another one tomorrow.
    pub number: u64,
    /// The matrices that are changed, for each block in the order of [`crate::model::ModelConfig::blocks`].
    pub blocks: Vec<Vec<LowRank>>,
}

/// An adapter as a request asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaledAdapter {
    /// The adapter that is meant.
    pub adapter: Arc<Adapter>,
    /// The request's factor of all that the adapter adds; 1 leaves it as the file says. Never 0.
    pub scale: f32,
}

/// An adapter in the place of the device's memory that the rows of a step find it in.
#[derive(Clone, Debug, PartialEq)]
pub struct ResidentAdapter {
    /// The adapter that the slot holds, from the copies before the step on: its number says whether it lies there
    /// already.
    pub adapter: Arc<Adapter>,
    /// The slot. Of one step all pieces with a slot have one adapter, and all pieces with an adapter one slot.
    pub slot: AdapterSlotId,
    /// The request's factor ([`ScaledAdapter::scale`]), beside [`LowRank::scale`].
    pub scale: f32,
}

/// Which matrix of a block. Of a mixture of experts those are meant that every token takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdaptedMatrix {
    /// Queries, keys and values of the gated delta rule.
    Qkv,
    /// Output gates of the gated delta rule.
    Z,
    /// Write strengths of the gated delta rule.
    Beta,
    /// Decays of the gated delta rule.
    Alpha,
    /// Queries of an attention block, with their gates where there are some.
    Query,
    /// Keys of an attention block.
    Key,
    /// Values of an attention block.
    Value,
    /// What a mixer's heads are brought back to the residual stream by.
    Out,
    /// The gate of a feed-forward part.
    Gate,
    /// What the gate is multiplied with.
    Up,
    /// What a feed-forward part is brought back by.
    Down,
}

impl PartialEq for Adapter {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Adapter {
    /// What is added in each block, under a number of its own.
    pub(crate) fn new(name: &str, mut blocks: Vec<Vec<LowRank>>) -> Self {
        blocks.iter_mut().for_each(|parts| parts.sort_by_key(|part| part.matrix));
        LaneMatrix::gather(&mut blocks.iter_mut().flat_map(|parts| in_order_of_reading(parts)).collect::<Vec<_>>());
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        Self { name: name.to_owned(), number: NUMBERS.fetch_add(1, Ordering::Relaxed), blocks }
    }

    /// Matrices that it changes.
    pub fn matrices(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }

    /// The largest rank of them.
    pub fn rank_max(&self) -> usize {
        self.blocks.iter().flatten().map(|part| part.rank).max().unwrap_or(0)
    }

    /// Bytes of its matrices in memory.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().flatten().map(LowRank::bytes).sum()
    }

    /// What it adds to a matrix of a block; nothing to those of a draft head, which stand behind the others.
    pub fn part(&self, block: usize, matrix: AdaptedMatrix) -> Option<&LowRank> {
        self.blocks.get(block)?.iter().find(|part| part.matrix == matrix)
    }
}

/// The matrices of a block as a step reads them: A of all that have one input, then their B; then those behind it.
fn in_order_of_reading(parts: &mut [LowRank]) -> impl Iterator<Item = &mut LaneMatrix> {
    let is_last = |part: &LowRank| matches!(part.matrix, AdaptedMatrix::Out | AdaptedMatrix::Down);
    let all = parts.iter_mut().flat_map(|part| {
        let last = is_last(part);
        let [a, b] = part.matrices();
        [((last, false), a), ((last, true), b)]
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, matrix)| matrix)
}

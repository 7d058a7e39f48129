//! How a decode block is made: a pure choice, and what it costs in shared memory.

use super::shape::{AttentionShape, KvType, PAGE, SHARED_BYTES_MAX};
use super::splits::SPLITS_MAX;
use crate::cuda::Arch;

/// Most rows of a decode step: each thread of a block knows one.
pub const DECODE_ROWS_MAX: usize = 256;

/// Places for the weights of a row's splits: of all that there may be, and of those that are asked for beyond.
const ADD_WEIGHTS: usize = SPLITS_MAX + 36;

/// How a decode block is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeTiling {
    /// Pages that a block holds at a time: 2, 4 or 8.
    pub round: usize,
    /// Blocks of a multiprocessor.
    pub resident: usize,
    /// Warps of a block: 8, or 16 with four pages and more.
    pub warps: usize,
}

/// As many pages as fit into 72 KiB, where that leaves room for the rest on every chip; two blocks of that fit on a
/// large one. Where it is two pages only, a block alone with four of them and twice the warps waits half as often: it
/// is taken where the chip has shared memory enough for it.
pub fn tiling(shape: AttentionShape, kv: KvType, arch: Arch) -> DecodeTiling {
    const STAGED_BYTES_MAX: usize = 72 << 10;
    const ALONE: DecodeTiling = DecodeTiling { round: 4, resident: 1, warps: 16 };
    let (k, v) = kv.vector_bytes(shape.dim);
    let fits = |tiling: &DecodeTiling| {
        tiling.round * PAGE * (k + v) <= STAGED_BYTES_MAX && shape.decode_shared_bytes(kv, *tiling) <= SHARED_BYTES_MAX
    };
    let pair = |round: usize| DecodeTiling { round, resident: 2, warps: 8 };
    let pages = [8, 4].map(pair).into_iter().find(fits);
    let alone = (shape.decode_shared_bytes(kv, ALONE) <= arch.shared_bytes_max()).then_some(ALONE);
    pages.or(alone).unwrap_or(pair(2))
}

impl AttentionShape {
    /// Shared memory of a decode block: `Decode` of the source, which asserts it.
    pub(super) fn decode_shared_bytes(&self, kv: KvType, tiling: DecodeTiling) -> usize {
        let (dim, group, (k, v)) = (self.dim, self.group(), kv.vector_bytes(self.dim));
        let query_rows = if group > 8 { 16 } else { 8 };
        let pages = tiling.round * PAGE * (k + v);
        let products = (dim / 32 + tiling.round) * query_rows * 64 + 4 * group * dim.max(ADD_WEIGHTS);
        let own = 4 * 4 * dim + 8 * (self.rotary / 2 + 1);
        let sums = 2 * 4 * tiling.warps * 16 + 2 * 8;
        let lists = 4 * (3 * DECODE_ROWS_MAX + tiling.warps);
        (pages + products + own + sums + lists).next_multiple_of(128)
    }
}

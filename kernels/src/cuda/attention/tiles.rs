//! Tiles of prefill: neighbouring rows of one sequence that a block attends for.

use super::shape::{AttentionShape, KvType, PAGE};
use crate::cuda::{Arch, Device};

/// Query rows of the smallest prefill tile, over tokens and heads of a key-value head.
const TILE_ROWS: usize = 64;

/// Query rows of a tile of two warpgroups, where the chip has matrix instructions for them.
const WIDE_TILE_ROWS: usize = 2 * TILE_ROWS;

/// Bytes of barriers that two warpgroups have in shared memory behind their pages.
const BARRIER_BYTES: usize = 80;

/// Query rows of the largest prefill tile.
fn tile_rows_max(arch: Arch) -> usize {
    if arch.has_warpgroups() { WIDE_TILE_ROWS } else { TILE_ROWS }
}

/// The chip, as far as it decides about prefill tiles.
#[derive(Clone, Copy, Debug)]
pub struct TileChip {
    /// What its code is made for.
    pub arch: Arch,
    /// How many multiprocessors it has.
    pub multiprocessors: usize,
}

impl TileChip {
    /// That of a device.
    pub fn of(device: &Device) -> Self {
        Self { arch: device.arch(), multiprocessors: device.multiprocessors() as usize }
    }
}

/// Most tiles of a step of `rows` rows in `pieces` pieces.
pub fn tiles_max(shape: AttentionShape, chip: TileChip, rows: usize, pieces: usize) -> usize {
    let tiles = rows.div_ceil(tile_rows_max(chip.arch) / shape.group()) + pieces;
    tiles.max(chip.multiprocessors)
}

/// Tiles `{first row, rows}` of a step whose sequences have `pieces` neighbouring rows each, one after another. Pieces
/// of 0 have none. Where small tiles do not fill the chip, tiles are small; a row's bytes do not depend on it.
pub fn tiles(shape: AttentionShape, chip: TileChip, pieces: &[usize]) -> Vec<[i32; 2]> {
    let small = TILE_ROWS / shape.group();
    let smalls: usize = pieces.iter().map(|rows| rows.div_ceil(small)).sum();
    let few = smalls * shape.kv_heads <= chip.multiprocessors;
    tiles_of(if few { small } else { tile_rows_max(chip.arch) / shape.group() }, pieces)
}

/// Cuts pieces into tiles of `tokens` rows each; the last tile of a piece may have fewer.
fn tiles_of(tokens: usize, pieces: &[usize]) -> Vec<[i32; 2]> {
    let (mut first, mut tiles) = (0, Vec::new());
    for piece in pieces {
        let rows = |at: &usize| [(first + at) as i32, tokens.min(piece - at) as i32];
        tiles.extend((0..*piece).step_by(tokens).map(|at| rows(&at)));
        first += piece;
    }
    tiles
}

impl AttentionShape {
    /// Shared memory of a prefill block: queries, and two pages of keys and values as f16 or one of these and one as it
    /// is kept.
    pub(super) fn prefill_shared_bytes(&self, kv: KvType) -> usize {
        let (queries, f16_pages) = (TILE_ROWS * self.dim * 2, 2 * PAGE * self.dim * 2);
        let (k, v) = kv.vector_bytes(self.dim);
        queries + f16_pages + PAGE * (k + v)
    }

    /// Shared memory of a prefill block of warpgroups, in bytes: queries, four pages of keys and four of values as f16,
    /// and two pages of each in the cache's encoding unless that is f16.
    pub(super) fn wide_prefill_shared_bytes(&self, kv: KvType) -> usize {
        let (queries, f16_pages) = (WIDE_TILE_ROWS * self.dim * 2, 2 * 4 * PAGE * self.dim * 2);
        let (k, v) = kv.vector_bytes(self.dim);
        queries + f16_pages + if kv == KvType::F16 { 0 } else { 2 * PAGE * (k + v) } + BARRIER_BYTES
    }
}

//! Pieces of prompts, and the chunks of [`CHUNK`] tokens that they go in: what the prefills of [`super::prefill`] and
//! [`crate::cuda::mamba2`] are given.

use cudarc::driver::{CudaView, CudaViewMut};

/// Tokens of a chunk. Pieces begin at multiples of it.
pub const CHUNK: usize = 64;
/// Values that describe a piece: slot, start position, first row, rows.
pub const PIECE: usize = 4;

/// Device's number of chunk `index` of piece `piece`, which begins at row `first_row`.
pub fn chunk_number(piece: usize, first_row: usize, index: usize) -> usize {
    first_row / CHUNK + piece + index
}

/// Chunks that `rows` rows in `pieces` pieces are at most: every [`chunk_number`] is below this.
pub fn chunks_max(rows: usize, pieces: usize) -> usize {
    rows / CHUNK + pieces
}

/// The pieces of a step; on the device, written before the step begins.
#[derive(Clone, Copy)]
pub struct Pieces<'a> {
    /// `[count, 4]`: slot (below 0: no piece), start position (a multiple of [`CHUNK`]), first row, rows (0: no piece).
    /// First rows ascend, rows of pieces do not overlap, no slot comes twice.
    pub list: &'a CudaView<'a, i32>,
    /// Number of pieces, empty ones included.
    pub count: usize,
    /// All rows of pieces are below this.
    pub rows: usize,
    /// `[chunks]`: for the chunk with each number ([`chunk_number`]) where state and ring after it are kept too, as if
    /// it were a slot, or below 0. Only chunks of 64 rows have such a place, each its own.
    pub exports: Option<&'a CudaView<'a, i32>>,
}

/// Where the int8 rows go; rows in no piece stay as they are.
pub struct MixedRows<'a, 'b> {
    /// `[rows, value heads * V * planes]`.
    pub codes: &'a mut CudaViewMut<'b, i8>,
    /// `[rows, value heads * V / 32 * planes, 2]`.
    pub meta: &'a mut CudaViewMut<'b, f32>,
}

//! Splits of a decode row: parts of its context that blocks attend to side by side, and the memory in which they leave
//! what they found.

use super::shape::{AttentionShape, PAGE};
use crate::cuda::{CudaError, Device};
use cudarc::driver::CudaSlice;

/// Most splits of a row, as in the source.
pub(super) const SPLITS_MAX: usize = 128;

/// Pages of the shortest split, as in the source.
pub(super) const SPLIT_PAGES: usize = 8;

/// Most splits of a row of up to `context` positions: a split has 8 pages, and twice as many whenever there would be
/// more than 128.
pub fn splits(context: usize) -> usize {
    let pages = context.div_ceil(PAGE);
    // One page more may halve their number; the most is reached before.
    if pages > SPLITS_MAX * SPLIT_PAGES { SPLITS_MAX } else { pages.div_ceil(SPLIT_PAGES) }
}

/// What decode keeps between blocks of a launch; every layer may use the same.
#[derive(Debug)]
pub struct DecodeScratch {
    pub(super) rows: usize,
    pub(super) splits: usize,
    /// `[rows, kv_heads, splits, group, dim]` f16.
    pub(super) partials: CudaSlice<u16>,
    /// `[rows, kv_heads, splits, group]` of largest score and sum.
    pub(super) stats: CudaSlice<f32>,
    /// `[rows, kv_heads, 2]`, zero between launches.
    pub(super) counters: CudaSlice<i32>,
}

impl DecodeScratch {
    /// Bytes for `rows` rows of up to `context` positions.
    pub fn bytes(shape: AttentionShape, rows: usize, context: usize) -> usize {
        rows * (splits(context) * shape.heads * (2 * shape.dim + 8) + 8 * shape.kv_heads)
    }

    /// Room for `rows` rows of up to `context` positions.
    ///
    /// # Errors
    /// If the device has not that much memory.
    pub fn new(device: &Device, shape: AttentionShape, rows: usize, context: usize) -> Result<Self, CudaError> {
        let (stream, splits) = (device.stream(), splits(context));
        let failed = |error| CudaError::Driver { call: "cuMemAlloc", error };
        Ok(Self {
            rows,
            splits,
            partials: stream.alloc_zeros(rows * splits * shape.heads * shape.dim).map_err(failed)?,
            stats: stream.alloc_zeros(rows * splits * shape.heads * 2).map_err(failed)?,
            counters: stream.alloc_zeros(rows * shape.kv_heads * 2).map_err(failed)?,
        })
    }
}

//! Memory that launches of the router leave to themselves.

use super::Router;
use super::shape::{FEW_ROWS_MAX, GROUPED_ROWS, ORDERED_ROWS, RouterShape, SCORE_PARTS, WHOLE_ROWS};
use crate::cuda::{CudaError, Device};
use cudarc::driver::CudaSlice;

/// Counters of a launch: three, and one for each tile of rows where it also chooses.
const COUNTERS: usize = 3 + GROUPED_ROWS / ORDERED_ROWS[0];

/// Buffers that launches leave to themselves. One workspace serves all layers, one after another.
#[derive(Debug)]
pub struct Workspace {
    pub(super) scores: CudaSlice<f32>,
    pub(super) tagged: CudaSlice<u64>,
    pub(super) counters: CudaSlice<i32>,
    pub(super) offsets: CudaSlice<i32>,
    /// Of one layer; one of none where no kernel reads them.
    pub(super) halves: CudaSlice<u32>,
}

impl RouterShape {
    /// Bytes of a [`Workspace`] for launches of up to `rows_max` rows.
    pub fn workspace_bytes(&self, rows_max: usize) -> usize {
        let scores = self.scores(rows_max);
        let tagged = rows_max.min(FEW_ROWS_MAX) * self.stride();
        8 * tagged + 4 * (scores + COUNTERS + self.halves() + self.chunks(rows_max).max(1) * self.experts)
    }

    /// Scores that any variant stores of up to so many rows.
    pub(super) fn scores(&self, rows_max: usize) -> usize {
        rows_max.max(rows_max.min(WHOLE_ROWS - 1) * self.segments().max(SCORE_PARTS)) * self.stride()
    }
}

impl Router {
    /// Memory for launches of up to `rows_max` rows.
    ///
    /// # Errors
    /// If the device has none left.
    pub fn workspace(&self, device: &Device, rows_max: usize) -> Result<Workspace, CudaError> {
        let stream = device.stream();
        let failed = |error| CudaError::Driver { call: "cuMemAlloc", error };
        Ok(Workspace {
            scores: stream.alloc_zeros(self.shape.scores(rows_max)).map_err(failed)?,
            tagged: stream.alloc_zeros(rows_max.min(FEW_ROWS_MAX) * self.shape.stride()).map_err(failed)?,
            halves: stream.alloc_zeros(if self.prompts.is_some() { self.shape.halves() } else { 1 }).map_err(failed)?,
            counters: stream.alloc_zeros(COUNTERS).map_err(failed)?,
            offsets: stream.alloc_zeros(self.shape.chunks(rows_max).max(1) * self.shape.experts).map_err(failed)?,
        })
    }
}

//! Sums of hidden states: the kernel, the memory it writes, and what an outcome gets of it.

use super::error::{CudaBackendError, During};
use super::rows::PooledAt;
use super::shape::Counts;
use super::staging::Staging;
use crate::CHUNK_TOKENS;
use crate::step::PooledUnit;
use chimere_kernels::cuda::pool::{HiddenRows, Pool, UNIT_ROWS_MAX};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::{CudaSlice, DevicePtr};

const _: () = assert!(CHUNK_TOKENS as usize <= UNIT_ROWS_MAX, "a unit's rows are those of a chunk");

/// The kernel, and what it reads and writes on the device.
pub(super) struct Pooling {
    kernel: Pool,
    /// `[units][2]`: first row, rows.
    units: CudaSlice<i32>,
    /// `[units, hidden]`.
    sums: CudaSlice<f32>,
    hidden: usize,
}

/// Units that a step's pieces have at most: each piece begins at a whole chunk and may end with a part of one.
pub(super) fn units_max(counts: Counts) -> usize {
    counts.prefill / CHUNK_TOKENS as usize + counts.slots
}

/// Bytes of device memory that a [`Pooling`] takes.
pub(super) fn bytes(hidden: usize, counts: Counts) -> u64 {
    (units_max(counts) * (4 * hidden + 8)) as u64
}

impl Pooling {
    pub(super) fn new(
        device: &Device,
        cache: &KernelCache,
        hidden: usize,
        counts: Counts,
    ) -> Result<Self, CudaBackendError> {
        let (stream, units, doing) = (device.stream(), units_max(counts), "allocating sums of hidden states");
        Ok(Self {
            kernel: Pool::load(device, cache, hidden)?,
            units: stream.alloc_zeros(2 * units).during(doing)?,
            sums: stream.alloc_zeros(units * hidden).during(doing)?,
            hidden,
        })
    }

    /// Sums the prefill's rows and sends them to the host, in stream order.
    pub(super) fn launch(
        &mut self,
        device: &Device,
        units: &[PooledAt],
        rows: HiddenRows<'_>,
        staging: &Staging,
    ) -> Result<(), CudaBackendError> {
        if units.is_empty() {
            return Ok(());
        }
        let list: Vec<i32> = units.iter().flat_map(|u| [u.first_row as i32, u.positions.len() as i32]).collect();
        super::stage(device, staging, &mut self.units, 0, &list)?;
        // SAFETY: a unit lies within a piece of the prefill that has just been enqueued, and within a chunk.
        unsafe { self.kernel.launch(device, units.len(), &self.units.as_view(), rows, &mut self.sums.as_view_mut()) }?;
        let from = self.sums.device_ptr(device.stream()).0;
        // SAFETY: the step's pinned memory is read after its last mark; it holds as many sums as the device does.
        unsafe { staging.fetch(device, from, &mut staging.sums.as_mut_slice()[..units.len() * self.hidden]) }
    }
}

/// What came back for `units`: `sums` has `hidden` values for each, in their order.
pub(super) fn pooled(units: Vec<PooledAt>, sums: &[f32], hidden: usize) -> Vec<PooledUnit> {
    let of = |(at, sum): (PooledAt, &[f32])| PooledUnit { seq: at.seq, positions: at.positions, sum: sum.to_vec() };
    units.into_iter().zip(sums.chunks_exact(hidden)).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SeqId;

    #[test]
    fn every_way_to_fill_a_step_with_pieces_has_room_for_its_units() {
        let chunk = CHUNK_TOKENS as usize;
        for (prefill, slots) in [(128, 1), (68, 4), (512, 3), (2048, 64), (64, 64)] {
            let most = units_max(Counts { decode: slots, prefill, logits: slots, slots, drafts: 0 });
            let units = |pieces: usize| {
                // All but one as short as a second unit needs, the last takes the rest.
                let short = (prefill / pieces).min(chunk + 1);
                (pieces - 1) * short.div_ceil(chunk) + (prefill - (pieces - 1) * short).div_ceil(chunk)
            };
            assert!((1..=slots.min(prefill)).all(|pieces| units(pieces) <= most), "{prefill} rows of {slots}");
        }
    }

    #[test]
    fn sums_go_to_their_units_in_order() {
        let unit = |seq, positions| PooledAt { first_row: 0, seq: SeqId(seq), positions };
        let got = pooled(vec![unit(3, 0..64), unit(1, 64..70)], &[1.0, 2.0, 3.0, 4.0, 9.0, 9.0], 2);
        let want = |seq, positions, sum: [f32; 2]| PooledUnit { seq: SeqId(seq), positions, sum: sum.to_vec() };
        assert_eq!(got, [want(3, 0..64, [1.0, 2.0]), want(1, 64..70, [3.0, 4.0])]);
    }
}

//! Sums of hidden states: the kernel, the memory it writes, and what an outcome gets of it.

use super::rows::PooledAt;
use crate::backend::cuda::error::{CudaResult, During};
use crate::backend::cuda::layout::outputs::units_max;
use crate::backend::cuda::layout::shape::Counts;
use crate::backend::cuda::rank::staging::{Staging, stage};
use crate::step::PooledUnit;
use chimere_kernels::cuda::pool::{HiddenRows, Pool};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::{CudaSlice, DevicePtr};

/// The kernel, and what it reads and writes on the device.
pub(crate) struct HiddenSums {
    kernel: Pool,
    /// `[units][2]`: first row, rows.
    units: CudaSlice<i32>,
    /// Sums of hidden states, `[units, hidden]`.
    sums: CudaSlice<f32>,
    hidden: usize,
}

impl HiddenSums {
    pub(crate) fn new(device: &Device, cache: &KernelCache, hidden: usize, counts: Counts) -> CudaResult<Self> {
        let (stream, units, doing) = (device.stream(), units_max(counts), "allocating sums of hidden states");
        Ok(Self {
            kernel: Pool::load(device, cache, hidden)?,
            units: stream.alloc_zeros(2 * units).during(doing)?,
            sums: stream.alloc_zeros(units * hidden).during(doing)?,
            hidden,
        })
    }

    /// Sums the prefill's rows and sends them to the host, in stream order.
    pub(crate) fn launch(
        &mut self,
        device: &Device,
        units: &[PooledAt],
        rows: HiddenRows<'_>,
        staging: &Staging,
    ) -> CudaResult<()> {
        if units.is_empty() {
            return Ok(());
        }
        let list: Vec<i32> = units.iter().flat_map(|u| [u.first_row as i32, u.positions.len() as i32]).collect();
        stage(device, staging, &mut self.units, 0, &list)?;
        // SAFETY: a unit lies within a piece of the prefill that has just been enqueued, and within a chunk.
        unsafe { self.kernel.launch(device, units.len(), &self.units.as_view(), rows, &mut self.sums.as_view_mut()) }?;
        let from = self.sums.device_ptr(device.stream()).0;
        // SAFETY: the step's pinned memory is read after its last mark; it holds as many sums as the device does.
        unsafe { staging.fetch(device, from, &mut staging.sums.as_mut_slice()[..units.len() * self.hidden]) }
    }
}

/// What came back for `units`: `sums` has `hidden` values for each, in their order.
pub(crate) fn pooled(units: Vec<PooledAt>, sums: &[f32], hidden: usize) -> Vec<PooledUnit> {
    let of = |(at, sum): (PooledAt, &[f32])| PooledUnit { seq: at.seq, positions: at.positions, sum: sum.to_vec() };
    units.into_iter().zip(sums.chunks_exact(hidden)).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SeqId;

    #[test]
    fn sums_go_to_their_units_in_order() {
        let unit = |seq, positions| PooledAt { first_row: 0, seq: SeqId(seq), positions };
        let got = pooled(vec![unit(3, 0..64), unit(1, 64..70)], &[1.0, 2.0, 3.0, 4.0, 9.0, 9.0], 2);
        let want = |seq, positions, sum: [f32; 2]| PooledUnit { seq: SeqId(seq), positions, sum: sum.to_vec() };
        assert_eq!(got, [want(3, 0..64, [1.0, 2.0]), want(1, 64..70, [3.0, 4.0])]);
    }
}

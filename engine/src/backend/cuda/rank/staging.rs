//! Pinned memory that a step's inputs leave from and its results come back to.
//!
//! A step takes one of a few slots; a slot is taken again only when the step that had it has finished and its results
//! were read, so that the host never writes what a copy still reads.

use super::pinned::{Pinned, send_to};
use crate::backend::cuda::error::{CudaResult, During};
use chimere_kernels::cuda::Device;
use chimere_kernels::cuda::carry::Carrier;
use chimere_kernels::cuda::sampler::SampleResult;
use cudarc::driver::sys::{self, CUdeviceptr};
use cudarc::driver::{CudaContext, CudaEvent, CudaSlice, DevicePtrMut, result};
use std::sync::Arc;

/// Pinned bytes of a step beyond its rows: page tables and sampler's lists.
pub(crate) const STAGING_BYTES: usize = 8 << 20;

/// Steps that may be unfinished, and one more whose results are being read.
const SLOTS: usize = 4;

/// One step's pinned memory and its marks in the stream.
pub(crate) struct Staging {
    carrier: Arc<Carrier>,
    bytes: Pinned<u8>,
    used: std::cell::Cell<usize>,
    /// Results of the samplers, in the order they were asked for, and from [`Staging::guesses`] on the draft head's.
    pub(crate) results: Pinned<SampleResult>,
    pub(crate) guesses: usize,
    /// Sums of hidden states, [`Staging::hidden`] values each.
    pub(crate) sums: Pinned<f32>,
    pub(crate) hidden: usize,
    pub(crate) begin: CudaEvent,
    pub(crate) forward: CudaEvent,
    pub(crate) sampled: CudaEvent,
    pub(crate) end: CudaEvent,
}

// SAFETY: the cell is used by the engine's thread alone, before the step is handed to the thread that waits for it.
unsafe impl Sync for Staging {}

impl Staging {
    fn new(
        (context, carrier): (&Arc<CudaContext>, &Arc<Carrier>),
        bytes: usize,
        (results, guesses): (usize, usize),
        (sums, hidden): (usize, usize),
    ) -> CudaResult<Self> {
        use sys::CUevent_flags::{CU_EVENT_BLOCKING_SYNC, CU_EVENT_DEFAULT};
        // A waiting thread sleeps instead of keeping a core busy.
        let event = |flags| context.new_event(Some(flags)).during("making events");
        Ok(Self {
            carrier: carrier.clone(),
            bytes: Pinned::new(context, bytes).during("allocating pinned memory")?,
            used: std::cell::Cell::new(0),
            results: Pinned::new(context, results + guesses).during("allocating pinned memory")?,
            guesses: results,
            sums: Pinned::new(context, sums * hidden).during("allocating pinned memory")?,
            hidden,
            begin: event(CU_EVENT_DEFAULT)?,
            forward: event(CU_EVENT_BLOCKING_SYNC)?,
            sampled: event(CU_EVENT_BLOCKING_SYNC)?,
            end: event(CU_EVENT_BLOCKING_SYNC)?,
        })
    }

    /// Room for `n` values, aligned for copies; `None` if the step has used it all.
    #[allow(clippy::mut_from_ref, reason = "each call gives memory that no other call gave")]
    pub(crate) fn take<T: Copy>(&self, n: usize) -> Option<&mut [T]> {
        const ALIGN: usize = 64;
        let at = self.used.get().next_multiple_of(ALIGN);
        let end = at + n * size_of::<T>();
        if end > self.bytes.len() {
            return None;
        }
        self.used.set(end);
        // SAFETY: the range was handed to nobody since the slot was taken, and copies from before that are over.
        // Callers store plain numbers, for which any bytes are valid.
        unsafe {
            let start = self.bytes.as_mut_slice().as_mut_ptr().add(at).cast::<T>();
            Some(std::slice::from_raw_parts_mut(start, n))
        }
    }

    /// Enqueues that values which were taken here lie in a buffer from `at` on.
    ///
    /// # Panics
    /// If the buffer ends before.
    ///
    /// # Safety
    /// The values are some of [`Staging::take`], and stay as they are until the copy is done.
    pub(crate) unsafe fn send<T: Copy>(
        &self,
        device: &Device,
        (to, at): (&mut CudaSlice<T>, usize),
        values: &[T],
    ) -> CudaResult<()> {
        assert!(at + values.len() <= to.len(), "{} values at {at} of {}", values.len(), to.len());
        let to = to.device_ptr_mut(device.stream()).0 + (at * size_of::<T>()) as u64;
        // SAFETY: the range was checked, the caller vouches for the source.
        unsafe {
            if Carrier::takes(size_of_val(values)) {
                return Ok(self.carrier.bring(device, values, to)?);
            }
            send_to(device, to, values)
        }
    }

    /// Enqueues that what lies at an address of the device lies in some of this step's memory.
    ///
    /// # Safety
    /// As many values lie there; nobody reads or writes `to` before the step's last mark.
    pub(crate) unsafe fn fetch<T: Copy>(&self, device: &Device, from: CUdeviceptr, to: &mut [T]) -> CudaResult<()> {
        // SAFETY: the caller's promise.
        unsafe {
            if Carrier::takes(size_of_val(to)) {
                return Ok(self.carrier.fetch(device, from, to)?);
            }
            let stream = device.stream();
            result::memcpy_dtoh_async(to, from, stream.cu_stream()).during("fetching results")
        }
    }

    /// Where the device sees the guesses that were fetched.
    pub(crate) fn guesses_address(&self) -> CUdeviceptr {
        self.results.address() + (self.guesses * size_of::<SampleResult>()) as CUdeviceptr
    }

    /// Everything handed out may be handed out again: the stream was waited for.
    pub(crate) fn rewind(&self) {
        self.used.set(0);
    }
}

/// The slots, taken in turn.
pub(crate) struct Ring {
    slots: Vec<Arc<Staging>>,
    next: usize,
}

impl Ring {
    /// Slots of so many bytes of inputs, so many results and guesses, and so many sums of so many values.
    pub(crate) fn new(
        of: (&Arc<CudaContext>, &Arc<Carrier>),
        bytes: usize,
        results: (usize, usize),
        sums: (usize, usize),
    ) -> CudaResult<Self> {
        let slot = |_| Staging::new(of, bytes, results, sums).map(Arc::new);
        let slots: CudaResult<_> = (0..SLOTS).map(slot).collect();
        Ok(Self { slots: slots?, next: 0 })
    }

    /// The next slot, or `None` while the step that has it is not finished with.
    pub(crate) fn take(&mut self) -> Option<Arc<Staging>> {
        let slot = &self.slots[self.next];
        if Arc::strong_count(slot) > 1 || !slot.end.is_complete() {
            return None;
        }
        self.next = (self.next + 1) % self.slots.len();
        slot.rewind();
        Some(slot.clone())
    }
}

/// Copies values through the step's pinned memory to the device.
pub(crate) fn stage<T: Copy>(
    device: &Device,
    staging: &Staging,
    to: &mut CudaSlice<T>,
    at: usize,
    values: &[T],
) -> CudaResult<()> {
    // A step may have more page tables to send than there is room for: rare, and worth a wait.
    let mut sent = 0;
    while sent < values.len() {
        let room = staging.take::<T>((values.len() - sent).min(STAGING_BYTES / 2 / size_of::<T>()));
        let Some(room) = room else {
            device.stream().synchronize().during("waiting for a step's inputs")?;
            staging.rewind();
            continue;
        };
        room.copy_from_slice(&values[sent..sent + room.len()]);
        // SAFETY: the room is the step's own until its results are read.
        unsafe { staging.send(device, (to, at + sent), room) }?;
        sent += room.len();
    }
    Ok(())
}

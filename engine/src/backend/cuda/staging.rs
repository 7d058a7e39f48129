//! Pinned memory that a step's inputs leave from and its results come back to.
//!
//! A step takes one of a few slots; a slot is taken again only when the step that had it has finished and its results
//! were read, so that the host never writes what a copy still reads.

use super::error::{CudaBackendError, During};
use super::pinned::Pinned;
use chimere_kernels::cuda::sampler::SampleResult;
use cudarc::driver::{CudaContext, CudaEvent, sys};
use std::sync::Arc;

/// Steps that may be unfinished, and one more whose results are being read.
const SLOTS: usize = 4;

/// One step's pinned memory and its marks in the stream.
pub(super) struct Staging {
    bytes: Pinned<u8>,
    used: std::cell::Cell<usize>,
    /// Results of the samplers, in the order they were asked for, and from [`Staging::guesses`] on the draft head's.
    pub(super) results: Pinned<SampleResult>,
    pub(super) guesses: usize,
    /// Sums of hidden states, [`Staging::hidden`] values each.
    pub(super) sums: Pinned<f32>,
    pub(super) hidden: usize,
    pub(super) begin: CudaEvent,
    pub(super) forward: CudaEvent,
    pub(super) sampled: CudaEvent,
    pub(super) end: CudaEvent,
}

// SAFETY: the cell is used by the engine's thread alone, before the step is handed to the thread that waits for it.
unsafe impl Sync for Staging {}

impl Staging {
    fn new(
        context: &Arc<CudaContext>,
        bytes: usize,
        (results, guesses): (usize, usize),
        (sums, hidden): (usize, usize),
    ) -> Result<Self, CudaBackendError> {
        use sys::CUevent_flags::{CU_EVENT_BLOCKING_SYNC, CU_EVENT_DEFAULT};
        // A waiting thread sleeps instead of keeping a core busy.
        let event = |flags| context.new_event(Some(flags)).during("making events");
        Ok(Self {
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
    pub(super) fn take<T: Copy>(&self, n: usize) -> Option<&mut [T]> {
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

    /// Everything handed out may be handed out again: the stream was waited for.
    pub(super) fn rewind(&self) {
        self.used.set(0);
    }
}

/// The slots, taken in turn.
pub(super) struct Ring {
    slots: Vec<Arc<Staging>>,
    next: usize,
}

impl Ring {
    /// Slots of so many bytes of inputs, so many results and guesses, and so many sums of so many values.
    pub(super) fn new(
        context: &Arc<CudaContext>,
        bytes: usize,
        results: (usize, usize),
        sums: (usize, usize),
    ) -> Result<Self, CudaBackendError> {
        let slot = |_| Staging::new(context, bytes, results, sums).map(Arc::new);
        let slots: Result<_, CudaBackendError> = (0..SLOTS).map(slot).collect();
        Ok(Self { slots: slots?, next: 0 })
    }

    /// The next slot, or `None` while the step that has it is not finished with.
    pub(super) fn take(&mut self) -> Option<Arc<Staging>> {
        let slot = &self.slots[self.next];
        if Arc::strong_count(slot) > 1 || !slot.end.is_complete() {
            return None;
        }
        self.next = (self.next + 1) % self.slots.len();
        slot.rewind();
        Some(slot.clone())
    }
}

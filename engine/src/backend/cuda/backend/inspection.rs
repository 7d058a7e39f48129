//! What benchmarks and tests ask of a backend beside its steps.

use super::CudaBackend;
use crate::backend::cuda::error::{CudaResult, During};
use crate::backend::cuda::layout::workspace::GIVEN_ROWS_MAX;
use crate::ids::{PageId, SlotId};
use chimere_kernels::cuda::KernelCache;
use chimere_kernels::cuda::endless::{Endless, EndlessBy};
use cudarc::driver::sys;
use std::collections::HashSet;

impl CudaBackend {
    /// Enqueues a wait that never ends, and that its bound of `ticks` x 67 ms turns into a trap: no later step of this
    /// backend succeeds.
    ///
    /// # Errors
    /// If the kernel cannot be compiled or launched.
    pub fn trap(&mut self, ticks: u32) -> CudaResult<()> {
        let cache = KernelCache::new(KernelCache::default_dir());
        Ok(Endless::load(&self.device, &cache, ticks)?.launch(&self.device, EndlessBy::Word)?)
    }

    /// Logits that the last step left, `[rows, vocab]`: those of its decode bucket first, then those of sampled
    /// prompts.
    ///
    /// # Errors
    /// If the device failed.
    pub fn logits(&mut self, rows: usize) -> CudaResult<Vec<f32>> {
        let n = rows * self.info.vocab as usize;
        self.device.stream().clone_dtoh(&self.work.logits.slice(0..n)).during("reading logits")
    }

    /// Distinct routed experts that the rows of the last finished forward picked, one entry a block that chooses; empty
    /// for a dense model or if the device failed.
    pub fn expert_counts(&mut self) -> Vec<u32> {
        let distinct = |block: &Vec<i32>| block.iter().filter(|e| **e >= 0).collect::<HashSet<_>>().len() as u32;
        self.expert_choices().iter().map(distinct).collect()
    }

    /// The experts that the rows of the last finished forward picked: of each block that chooses, row by row, below 0
    /// where there is none; empty for a dense model or if the device failed.
    pub fn expert_choices(&mut self) -> Vec<Vec<i32>> {
        let used = self.network.used();
        let pairs = self.last_rows * used;
        let Ok(all) = self.device.stream().clone_dtoh(&self.work.experts) else { return Vec::new() };
        if pairs == 0 {
            return Vec::new();
        }
        let blocks = all.chunks_exact(self.counts.rows() * used).take(self.network.routed_blocks());
        blocks.map(|block| block[..pairs].to_vec()).collect()
    }

    /// Says which experts the decode rows of the next step take, where the backend was made to be told: of each block
    /// that chooses `rows` times as many as a row uses, all of a row different.
    ///
    /// # Panics
    /// If there are others than so many, of more than 16 rows, or the backend was made to choose.
    pub fn give_experts(&mut self, rows: usize, experts: &[u32]) {
        let (used, blocks) = (self.network.used(), self.network.routed_blocks());
        assert!(self.work.given.is_some(), "the configuration says that experts are given");
        assert!(rows <= GIVEN_ROWS_MAX && experts.len() == blocks * rows * used, "{rows} rows of each block");
        let mut all = vec![0; blocks * GIVEN_ROWS_MAX * used];
        for (to, from) in all.chunks_exact_mut(GIVEN_ROWS_MAX * used).zip(experts.chunks_exact((rows * used).max(1))) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from as i32);
        }
        self.given = Some(all);
    }

    /// Overwrites a slot's state and these pages with values of a working sequence's size, so that a benchmark need not
    /// compute a context.
    pub fn fill_context(&mut self, slot: SlotId, pages: &[PageId]) {
        // A benchmark of a device that fails here fails at its first step too, with a better message.
        let _ = self.store.fill(&self.device, slot.0 as usize, pages);
    }

    /// Fills all states, checkpoints and pages with NaN, so that a test sees it if one is read before it was written.
    ///
    /// # Errors
    /// If the device failed.
    pub fn poison(&mut self) -> CudaResult<()> {
        self.store.poison(&self.device)
    }

    /// Bytes a second that a large copy inside the device's memory reads and writes together, measured now; `None` if
    /// memory does not suffice for two buffers of a gibibyte.
    pub fn copy_bandwidth(&mut self) -> Option<f64> {
        const BYTES: usize = 1 << 30;
        const COPIES: usize = 8;
        let stream = self.device.stream();
        let event = || stream.context().new_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT)).ok();
        let (from, mut to) = (stream.alloc_zeros::<u8>(BYTES).ok()?, stream.alloc_zeros::<u8>(BYTES).ok()?);
        let (begin, end) = (event()?, event()?);
        stream.memcpy_dtod(&from, &mut to).ok()?;
        begin.record(stream).ok()?;
        (0..COPIES).try_for_each(|_| stream.memcpy_dtod(&from, &mut to)).ok()?;
        end.record(stream).ok()?;
        end.synchronize().ok()?;
        Some((2 * BYTES * COPIES) as f64 / f64::from(begin.elapsed_ms(&end).ok()?) * 1e3)
    }
}

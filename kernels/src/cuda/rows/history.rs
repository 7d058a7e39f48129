//! Tokens of a prompt whose rows are not computed, noted where penalties look: what [`crate::cuda::rows::embed`] does
//! for rows.

use crate::cuda::rows::fits;
use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaView, CudaViewMut};

const NAME: &str = "history";
/// Threads of a block, as in the source.
const THREADS: usize = 256;

/// The program for a vocabulary.
pub fn program(vocab: usize) -> Program {
    Program::of::<Arguments>(NAME, source!("rows/history.cu"), vec![("VOCAB", vocab as i64)])
}

/// The kernel for one vocabulary.
#[derive(Debug)]
pub struct PromptHistory {
    vocab: usize,
    kernel: Kernel<Arguments>,
}

device_struct! {
    /// Parameters of the kernel.
    struct Arguments {
        /// `[slots, vocab]` of 16 bits, two a word.
        history: PtrMut<u32>,
        /// Entries of 16 bits before the sequence's own.
        first: u64,
        /// Ids of the tokens, `[count]`; ids beyond the vocabulary are left out.
        tokens: Ptr<u32>,
        count: u32,
    }
}

impl PromptHistory {
    /// Loads the kernel.
    ///
    /// # Errors
    /// If it cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, vocab: usize) -> Result<Self, CudaError> {
        Ok(Self { vocab, kernel: device.module(cache, &program(vocab))?.kernel(NAME)? })
    }

    /// Enqueues it for the first `count` of `tokens`, in the history of the sequence in `slot`: `history` is `[slots,
    /// vocab]` u16, two a word, as for [`crate::cuda::rows::embed::Embed::launch`].
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    pub fn launch(
        &self,
        device: &Device,
        tokens: &CudaView<'_, u32>,
        count: usize,
        slot: usize,
        history: &mut CudaViewMut<'_, u32>,
    ) -> Result<(), CudaError> {
        fits(NAME, "the list", tokens.len(), count)?;
        fits(NAME, "the history", history.len(), ((slot + 1) * self.vocab).div_ceil(2))?;
        if count == 0 {
            return Ok(());
        }
        let stream = device.stream();
        let arguments = Arguments {
            history: PtrMut::of(history, stream),
            first: (slot * self.vocab) as u64,
            tokens: Ptr::of(tokens, stream),
            count: count as u32,
        };
        let grid = Grid { blocks: (count.div_ceil(THREADS) as u32, 1), threads: THREADS as u32 };
        // SAFETY: list and history were found large enough, and the kernel leaves out tokens beyond the vocabulary; it
        // reads nothing before its wait.
        unsafe { self.kernel.launch(device, grid, &arguments) }
    }
}

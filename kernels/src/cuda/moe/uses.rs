//! Which experts a pass used, a bit each, from what its rows chose (`csrc/router/uses.cu`).

use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaView, CudaViewMut};

const NAME: &str = "uses";
/// Threads of a block, as in the source.
const THREADS: u32 = 256;

/// Words that hold a bit for each of so many experts.
pub fn words(experts: usize) -> usize {
    experts.div_ceil(32)
}

/// The program for so many experts.
pub fn program(experts: usize) -> Program {
    Program::of::<Arguments>(NAME, source!("router/uses.cu"), vec![("WORDS", words(experts) as i64)])
}

device_struct! {
    /// Parameters of the kernel.
    struct Arguments {
        /// `[blocks, pitch]`; below 0: none.
        chosen: Ptr<i32>,
        /// Bit of each expert in each block, `[blocks, words]`, set where the block has chosen the expert.
        bits: PtrMut<u32>,
        pitch: i32,
        /// Number of choices that count in each block, at most `pitch`.
        count: i32,
    }
}

/// The kernel for one number of experts.
#[derive(Debug)]
pub struct Uses {
    experts: usize,
    kernel: Kernel<Arguments>,
}

impl Uses {
    /// Loads the kernel.
    ///
    /// # Errors
    /// If it cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, experts: usize) -> Result<Self, CudaError> {
        Ok(Self { experts, kernel: device.module(cache, &program(experts))?.kernel(NAME)? })
    }

    /// Enqueues it: sets the bits, `[blocks, words]`, of the experts among the first `count` values of each row of
    /// `chosen`, `[blocks, pitch]`.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// What was chosen on the device are experts that there are, or below 0.
    pub unsafe fn launch(
        &self,
        device: &Device,
        (blocks, pitch): (usize, usize),
        chosen: &CudaView<'_, i32>,
        count: usize,
        bits: &mut CudaViewMut<'_, u32>,
    ) -> Result<(), CudaError> {
        if chosen.len() < blocks * pitch || count > pitch || bits.len() < blocks * words(self.experts) {
            let (chosen, bits) = (chosen.len(), bits.len());
            let what = format!("{count} of {pitch} choices of {blocks} blocks: {chosen} are there, and {bits} words");
            return Err(CudaError::shape(NAME, what));
        }
        let stream = device.stream();
        let (chosen, bits) = (Ptr::of(chosen, stream), PtrMut::of(bits, stream));
        let arguments = Arguments { chosen, bits, pitch: pitch as i32, count: count as i32 };
        // SAFETY: the buffers were found large enough, the caller vouches for the experts; nothing is read before the
        // wait.
        unsafe { self.kernel.launch(device, Grid { blocks: (blocks as u32, 1), threads: THREADS }, &arguments) }
    }
}

//! Words of the device's memory that change between steps, all in one launch (`csrc/router/addresses.cu`).

use crate::cuda::runtime::arguments::{Ptr, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::CudaView;

const NAME: &str = "addresses";
/// Threads of the block, as in the source.
const THREADS: u32 = 128;

/// Builds the program that stores the words; it has no shape.
pub fn program() -> Program {
    Program::of::<Arguments>(NAME, source!("router/addresses.cu"), Vec::new())
}

device_struct! {
    /// Parameters of the kernel `addresses`.
    struct Arguments {
        /// `[count, 2]`: an address, and what is to stand there.
        pairs: Ptr<u64>,
        count: i32,
        /// Nothing; fills the struct up to its alignment.
        unused: i32,
    }
}

/// The loaded kernel that stores words at given addresses of the device.
#[derive(Debug)]
pub struct Addresses {
    kernel: Kernel<Arguments>,
}

impl Addresses {
    /// Loads the kernel.
    ///
    /// # Errors
    /// If it cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache) -> Result<Self, CudaError> {
        Ok(Self { kernel: device.module(cache, &program())?.kernel(NAME)? })
    }

    /// Enqueues it: writes the second word of each of `pairs`, `[n, 2]`, where the first one says.
    ///
    /// # Errors
    /// If the driver refuses.
    ///
    /// # Safety
    /// Each address is one of a word of the device's memory that nothing but what the stream does reads or writes, and
    /// no two are the same.
    pub unsafe fn launch(&self, device: &Device, pairs: &CudaView<'_, u64>) -> Result<(), CudaError> {
        let count = (pairs.len() / 2) as i32;
        let arguments = Arguments { pairs: Ptr::of(pairs, device.stream()), count, unused: 0 };
        // SAFETY: as many pairs as there are; the caller vouches for what they say. Nothing is read before the wait.
        unsafe { self.kernel.launch(device, Grid { blocks: (1, 1), threads: THREADS }, &arguments) }
    }
}

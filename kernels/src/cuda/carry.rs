//! Words between the host's page-locked memory and the device by kernels (`csrc/rows/carry.cu`), which wait for no copy
//! engine.

use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::sys::CUdeviceptr;

const NAME: &str = "carry";
const THREADS: usize = 256;

/// Bytes up to which a kernel carries them sooner than a copy engine would begin.
pub const BYTES_MAX: usize = 64 << 10;

device_struct! {
    /// Parameters of both kernels.
    struct Arguments {
        /// Words that are read, `[words]`.
        from: Ptr<u32>,
        /// Words that are written, `[words]`.
        to: PtrMut<u32>,
        words: u32,
    }
}

/// The program of both kernels.
pub fn program() -> Program {
    Program::of::<Arguments>(NAME, source!("rows/carry.cu"), Vec::new())
}

/// The loaded kernels that copy words between page-locked memory of the host and the device.
#[derive(Debug)]
pub struct Carrier {
    bring: Kernel<Arguments>,
    fetch: Kernel<Arguments>,
}

impl Carrier {
    /// Loads both.
    ///
    /// # Errors
    /// If they cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache) -> Result<Self, CudaError> {
        let module = device.module(cache, &program())?;
        Ok(Self { bring: module.kernel("bring")?, fetch: module.kernel("fetch")? })
    }

    /// Whether values of so many bytes in all are carried: whole words, not too many.
    pub fn takes(bytes: usize) -> bool {
        bytes.is_multiple_of(4) && bytes <= BYTES_MAX
    }

    /// Enqueues that `values` lie at address `to` of the device.
    ///
    /// # Errors
    /// If they are not what [`Carrier::takes`], or the driver refuses.
    ///
    /// # Safety
    /// The values lie in page-locked memory that the device sees, and stay as they are until the launch is done; `to`
    /// has room for them, on a word's boundary.
    pub unsafe fn bring<T: Copy>(&self, device: &Device, values: &[T], to: CUdeviceptr) -> Result<(), CudaError> {
        // SAFETY: the caller's promise; nothing but the host's memory is read before the wait.
        unsafe { carry(&self.bring, device, (values.as_ptr() as u64, to), size_of_val(values)) }
    }

    /// Enqueues that what lies at address `from` of the device lies in `values`.
    ///
    /// # Errors
    /// As [`Carrier::bring`].
    ///
    /// # Safety
    /// The values lie in page-locked memory that the device sees, and nobody touches them until the launch is done;
    /// as many lie at `from`, on a word's boundary.
    pub unsafe fn fetch<T: Copy>(&self, device: &Device, from: CUdeviceptr, values: &mut [T]) -> Result<(), CudaError> {
        // SAFETY: as above.
        unsafe { carry(&self.fetch, device, (from, values.as_mut_ptr() as u64), size_of_val(values)) }
    }
}

unsafe fn carry(
    kernel: &Kernel<Arguments>,
    device: &Device,
    (from, to): (u64, u64),
    bytes: usize,
) -> Result<(), CudaError> {
    if !Carrier::takes(bytes) || !(from | to).is_multiple_of(4) {
        let what = format!("{bytes} bytes from {from:#x} to {to:#x}: must be whole words, at most {BYTES_MAX} bytes");
        return Err(CudaError::shape(NAME, what));
    }
    let words = bytes / 4;
    if words == 0 {
        return Ok(());
    }
    let arguments = Arguments { from: Ptr::at(from), to: PtrMut::at(to), words: words as u32 };
    let grid = Grid { blocks: (words.div_ceil(THREADS) as u32, 1), threads: THREADS as u32 };
    // SAFETY: the caller vouches for both.
    unsafe { kernel.launch(device, grid, &arguments) }
}

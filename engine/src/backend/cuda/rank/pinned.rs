//! Host memory that the device copies from and to while the host goes on.

use crate::backend::cuda::error::{CudaResult, During};
use chimere_kernels::cuda::Device;
use cudarc::driver::{CudaContext, DriverError, result, sys};
use std::sync::Arc;

/// Page-locked memory, zeroed at first. Who touches it while a copy runs is the caller's business, hence the unsafe
/// accessors.
#[derive(Debug)]
pub(crate) struct Pinned<T> {
    ptr: *mut T,
    len: usize,
    context: Arc<CudaContext>,
}

// SAFETY: it owns plain memory that belongs to no thread.
unsafe impl<T: Send> Send for Pinned<T> {}
// SAFETY: shared references give access through unsafe functions only.
unsafe impl<T: Sync> Sync for Pinned<T> {}

impl<T: Copy> Pinned<T> {
    /// Takes memory for `len` values, for which zeros must be valid.
    ///
    /// # Errors
    /// If the driver has none.
    pub(crate) fn new(context: &Arc<CudaContext>, len: usize) -> Result<Self, DriverError> {
        context.bind_to_thread()?;
        let bytes = (len * size_of::<T>()).max(1);
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: a context is bound; the memory is freed once, in `drop`.
        let ptr = unsafe { result::malloc_host(bytes, flags) }?.cast::<T>();
        // SAFETY: just allocated with this size.
        unsafe { std::ptr::write_bytes(ptr.cast::<u8>(), 0, bytes) };
        Ok(Self { ptr, len, context: context.clone() })
    }

    /// How many values it holds.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where the device sees it.
    pub(crate) fn address(&self) -> sys::CUdeviceptr {
        // Memory that was taken as mapped has one address for both.
        self.ptr as sys::CUdeviceptr
    }

    /// # Safety
    /// No copy to this memory is under way, and nobody writes it while the slice lives.
    pub(crate) unsafe fn as_slice(&self) -> &[T] {
        // SAFETY: `len` values were allocated and zeroed.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }

    /// # Safety
    /// No copy from or to this memory is under way, and nobody else touches it while the slice lives.
    #[allow(clippy::mut_from_ref, reason = "the caller vouches for being alone")]
    pub(crate) unsafe fn as_mut_slice(&self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) }
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        // A failure leaves nothing to do: the process is ending or the device is lost.
        let _ = self.context.bind_to_thread();
        // SAFETY: allocated by `new`, freed once.
        let _ = unsafe { result::free_host(self.ptr.cast()) };
    }
}

/// Copies `values` to an address of the device, in stream order.
///
/// # Safety
/// `values` is page-locked memory that stays as it is until the stream has passed this copy; the address has room for
/// them.
pub(crate) unsafe fn send_to<T>(device: &Device, to: sys::CUdeviceptr, values: &[T]) -> CudaResult<()> {
    let stream = device.stream();
    stream.context().bind_to_thread().during("cuCtxSetCurrent")?;
    // SAFETY: the caller's.
    unsafe { result::memcpy_htod_async(to, values, stream.cu_stream()) }.during("sending a step's inputs")
}

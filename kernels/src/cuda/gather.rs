//! Chosen rows of folded ones ([`super::rows`]), side by side: of a prompt only the rows that are sampled go through the head.
//! One block a row.

use super::quantized::Planes;
use super::rows::{Folded, FoldedOut, check_cols, fits, lengths, padded};
use super::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaView, DevicePtr, DevicePtrMut};
use std::ffi::c_void;

const NAME: &str = "gather";
const COLS_MAX: usize = 1 << 16;
/// Threads of a block, as in the source.
const THREADS: u32 = 128;

/// The program for rows of `cols`.
///
/// # Errors
/// If there is none for them.
pub fn program(cols: usize, planes: Planes) -> Result<Program, CudaError> {
    check_cols(NAME, cols, COLS_MAX)?;
    let defines = vec![("COLS", cols as i64), ("PADDED", padded(cols) as i64), planes.define()];
    Ok(Program { name: NAME, source: include_str!("../../csrc/gather.cu"), defines })
}

/// The kernel for rows of one length.
#[derive(Debug)]
pub struct Gather {
    cols: usize,
    planes: Planes,
    kernel: Kernel,
}

impl Gather {
    /// Loads the kernel for rows of `cols`.
    ///
    /// # Errors
    /// If there is none, or it cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, cols: usize, planes: Planes) -> Result<Self, CudaError> {
        Ok(Self { cols, planes, kernel: device.module(cache, &program(cols, planes)?)?.kernel(NAME)? })
    }

    /// Enqueues it: row `i` of `out`, of `n`, is row `list[i]` of `rows`, or zeros where that is below 0.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// What `list` names on the device lies within `rows`.
    pub unsafe fn launch(
        &self,
        device: &Device,
        n: usize,
        list: &CudaView<'_, i32>,
        rows: Folded<'_>,
        out: FoldedOut<'_, '_>,
    ) -> Result<(), CudaError> {
        let [codes, meta, squares] = lengths(n.min(1), self.cols, self.planes);
        fits(NAME, "the list", list.len(), n)?;
        fits(NAME, "codes", rows.codes.len(), codes)?;
        fits(NAME, "meta", rows.meta.len(), meta)?;
        fits(NAME, "squares", rows.squares.len(), squares)?;
        out.check(NAME, n, self.cols, self.planes)?;
        if n == 0 {
            return Ok(());
        }
        let stream = device.stream();
        let mut pointers = [
            list.device_ptr(stream).0,
            rows.codes.device_ptr(stream).0,
            rows.meta.device_ptr(stream).0,
            rows.squares.device_ptr(stream).0,
            out.codes.device_ptr_mut(stream).0,
            out.meta.device_ptr_mut(stream).0,
            out.squares.device_ptr_mut(stream).0,
        ];
        let mut params = pointers.each_mut().map(|p| (p as *mut u64).cast::<c_void>());
        // SAFETY: seven pointers are the kernel's parameters; outputs were found large enough, the caller vouches for the list;
        // nothing is read before the wait.
        unsafe { self.kernel.launch(device, Grid { blocks: (n as u32, 1), threads: THREADS }, &mut params) }
    }
}

//! Chosen rows of folded ones ([`crate::cuda::rows`]), side by side: of a prompt only the rows that are sampled go
//! through the head. One block a row.

use crate::cuda::rows::quantized::Planes;
use crate::cuda::rows::{Folded, FoldedOut, check_cols, fits, lengths, padded};
use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::CudaView;

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
    Ok(Program::of::<Arguments>(NAME, source!("rows/gather.cu"), defines))
}

/// The kernel for rows of one length.
#[derive(Debug)]
pub struct Gather {
    cols: usize,
    planes: Planes,
    kernel: Kernel<Arguments>,
}

device_struct! {
    /// What the kernel is given: rows that are read, and those that are written.
    struct Arguments {
        /// `[out rows]`: which row is read, below 0 for zeros.
        list: Ptr<i32>,
        codes: Ptr<i8>,
        meta: Ptr<[f32; 2]>,
        squares: Ptr<f32>,
        codes_out: PtrMut<i8>,
        meta_out: PtrMut<[f32; 2]>,
        squares_out: PtrMut<f32>,
    }
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
        let (codes_out, meta_out, squares_out) = out.pointers(stream);
        let arguments = Arguments {
            list: Ptr::of(list, stream),
            codes: Ptr::of(rows.codes, stream),
            meta: Ptr::of(rows.meta, stream),
            squares: Ptr::of(rows.squares, stream),
            codes_out,
            meta_out,
            squares_out,
        };
        // SAFETY: outputs were found large enough, the caller vouches for the list; nothing is read before the wait.
        unsafe { self.kernel.launch(device, Grid { blocks: (n as u32, 1), threads: THREADS }, &arguments) }
    }
}

//! Sums of the residual stream after the final norm, over a few neighbouring rows each: [`crate::reference::pool`]. A
//! thread has one column of a unit.

use crate::cuda::rows::quantized::BLOCK;
use crate::cuda::rows::{check_cols, fits};
use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaView, CudaViewMut};

const NAME: &str = "pool";
const COLS_MAX: usize = 1 << 16;
/// Threads of a block, as in the source.
const THREADS: usize = 256;
/// Most rows of a unit.
pub const UNIT_ROWS_MAX: usize = 64;

/// The program for rows of `cols`.
///
/// # Errors
/// If there is none for them.
pub fn program(cols: usize) -> Result<Program, CudaError> {
    check_cols(NAME, cols, COLS_MAX)?;
    let defines = vec![("COLS", cols as i64), ("UNIT", UNIT_ROWS_MAX as i64)];
    Ok(Program::of::<Arguments>(NAME, source!("rows/pool.cu"), defines))
}

/// Blocks of a launch: a unit's columns, [`THREADS`] at a time. Smaller blocks would spread one unit over more of the
/// chip and are slower: a block works out its rows' factors with all its warps. No result depends on it.
fn grid(units: usize, cols: usize) -> Grid {
    Grid { blocks: (units as u32, cols.div_ceil(THREADS) as u32), threads: THREADS as u32 }
}

/// The kernel for rows of one length.
#[derive(Debug)]
pub struct Pool {
    cols: usize,
    kernel: Kernel<Arguments>,
}

device_struct! {
    /// Parameters of the kernel.
    struct Arguments {
        /// `[units]`: first row and rows.
        units: Ptr<[i32; 2]>,
        /// Residual stream before the norm, `[rows, cols]`.
        x: Ptr<f32>,
        /// `[rows, cols / 32]`.
        squares: Ptr<f32>,
        /// Weight of the norm, `[cols]`.
        weight: Ptr<f32>,
        /// Sums of the normed rows of each unit, `[units, cols]`.
        sums: PtrMut<f32>,
        eps: f32,
    }
}

/// Rows before the norm, and the norm.
pub struct HiddenRows<'a> {
    /// Residual stream before the norm, `[rows, cols]`.
    pub x: CudaView<'a, f32>,
    /// `[rows, cols / 32]`: sum of `x^2` over each block of 32.
    pub squares: CudaView<'a, f32>,
    /// `[cols]`, the norm's factor.
    pub weight: CudaView<'a, f32>,
    /// Epsilon that the norm adds to the mean of squares.
    pub eps: f32,
}

impl Pool {
    /// Loads the kernel for rows of `cols`.
    ///
    /// # Errors
    /// If there is none, or it cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, cols: usize) -> Result<Self, CudaError> {
        Ok(Self { cols, kernel: device.module(cache, &program(cols)?)?.kernel(NAME)? })
    }

    /// Enqueues it for `n` units: `units` is `[n, 2]`, first row and rows of each; `sums` `[n, cols]`.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// On the device every unit has 1 to [`UNIT_ROWS_MAX`] rows, which lie within `rows`.
    pub unsafe fn launch(
        &self,
        device: &Device,
        n: usize,
        units: &CudaView<'_, i32>,
        rows: HiddenRows<'_>,
        sums: &mut CudaViewMut<'_, f32>,
    ) -> Result<(), CudaError> {
        fits(NAME, "the list", units.len(), 2 * n)?;
        fits(NAME, "x", rows.x.len(), n.min(1) * self.cols)?;
        fits(NAME, "squares", rows.squares.len(), n.min(1) * self.cols / BLOCK)?;
        fits(NAME, "the weight", rows.weight.len(), self.cols)?;
        fits(NAME, "sums", sums.len(), n * self.cols)?;
        if n == 0 {
            return Ok(());
        }
        let stream = device.stream();
        let arguments = Arguments {
            units: Ptr::of(units, stream),
            x: Ptr::of(&rows.x, stream),
            squares: Ptr::of(&rows.squares, stream),
            weight: Ptr::of(&rows.weight, stream),
            sums: PtrMut::of(sums, stream),
            eps: rows.eps,
        };
        // SAFETY: weight and sums were found large enough, the caller vouches for the units; before its wait the kernel
        // reads the weight only.
        unsafe { self.kernel.launch(device, grid(n, self.cols), &arguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_of_every_unit_has_a_thread() {
        for cols in [32, 96, 256, 288, 2048, 5120] {
            let Grid { blocks, threads } = grid(7, cols);
            let (covered, one_less) = ((blocks.1 * threads) as usize, ((blocks.1 - 1) * threads) as usize);
            assert!(blocks.0 == 7 && covered >= cols && cols > one_less, "{cols}");
        }
    }

    #[test]
    fn rows_that_no_kernel_takes_are_refused_by_name() {
        assert!(program(2048).is_ok());
        assert!(program(48).unwrap_err().to_string().contains("rows of 48"));
    }
}

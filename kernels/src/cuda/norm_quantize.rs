//! RMS norm of rows and the int8 form of the result, for the products that follow: [`crate::reference::rmsnorm`], then
//! [`super::quantized`]. One block a row.

use super::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaView, CudaViewMut, DevicePtr, DevicePtrMut};
use std::ffi::c_void;

/// Threads of a block: each has a few values, and a row is a whole number of them.
///
/// # Errors
/// If rows of `cols` are no multiple of a warp, or too long to hold in registers.
pub fn threads(cols: usize) -> Result<usize, CudaError> {
    const EACH_MAX: usize = 16;
    let choice = [512, 256, 128, 64, 32].into_iter().find(|t| cols.is_multiple_of(*t) && (cols / t >= 2 || *t == 32));
    match choice {
        Some(t) if cols > 0 && cols / t <= EACH_MAX => Ok(t),
        _ => Err(CudaError::shape(
            "norm_quantize",
            format!("rows of {cols}: must be a multiple of 32, of 512 beyond 4096, at most 8192"),
        )),
    }
}

/// The program for rows of `cols`.
///
/// # Errors
/// As [`threads`].
pub fn program(cols: usize) -> Result<Program, CudaError> {
    let defines = vec![("COLS", cols as i64), ("THREADS", threads(cols)? as i64)];
    Ok(Program { name: "norm_quantize", source: include_str!("../../csrc/norm_quantize.cu"), defines })
}

/// The kernel for rows of one length.
#[derive(Debug)]
pub struct NormQuantize {
    cols: usize,
    threads: usize,
    kernel: Kernel,
}

/// Where the result goes.
pub struct Normed<'a, 'b> {
    /// `[rows, cols]`, if the values themselves are wanted.
    pub values: Option<&'a mut CudaViewMut<'b, f32>>,
    /// `[rows, cols]`.
    pub codes: &'a mut CudaViewMut<'b, i8>,
    /// `[rows, cols / 32, 2]`.
    pub meta: &'a mut CudaViewMut<'b, f32>,
}

impl NormQuantize {
    /// Loads the kernel for rows of `cols`.
    ///
    /// # Errors
    /// If there is none for them, or it cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, cols: usize) -> Result<Self, CudaError> {
        let kernel = device.module(cache, &program(cols)?)?.kernel("norm_quantize")?;
        Ok(Self { cols, threads: threads(cols)?, kernel })
    }

    /// Enqueues it for `rows` rows of `x`. `weight` is the factor itself, not an offset from one.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    pub fn launch(
        &self,
        device: &Device,
        rows: usize,
        x: &CudaView<'_, f32>,
        weight: &CudaView<'_, f32>,
        mut eps: f32,
        out: Normed<'_, '_>,
    ) -> Result<(), CudaError> {
        let n = rows * self.cols;
        let fits = |what: &str, got: usize, need: usize| {
            let text = || format!("{what} has {got} elements, {rows} rows of {} need {need}", self.cols);
            if got >= need { Ok(()) } else { Err(CudaError::shape("norm_quantize", text())) }
        };
        fits("the input", x.len(), n)?;
        fits("the weight", weight.len(), self.cols)?;
        fits("codes", out.codes.len(), n)?;
        fits("meta", out.meta.len(), n / 16)?;
        if let Some(values) = &out.values {
            fits("the output", values.len(), n)?;
        }
        if rows == 0 {
            return Ok(());
        }
        let stream = device.stream();
        let mut pointers = [
            x.device_ptr(stream).0,
            weight.device_ptr(stream).0,
            out.values.map_or(0, |v| v.device_ptr_mut(stream).0),
            out.codes.device_ptr_mut(stream).0,
            out.meta.device_ptr_mut(stream).0,
        ];
        let mut params = pointers.each_mut().map(|p| (p as *mut u64).cast::<c_void>()).to_vec();
        params.push((&raw mut eps).cast());
        let grid = Grid { blocks: (rows as u32, 1), threads: self.threads as u32 };
        // SAFETY: five pointers and a float are the kernel's parameters; every buffer was found large enough; before its wait the
        // kernel reads the weight only.
        unsafe { self.kernel.launch(device, grid, &mut params) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_shared_evenly_among_whole_warps() {
        assert_eq!([2048, 256, 4096, 96, 32].map(|c| threads(c).unwrap()), [512, 128, 512, 32, 32]);
        assert!(threads(48).unwrap_err().to_string().contains("rows of 48"));
        assert!(threads(16384).is_err());
    }
}

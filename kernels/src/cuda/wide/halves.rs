//! Int8 rows as rows of f16, which [`super::warpgroup`] multiplies. `csrc/rows/half_rows.cuh` and
//! `csrc/weights/halves.cuh` say in which order the values lie.

use super::Inputs;
use crate::cuda::product::layout::UNIT;
use crate::cuda::rows::quantized::{BLOCK, Planes};
use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::CudaSlice;

const NAME: &str = "halves";
const COLS_MAX: usize = 1 << 20;
/// Values of the columns that a block may have more than there are rows.
const BEYOND: usize = 128 * 64;
/// Threads of a block, as in the source; of a row so long that all have one together.
const THREADS: usize = 128;
const LONG: usize = 1024;

/// What products of rows are multiplied by that their writer has divided by it and by nothing of their own: those
/// between an expert's matrices. 2^3 lets a value be 524,000 and keeps all eleven bits of one of 5e-4.
pub const HIDDEN_FACTOR: i64 = 8;

/// The program for rows of `cols` values, to which the rms norm of the first `norm` is added where there is one.
///
/// # Errors
/// If they are not whole units of 128, or too long, or the norm is not over whole blocks of them.
pub fn program(cols: usize, norm: Option<usize>) -> Result<Program, CudaError> {
    let norm = norm.unwrap_or(0);
    if cols == 0 || !cols.is_multiple_of(UNIT) || cols > COLS_MAX || norm > cols || !norm.is_multiple_of(BLOCK) {
        let what = format!(
            "rows of {cols} values, a norm of {norm}: must be multiples of {UNIT} up to {COLS_MAX}, of {BLOCK} up to it"
        );
        return Err(CudaError::shape(NAME, what));
    }
    Ok(Program::of::<Arguments>(
        NAME,
        source!("rows/halves.cu"),
        vec![("COLS", cols as i64), ("NORM_BLOCKS", (norm / BLOCK) as i64)],
    ))
}

/// Rows of f16 on the device. Launches that follow one another on a stream share them: each writes what the next reads.
#[derive(Debug)]
pub struct HalfRows {
    /// `[cols / 64, rows, 64]`, whatever these are at the time, and what a tile of columns may reach beyond them.
    values: CudaSlice<u16>,
    /// `[rows]`: what products of a row are multiplied by: what its values were divided by, and its norm's factor.
    scales: CudaSlice<f32>,
}

impl HalfRows {
    /// Takes the memory for so many rows, and values of all of them together.
    ///
    /// # Errors
    /// If the device has too little.
    pub fn new(device: &Device, rows: usize, values: usize) -> Result<Self, CudaError> {
        let (stream, failed) = (device.stream(), |error| CudaError::Driver { call: "cuMemAlloc", error });
        let scales = stream.alloc_zeros(rows).map_err(failed)?;
        Ok(Self { values: stream.alloc_zeros(values + BEYOND).map_err(failed)?, scales })
    }

    /// Takes the memory for rows that [`super::Output::HalfRows`] writes, and sets the scale of each to
    /// [`HIDDEN_FACTOR`].
    ///
    /// # Errors
    /// If the device has too little, or the driver refuses.
    pub fn of_hidden(device: &Device, rows: usize, values: usize) -> Result<Self, CudaError> {
        let mut made = Self::new(device, rows, values)?;
        let failed = |error| CudaError::Driver { call: "cuMemcpyHtoD", error };
        device.stream().memcpy_htod(&vec![HIDDEN_FACTOR as f32; rows], &mut made.scales).map_err(failed)?;
        Ok(made)
    }

    /// Bytes that [`HalfRows::new`] takes.
    pub fn bytes(rows: usize, values: usize) -> usize {
        2 * (values + BEYOND) + 4 * rows
    }

    /// Values, then the rows' scales, for kernels that read them.
    pub(in crate::cuda) fn pointers(&self, device: &Device) -> (Ptr<u16>, Ptr<f32>) {
        (Ptr::of(&self.values, device.stream()), Ptr::of(&self.scales, device.stream()))
    }

    /// Values and scales of the rows, for kernels that write them.
    pub(in crate::cuda) fn pointers_mut(&self, device: &Device) -> (PtrMut<u16>, PtrMut<f32>) {
        (PtrMut::of_shared(&self.values, device.stream()), PtrMut::of_shared(&self.scales, device.stream()))
    }

    /// What lies there, copied to the host: values, and the rows' scales.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn on_host(&self, device: &Device) -> Result<(Vec<u16>, Vec<f32>), CudaError> {
        let (stream, failed) = (device.stream(), |error| CudaError::Driver { call: "cuMemcpyDtoH", error });
        Ok((stream.clone_dtoh(&self.values).map_err(failed)?, stream.clone_dtoh(&self.scales).map_err(failed)?))
    }

    /// Where launch `name` puts `rows` rows of `width` values as f16, if it does; null else.
    ///
    /// # Errors
    /// If there is too little room, or they are no whole units of one plane.
    pub(in crate::cuda) fn target(
        halves: Option<&Self>,
        device: &Device,
        name: &'static str,
        (rows, width): (usize, usize),
        planes: Planes,
    ) -> Result<PtrMut<u16>, CudaError> {
        let Some(halves) = halves else { return Ok(PtrMut::default()) };
        halves.check(rows, width)?;
        if !width.is_multiple_of(UNIT) || planes != Planes::One {
            let what = format!("rows of {width} values and {planes:?} planes cannot be f16");
            return Err(CudaError::shape(name, what));
        }
        Ok(halves.pointers_mut(device).0)
    }

    pub(in crate::cuda) fn check(&self, rows: usize, cols: usize) -> Result<(), CudaError> {
        if self.scales.len() < rows || self.values.len() < rows * cols + BEYOND {
            let (most, values) = (self.scales.len(), self.values.len() - BEYOND);
            let what = format!("{rows} rows of {cols} values: there is room for {most} rows and {values} values");
            return Err(CudaError::shape(NAME, what));
        }
        Ok(())
    }
}

device_struct! {
    /// Parameters of the kernel.
    struct Arguments {
        /// Int8 codes of the rows, `[rows, cols]`.
        codes: Ptr<i8>,
        /// `[rows, cols / 32]`.
        meta: Ptr<[f32; 2]>,
        /// `[rows, norm / 32]`.
        squares: Ptr<f32>,
        /// Rows as f16, `[cols / 64, rows, 64]`.
        halves: PtrMut<u16>,
        /// Scale of each row, `[rows]`: see [`HalfRows`].
        scales: PtrMut<f32>,
        rows: u32,
        eps: f32,
    }
}

/// The kernel for rows of one length.
#[derive(Debug)]
pub struct Halves {
    cols: usize,
    norm: usize,
    kernel: Kernel<Arguments>,
}

impl Halves {
    /// Loads the kernel of [`program`].
    ///
    /// # Errors
    /// If there is none, or it cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, cols: usize, norm: Option<usize>) -> Result<Self, CudaError> {
        let kernel = device.module(cache, &program(cols, norm)?)?.kernel(NAME)?;
        Ok(Self { cols, norm: norm.unwrap_or(0), kernel })
    }

    /// Enqueues it: the first `rows` of `out` are those of `x`, of one plane. Its factor is left to the products.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    pub fn launch(&self, device: &Device, rows: usize, x: Inputs<'_>, out: &HalfRows) -> Result<(), CudaError> {
        out.check(rows, self.cols)?;
        let squares = x.squares.map_or(0, |s| s.len());
        if x.codes.len() < rows * self.cols
            || x.meta.len() < rows * self.cols / 16
            || squares < rows * self.norm / BLOCK
        {
            let (codes, meta) = (x.codes.len(), x.meta.len());
            let what = format!("{rows} rows of {}: {codes} codes, {meta} meta and {squares} squares", self.cols);
            return Err(CudaError::shape(NAME, what));
        }
        if rows == 0 {
            return Ok(());
        }
        let stream = device.stream();
        let (halves, scales) = out.pointers_mut(device);
        let arguments = Arguments {
            codes: Ptr::of(x.codes, stream),
            meta: Ptr::of(x.meta, stream),
            squares: Ptr::of_some(x.squares, stream),
            halves,
            scales,
            rows: rows as u32,
            eps: x.eps,
        };
        let rows_a_block = if self.cols >= LONG { 1 } else { THREADS / 32 };
        let grid = Grid { blocks: (rows.div_ceil(rows_a_block) as u32, 1), threads: THREADS as u32 };
        // SAFETY: all buffers were found large enough; nothing is read before the wait.
        unsafe { self.kernel.launch(device, grid, &arguments) }
    }
}

//! Adds what a layer's experts made to the residual stream, weighted by the router: [`crate::reference::combine`]. Then
//! the int8 form of the rows times the next norm's weight, and their squares. Or the sum alone in int8,
//! where a matrix stands between it and the stream. A thread holds eight values of a row.

use crate::cuda::rows::quantized::Planes;
use crate::cuda::rows::{FoldedOut, check_cols, fits, lengths, padded};
use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::wide::halves::HalfRows;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaView, CudaViewMut};

const NAME: &str = "combine";
const COLS_MAX: usize = 1 << 16;
/// Most experts that a row may go to.
const USED_MAX: usize = 32;
/// Values of a thread.
const EACH: usize = 8;
/// Most threads of a block that has a row.
const ROW_THREADS_MAX: usize = 1024;

/// Shape of the sum over a layer's experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CombineShape {
    /// Values of a row.
    pub cols: usize,
    /// Experts of a row.
    pub used: usize,
    /// Whether there is a shared expert.
    pub shared: bool,
    /// Whether the sum is added to the residual stream.
    pub stream: bool,
    /// Int8 codes for each value of the output rows.
    pub planes: Planes,
}

impl CombineShape {
    /// Whether a block has all of a row, and so can bring its f16 form too: of whole warps, as products want them.
    pub fn brings_halves(&self) -> bool {
        let one = self.stream && self.planes == Planes::One;
        one && self.cols.is_multiple_of(EACH * 32) && self.cols <= EACH * ROW_THREADS_MAX
    }
}

/// The program for a shape.
///
/// # Errors
/// If there is no kernel for it.
pub fn program(shape: CombineShape) -> Result<Program, CudaError> {
    check_cols(NAME, shape.cols, COLS_MAX)?;
    if !(1..=USED_MAX).contains(&shape.used) {
        return Err(CudaError::shape(NAME, format!("{} experts a row: must be 1 to {USED_MAX}", shape.used)));
    }
    let defines = vec![
        ("COLS", shape.cols as i64),
        ("PADDED", padded(shape.cols) as i64),
        ("USED", shape.used as i64),
        ("SHARED", i64::from(shape.shared)),
        ("STREAM", i64::from(shape.stream)),
        ("BY_ROW", i64::from(shape.brings_halves())),
        shape.planes.define(),
    ];
    Ok(Program::of::<Arguments>(NAME, source!("rows/combine.cu"), defines))
}

/// Threads of a block: few while there are few rows, so that they spread. No result depends on it.
pub fn threads(rows: usize, cols: usize) -> usize {
    if rows * cols / EACH <= 1 << 15 { 64 } else { 256 }
}

/// The kernel of a shape.
#[derive(Debug)]
pub struct Combine {
    shape: CombineShape,
    kernel: Kernel<Arguments>,
    /// A block a row, where that brings f16 too.
    by_row: Option<Kernel<Arguments>>,
}

device_struct! {
    /// Parameters of the kernel.
    #[derive(Default)]
    struct Arguments {
        /// Slot of each row, `[rows]`; a padding row has a value below 0.
        slots: Ptr<i32>,
        /// Router weights of a row's experts and, last, the gate of the shared expert, `[rows, used + 1]`.
        gates: Ptr<f32>,
        /// Outputs of the routed experts, `[rows * used, cols]`.
        experts: Ptr<f32>,
        /// Outputs of the shared expert, `[rows, cols]`, or null where there is none.
        shared: Ptr<f32>,
        /// Weight of the next norm, `[cols]`.
        weight: Ptr<f32>,
        /// Residual stream, `[rows, cols]`, read and written.
        x: PtrMut<f32>,
        codes: PtrMut<i8>,
        meta: PtrMut<[f32; 2]>,
        squares: PtrMut<f32>,
        /// The rows as f16, and what products of each are multiplied by: where a block has a row.
        half_rows: PtrMut<u16>,
        half_scales: PtrMut<f32>,
        rows: i32,
        /// Whether `experts` are f16.
        halves: i32,
        /// Epsilon of the next norm; read only where `half_scales` are written.
        eps: f32,
    }
}

/// What is added to a row.
#[derive(Clone, Copy)]
pub struct ExpertOutputs<'a> {
    /// `[rows]`; below 0: no row, all of it stays as it is.
    pub slots: &'a CudaView<'a, i32>,
    /// `[rows, used + 1]`, the last is the shared expert's.
    pub gates: &'a CudaView<'a, f32>,
    /// `[rows * used, cols]`.
    pub experts: &'a CudaView<'a, f32>,
    /// Whether `experts` is memory of f16, two in each of its values.
    pub halves: bool,
    /// `[rows, cols]`, if there is a shared expert.
    pub shared: Option<&'a CudaView<'a, f32>>,
}

impl Combine {
    /// Loads the kernel of a shape.
    ///
    /// # Errors
    /// If there is none, or it cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, shape: CombineShape) -> Result<Self, CudaError> {
        let module = device.module(cache, &program(shape)?)?;
        let by_row = shape.brings_halves().then(|| module.kernel("combine_row")).transpose()?;
        Ok(Self { shape, kernel: module.kernel(NAME)?, by_row })
    }

    /// Enqueues it for `rows` rows of `x`, `[rows, cols]`. `weight` is the next norm's factor.
    ///
    /// # Errors
    /// If a buffer is missing or too small, the shape has no stream, or the driver refuses.
    pub fn launch(
        &self,
        device: &Device,
        rows: usize,
        terms: ExpertOutputs<'_>,
        weight: &CudaView<'_, f32>,
        x: &mut CudaViewMut<'_, f32>,
        out: FoldedOut<'_, '_>,
    ) -> Result<(), CudaError> {
        let arguments = self.stream_arguments(device, rows, terms, (weight, x, out))?;
        // SAFETY: every buffer that the shape reads was found large enough.
        unsafe { self.enqueue(device, rows, &arguments) }
    }

    /// Whether [`Combine::launch_with_halves`] has a kernel.
    pub fn brings_halves(&self) -> bool {
        self.by_row.is_some()
    }

    /// Enqueues the same, which also writes the f16 form of the rows, with the norm of this epsilon in their scales, as
    /// [`crate::cuda::wide::halves::Halves`] makes it of the int8 one. Padding rows have no such form.
    ///
    /// # Errors
    /// As [`Combine::launch`], and if the shape has no such kernel ([`CombineShape::brings_halves`]).
    #[allow(clippy::too_many_arguments, reason = "terms, the stream and two forms of the rows of one operation")]
    pub fn launch_with_halves(
        &self,
        device: &Device,
        rows: usize,
        terms: ExpertOutputs<'_>,
        weight: &CudaView<'_, f32>,
        x: &mut CudaViewMut<'_, f32>,
        out: FoldedOut<'_, '_>,
        (halves, eps): (&HalfRows, f32),
    ) -> Result<(), CudaError> {
        let Some(kernel) = &self.by_row else {
            return Err(CudaError::shape(NAME, format!("rows of f16 beside those of {:?}", self.shape)));
        };
        let plain = self.stream_arguments(device, rows, terms, (weight, x, out))?;
        halves.check(rows, self.shape.cols)?;
        if rows == 0 {
            return Ok(());
        }
        let (half_rows, half_scales) = halves.pointers_mut(device);
        let arguments = Arguments { half_rows, half_scales, eps, ..plain };
        let grid = Grid { blocks: (rows as u32, 1), threads: (self.shape.cols / EACH) as u32 };
        // SAFETY: every buffer that the shape reads was found large enough; before its wait the kernel reads the weight
        // only.
        unsafe { kernel.launch(device, grid, &arguments) }
    }

    /// What a launch with a stream is given, all of it found large enough.
    fn stream_arguments(
        &self,
        device: &Device,
        rows: usize,
        terms: ExpertOutputs<'_>,
        (weight, x, out): (&CudaView<'_, f32>, &mut CudaViewMut<'_, f32>, FoldedOut<'_, '_>),
    ) -> Result<Arguments, CudaError> {
        let CombineShape { cols, planes, .. } = self.shape;
        self.check(true, rows, terms)?;
        fits(NAME, "the weight", weight.len(), cols)?;
        fits(NAME, "x", x.len(), rows * cols)?;
        out.check(NAME, rows, cols, planes)?;
        let stream = device.stream();
        let (codes, meta, squares) = out.pointers(stream);
        Ok(Arguments {
            weight: Ptr::of(weight, stream),
            x: PtrMut::of(x, stream),
            codes,
            meta,
            squares,
            ..Self::arguments(device, rows, terms)
        })
    }

    /// Enqueues it for `rows` rows of which there is the sum alone: its int8 form, rows of codes and what stands beside
    /// them as [`FoldedOut`] has them.
    ///
    /// # Errors
    /// As [`Combine::launch`].
    pub fn sum(
        &self,
        device: &Device,
        rows: usize,
        terms: ExpertOutputs<'_>,
        codes: &mut CudaViewMut<'_, i8>,
        meta: &mut CudaViewMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let [codes_len, meta_len, _] = lengths(rows, self.shape.cols, self.shape.planes);
        self.check(false, rows, terms)?;
        fits(NAME, "codes", codes.len(), codes_len)?;
        fits(NAME, "meta", meta.len(), meta_len)?;
        let stream = device.stream();
        let (codes, meta) = (PtrMut::of(codes, stream), PtrMut::of(meta, stream));
        let arguments = Arguments { codes, meta, ..Self::arguments(device, rows, terms) };
        // SAFETY: every buffer that the shape reads was found large enough, and it writes no other.
        unsafe { self.enqueue(device, rows, &arguments) }
    }

    /// That the kernel is one with a `stream` or without, and that all terms are there.
    fn check(&self, stream: bool, rows: usize, terms: ExpertOutputs<'_>) -> Result<(), CudaError> {
        let CombineShape { cols, used, shared, .. } = self.shape;
        if self.shape.stream != stream {
            return Err(CudaError::shape(NAME, format!("a launch with a stream: {stream}, of {:?}", self.shape)));
        }
        let each = 1 + usize::from(terms.halves);
        fits(NAME, "slots", terms.slots.len(), rows)?;
        fits(NAME, "gates", terms.gates.len(), rows * (used + 1))?;
        fits(NAME, "the experts' rows", each * terms.experts.len(), rows * used * cols)?;
        let of_shared = if shared { rows * cols } else { 0 };
        fits(NAME, "the shared expert's rows", terms.shared.map_or(0, |v| v.len()), of_shared)
    }

    /// What both ways are given.
    fn arguments(device: &Device, rows: usize, terms: ExpertOutputs<'_>) -> Arguments {
        let stream = device.stream();
        Arguments {
            slots: Ptr::of(terms.slots, stream),
            gates: Ptr::of(terms.gates, stream),
            experts: Ptr::of(terms.experts, stream),
            shared: Ptr::of_some(terms.shared, stream),
            rows: rows as i32,
            halves: i32::from(terms.halves),
            ..Arguments::default()
        }
    }

    /// # Safety
    /// The arguments are those of a launch that was checked.
    unsafe fn enqueue(&self, device: &Device, rows: usize, arguments: &Arguments) -> Result<(), CudaError> {
        if rows == 0 {
            return Ok(());
        }
        let cols = self.shape.cols;
        let threads = threads(rows, cols);
        let grid = Grid { blocks: ((rows * cols / EACH).div_ceil(threads) as u32, 1), threads: threads as u32 };
        // SAFETY: the caller's; before its wait the kernel reads the weight only.
        unsafe { self.kernel.launch(device, grid, arguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_use_some_experts_and_no_more_than_a_warp_chooses() {
        let shape =
            |used, shared| program(CombineShape { cols: 2048, used, shared, stream: true, planes: Planes::One });
        assert!(shape(8, true).is_ok() && shape(10, false).is_ok());
        assert!(shape(0, true).is_err() && shape(33, true).unwrap_err().to_string().contains("33 experts"));
    }
}

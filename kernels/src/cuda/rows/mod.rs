//! Rows of the residual stream as those who write it leave them for the next norm's readers: the int8 form of `x * w`,
//! and sums of squares, from which a reader derives the norm's factor (`row_factor` in `csrc/common/int8_rows.cuh`). So
//! there is no norm between two layers.

pub mod embed;
pub mod gather;
pub mod history;
pub mod pool;
pub mod quantized;

use crate::cuda::CudaError;
use crate::cuda::runtime::arguments::PtrMut;
use cudarc::driver::{CudaStream, CudaView, CudaViewMut};
use quantized::{BLOCK, Planes};

/// Int8 rows begin at multiples of this many values; what lies beyond a row's own is zero, and is never written.
pub const ROW_MULTIPLE: usize = 128;

/// Values from one int8 row of `cols` to the next.
pub fn padded(cols: usize) -> usize {
    cols.next_multiple_of(ROW_MULTIPLE)
}

/// Where folded rows go.
pub struct FoldedOut<'a, 'b> {
    /// `[rows, padded(cols) * planes]`, the int8 form of `x * w`.
    pub codes: &'a mut CudaViewMut<'b, i8>,
    /// `[rows, padded(cols) / 32 * planes, 2]`.
    pub meta: &'a mut CudaViewMut<'b, f32>,
    /// `[rows, cols / 32]`: sum of `x^2` over each block of 32.
    pub squares: &'a mut CudaViewMut<'b, f32>,
}

/// Folded rows that are read.
#[derive(Clone, Copy)]
pub struct Folded<'a> {
    /// Codes of the rows, laid out as [`FoldedOut::codes`].
    pub codes: &'a CudaView<'a, i8>,
    /// Scales and sums of codes, laid out as [`FoldedOut::meta`].
    pub meta: &'a CudaView<'a, f32>,
    /// Sums of squares, laid out as [`FoldedOut::squares`].
    pub squares: &'a CudaView<'a, f32>,
}

impl FoldedOut<'_, '_> {
    /// Addresses of codes, meta and squares, for the kernel that writes them.
    pub(in crate::cuda) fn pointers(self, stream: &CudaStream) -> (PtrMut<i8>, PtrMut<[f32; 2]>, PtrMut<f32>) {
        (PtrMut::of(self.codes, stream), PtrMut::of(self.meta, stream), PtrMut::of(self.squares, stream))
    }

    pub(in crate::cuda) fn check(
        &self,
        kernel: &'static str,
        rows: usize,
        cols: usize,
        planes: Planes,
    ) -> Result<(), CudaError> {
        let [codes, meta, squares] = lengths(rows, cols, planes);
        fits(kernel, "codes", self.codes.len(), codes)?;
        fits(kernel, "meta", self.meta.len(), meta)?;
        fits(kernel, "squares", self.squares.len(), squares)
    }
}

/// Elements of codes, meta and squares of `rows` rows of `cols`.
pub fn lengths(rows: usize, cols: usize, planes: Planes) -> [usize; 3] {
    let codes = rows * padded(cols) * planes.count();
    [codes, codes / 16, rows * cols / BLOCK]
}

/// An error unless `what`, which has `got` elements, has those that are needed.
pub(in crate::cuda) fn fits(kernel: &'static str, what: &str, got: usize, need: usize) -> Result<(), CudaError> {
    if got >= need { Ok(()) } else { Err(CudaError::shape(kernel, format!("{what} has {got} elements of {need}"))) }
}

/// An error unless rows of the residual stream may be this wide.
pub(in crate::cuda) fn check_cols(kernel: &'static str, cols: usize, cols_max: usize) -> Result<(), CudaError> {
    if cols > 0 && cols.is_multiple_of(BLOCK) && cols <= cols_max {
        return Ok(());
    }
    Err(CudaError::shape(kernel, format!("rows of {cols}: must be a multiple of {BLOCK}, at most {cols_max}")))
}

//! Activation rows: f32 as computed, and the int8 form that quantised weights are multiplied with.

use super::qblock::{BLOCK, QBlock};
use super::quantize::quantize_row;
use crate::backend::cpu::isa::Isa;
use crate::lines::Lines;
use std::marker::PhantomData;
use std::ops::Range;

/// A reusable buffer of activation rows, `[len, cols]`.
pub struct ActivationRows {
    values: Lines,
    blocks: Lines,
    /// Capacity in values and in blocks.
    values_max: usize,
    blocks_max: usize,
    len: usize,
    cols: usize,
}

impl ActivationRows {
    /// Room for `rows_max` rows of `cols_max`; holds no row yet.
    pub fn with_capacity(rows_max: usize, cols_max: usize) -> Self {
        let (values_max, blocks_max) = (rows_max * stride(cols_max), rows_max * block_stride(cols_max));
        Self {
            values: Lines::zeroed(values_max * size_of::<f32>()),
            blocks: Lines::zeroed(blocks_max * size_of::<QBlock>()),
            values_max,
            blocks_max,
            len: 0,
            cols: cols_max,
        }
    }

    /// Reshapes to `len` rows of `cols`. Values of an earlier shape are not kept in place.
    ///
    /// # Panics
    /// If that is more than the capacity.
    pub fn set_len(&mut self, len: usize, cols: usize) {
        let fits = len * stride(cols) <= self.values_max && len * block_stride(cols) <= self.blocks_max;
        assert!(fits, "{len} rows of {cols} in a buffer for {} values", self.values_max);
        (self.len, self.cols) = (len, cols);
        let view = self.view();
        for i in 0..len {
            // SAFETY: `self` is borrowed mutably, so nobody else looks at the rows. What pads a row is multiplied with
            // zero weights and must be finite.
            unsafe { view.padded(i)[cols..].fill(0.0) };
        }
    }

    /// How many rows it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no row is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The values of row `i`.
    pub fn row(&mut self, i: usize) -> &[f32] {
        self.row_mut(i)
    }

    /// Row `i`, to be written.
    pub fn row_mut(&mut self, i: usize) -> &mut [f32] {
        // SAFETY: the result borrows `self` mutably.
        unsafe { self.view().row_mut(i) }
    }

    /// Brings the int8 form of `rows` up to date with their values.
    pub fn quantize(&mut self, rows: Range<usize>) {
        // SAFETY: `self` is borrowed mutably.
        unsafe { self.view().quantize(rows) }
    }

    /// Shared access for a team of threads.
    pub fn view(&mut self) -> RowsView<'_> {
        RowsView {
            values: self.values.as_mut_ptr().cast(),
            blocks: self.blocks.as_mut_ptr().cast(),
            len: self.len,
            cols: self.cols,
            life: PhantomData,
        }
    }
}

/// A copyable handle on [`ActivationRows`] for threads that work on different rows.
///
/// Whoever copies it to several threads promises that between two of their barriers a row is either written (values or
/// int8 form) by one thread and looked at by no other, or looked at only. Every method that relies on this is `unsafe`,
/// except the products, which only read.
#[derive(Clone, Copy)]
pub struct RowsView<'a> {
    values: *mut f32,
    blocks: *mut QBlock,
    len: usize,
    cols: usize,
    life: PhantomData<&'a mut ActivationRows>,
}

// SAFETY: the handle is a pointer into memory that `'a` keeps borrowed; races are excluded by the promise above.
unsafe impl Send for RowsView<'_> {}
// SAFETY: as above.
unsafe impl Sync for RowsView<'_> {}

impl<'a> RowsView<'a> {
    /// How many rows it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no row is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Elements of a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Row `i`.
    ///
    /// # Safety
    /// No thread writes row `i` meanwhile.
    pub unsafe fn row(&self, i: usize) -> &'a [f32] {
        assert!(i < self.len, "row {i} of {}", self.len);
        // SAFETY: in bounds as in `padded`; unwritten by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.values.add(i * stride(self.cols)), self.cols) }
    }

    /// Row `i`, to be written.
    ///
    /// # Safety
    /// No other thread reads or writes row `i` meanwhile, and the caller holds no other reference to it.
    #[allow(clippy::mut_from_ref, reason = "exclusive by the caller's promise")]
    pub unsafe fn row_mut(&self, i: usize) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { &mut self.padded(i)[..self.cols] }
    }

    /// Brings the int8 form of `rows` up to date with their values.
    ///
    /// # Safety
    /// No other thread reads or writes these rows meanwhile.
    pub unsafe fn quantize(&self, rows: Range<usize>) {
        let isa = Isa::host();
        for i in rows {
            // SAFETY: the caller's promise; values and blocks of a row do not overlap.
            let (values, blocks) = unsafe {
                let n = stride(self.cols) / BLOCK;
                (self.padded(i), std::slice::from_raw_parts_mut(self.blocks.add(i * block_stride(self.cols)), n))
            };
            quantize_row(isa, values, blocks);
        }
    }

    /// Columns `cols` of row `i`, to be written.
    ///
    /// # Safety
    /// No other thread reads or writes these columns meanwhile, nobody holds the whole row, and the caller holds no
    /// other reference to them.
    #[allow(clippy::mut_from_ref, reason = "exclusive by the caller's promise")]
    pub unsafe fn part_mut(&self, i: usize, cols: Range<usize>) -> &'a mut [f32] {
        assert!(i < self.len && cols.start <= cols.end && cols.end <= self.cols, "columns {cols:?} of row {i}");
        // SAFETY: in bounds by the assert, exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.values.add(i * stride(self.cols) + cols.start), cols.len()) }
    }

    /// [`RowsView::quantize`] for some columns of row `i`: whole blocks of 32, or up to the row's end.
    ///
    /// # Safety
    /// As for [`RowsView::part_mut`].
    pub unsafe fn quantize_part(&self, i: usize, cols: Range<usize>) {
        assert!(
            cols.start.is_multiple_of(BLOCK) && (cols.end.is_multiple_of(BLOCK) || cols.end == self.cols),
            "whole blocks"
        );
        assert!(i < self.len && cols.start <= cols.end && cols.end <= self.cols, "columns {cols:?} of row {i}");
        let (first, n) = (cols.start / BLOCK, cols.len().div_ceil(BLOCK));
        // SAFETY: in bounds by the asserts, for rows are padded to whole blocks; exclusive by the caller's promise.
        let (values, blocks) = unsafe {
            let values = std::slice::from_raw_parts(self.values.add(i * stride(self.cols) + first * BLOCK), n * BLOCK);
            (values, std::slice::from_raw_parts_mut(self.blocks.add(i * block_stride(self.cols) + first), n))
        };
        quantize_row(Isa::host(), values, blocks);
    }

    /// Row `i` with its padding.
    ///
    /// # Safety
    /// As for [`RowsView::row_mut`].
    #[allow(clippy::mut_from_ref, reason = "exclusive by the caller's promise")]
    unsafe fn padded(&self, i: usize) -> &'a mut [f32] {
        assert!(i < self.len, "row {i} of {}", self.len);
        let stride = stride(self.cols);
        // SAFETY: in bounds because `i < len` and `len * stride` is within the capacity; exclusive by the caller's
        // promise.
        unsafe { std::slice::from_raw_parts_mut(self.values.add(i * stride), stride) }
    }

    /// The values of row `i` for a product. The caller has checked that the row exists; `stride` of them may be read.
    pub(super) fn values(&self, i: usize) -> *const f32 {
        self.values.wrapping_add(i * stride(self.cols))
    }

    /// The int8 form of row `i` for a product, `block_stride` blocks. The caller has checked that the row exists.
    pub(super) fn blocks(&self, i: usize) -> *const QBlock {
        self.blocks.wrapping_add(i * block_stride(self.cols))
    }
}

/// Values from one row to the next.
fn stride(cols: usize) -> usize {
    cols.next_multiple_of(BLOCK)
}

/// Blocks from one row to the next: an odd number of cache lines, so that the same block of 16 rows falls into 16
/// different sets of the first-level cache.
pub(super) const fn block_stride(cols: usize) -> usize {
    cols.div_ceil(BLOCK) | 1
}

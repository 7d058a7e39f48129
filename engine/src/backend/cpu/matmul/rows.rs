//! Activation rows: f32 as computed, and the int8 form that quantised weights are multiplied with.

use super::lines::Lines;
use super::quantize::quantize_row;
use crate::backend::cpu::isa::Isa;
use std::marker::PhantomData;
use std::ops::Range;

/// Activations that share one int8 scale.
pub(super) const BLOCK: usize = 32;

/// 32 activations in int8, one cache line. Next to them stands what a product needs once a block.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(super) struct QBlock {
    /// `round(x / d)`, ties to even, within +-127.
    pub(super) q: [i8; BLOCK],
    /// `max |x| / 127`; NaN if an x is not finite.
    pub(super) d: f32,
    /// Sum of `q`, for weights with a minimum.
    pub(super) sum: f32,
    /// `-128 * sum(q)`: takes back the 128 that signed weights are stored with.
    pub(super) offset: i32,
    /// The same for each half, for weights with a scale per 16.
    pub(super) offset_half: [i32; 2],
    /// Sum of the magnitudes of all negative `q`: takes back that `-w` is `!w + 1`.
    pub(super) below: i32,
    /// The same for each half.
    pub(super) below_half: [i32; 2],
}

const _: () = assert!(size_of::<QBlock>() == 64, "a block is read as one cache line");

/// Blocks below this maximum count as zeros, so that the reciprocal of the scale stays finite.
const AMAX_MIN: f32 = 1e-30;

impl QBlock {
    /// The same bits on every instruction set: one division, one product and one rounding an element, no contraction.
    pub(super) fn of(x: &[f32; BLOCK]) -> Self {
        // Magnitudes compare as integers, which puts infinities and NaN above every number.
        let top = x.iter().fold(0u32, |m, v| m.max(v.to_bits() & 0x7fff_ffff));
        let (d, inverse) = Self::scales(f32::from_bits(top));
        let mut q = [0i8; BLOCK];
        for (q, v) in q.iter_mut().zip(x) {
            *q = round_to_i32(if inverse == 0.0 { 0.0 } else { v * inverse }) as i8;
        }
        let half = |r: Range<usize>| q[r].iter().map(|q| i32::from(*q)).sum::<i32>();
        let below = |r: Range<usize>| q[r].iter().map(|q| -i32::from(*q).min(0)).sum::<i32>();
        let (a, b) = (half(0..16), half(16..32));
        let below_half = [below(0..16), below(16..32)];
        Self {
            q,
            d,
            sum: (a + b) as f32,
            offset: -128 * (a + b),
            offset_half: [-128 * a, -128 * b],
            below: below_half[0] + below_half[1],
            below_half,
        }
    }

    /// The scale of a block whose largest magnitude is `amax`, and its reciprocal, which is zero where every `q` is.
    #[inline(always)]
    pub(super) fn scales(amax: f32) -> (f32, f32) {
        match amax {
            amax if !amax.is_finite() => (f32::NAN, 0.0),
            amax if amax < AMAX_MIN => (0.0, 0.0),
            amax => (amax / 127.0, 127.0 / amax),
        }
    }
}

/// Nearest integer, ties to even, of |v| < 2^22: adding 1.5 * 2^23 leaves the integer in the low bits.
#[inline(always)]
fn round_to_i32(v: f32) -> i32 {
    const MAGIC: f32 = 12_582_912.0;
    (v + MAGIC).to_bits() as i32 - MAGIC.to_bits() as i32
}

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

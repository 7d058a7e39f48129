//! Low-rank adapters in products of rows (Hu et al., 2021): `y = W x + B h` with `h = scale * A x`, each row with the
//! adapter of its sequence, and rows that have none as if there were no adapters.
//!
//! A launch of `LoraShrink` ([`crate::cuda::wide`]) makes `h` of rows that some matrices read, a group of up to
//! [`PARTS_MAX`]; their products ([`MatrixShape::with_adapters`]) add `B h` where they finish a sum. The memory of an
//! adapter is a slot of equal size: [`GroupHead`]s, and behind them the matrices of each group.
//! [`crate::reference::lora`] is the definition.
//!
//! [`MatrixShape::with_adapters`]: crate::cuda::product::MatrixShape::with_adapters

use crate::cuda::CudaError;
use crate::cuda::runtime::arguments::{Field, Ptr, device_struct};
use cudarc::driver::{CudaSlice, CudaStream, CudaView};

/// Matrices of a group.
pub const PARTS_MAX: usize = 4;
/// Ranks are rounded up to a multiple of this.
pub const RANK_MULTIPLE: usize = 8;
/// The part of an output that no adapter changes.
pub const NO_PART: u8 = u8::MAX;
/// Bytes of a [`GroupHead`].
pub const HEAD_BYTES: usize = 32;
/// Places in the memory of an adapter are counted in these.
pub const PLACE_BYTES: usize = 16;

/// The define of programs whose products adapters add to.
pub(in crate::cuda) const LORA: (&str, i64) = ("LORA", 1);

/// What the memory of an adapter has for a group of matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupHead {
    /// Where A begins, `[parts * rank, cols]` in f16, in [`PLACE_BYTES`].
    pub a: u32,
    /// Where B begins, `[outputs of the group, rank]` in f16, in [`PLACE_BYTES`].
    pub b: u32,
    /// A multiple of [`RANK_MULTIPLE`].
    pub rank: u32,
    /// A bit for each part that the adapter changes.
    pub parts: u32,
    /// What `A x` is multiplied with.
    pub scales: [f32; PARTS_MAX],
}

impl GroupHead {
    /// Its bytes in the memory of an adapter.
    pub fn bytes(&self) -> [u8; HEAD_BYTES] {
        let [s0, s1, s2, s3] = self.scales.map(f32::to_bits);
        let words = [self.a, self.b, self.rank, self.parts, s0, s1, s2, s3];
        let mut bytes = [0; HEAD_BYTES];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// What adapters add to the products of a group of matrices.
#[derive(Clone, Copy, Debug)]
pub struct Lora<'a> {
    /// All slots of adapters, `slot_bytes` each.
    pub memory: &'a CudaSlice<u8>,
    /// Bytes from one slot to the next, a multiple of [`PLACE_BYTES`].
    pub slot_bytes: usize,
    /// By slot of a sequence: the slot of its adapter, or -1, and the bits of the f32 by which the sequence multiplies
    /// what the adapter adds, `[sequences, 2]`.
    pub adapters: &'a CudaSlice<i32>,
    /// By row: the slot of its sequence, or -1.
    pub row_slots: &'a CudaView<'a, i32>,
    /// By output of the group: which of its parts it is of, or [`NO_PART`].
    pub columns: &'a CudaSlice<u8>,
    /// `[rows, stride]`, what `LoraShrink` makes.
    pub reduced: &'a CudaSlice<f32>,
    /// Values from one row of `reduced` to the next: [`PARTS_MAX`] times the largest rank.
    pub stride: usize,
    /// Number of the group, and of its head.
    pub group: usize,
    /// Which of the outputs is the product's first.
    first: usize,
    /// Whether adapters, and who has which, are there before the launch ahead of these begins.
    pub(in crate::cuda) early: bool,
}

device_struct! {
    /// What products with adapters are given.
    #[derive(Default)]
    pub(in crate::cuda) struct LoraParts {
        memory: Ptr<u8>,
        adapters: Ptr<[i32; 2]>,
        row_slots: Ptr<i32>,
        columns: Ptr<u8>,
        reduced: Ptr<f32>,
        slot_bytes: u64,
        group: u32,
        stride: i32,
        first: i32,
        early: i32,
    }
}

// SAFETY: programs that have such a field bring the declaration of the struct along.
unsafe impl Field for LoraParts {
    fn declaration(name: &str) -> String {
        format!("LoraParts {name}")
    }
}

impl LoraParts {
    /// Of the rows from `rows` on.
    pub(in crate::cuda) fn skip(self, rows: usize) -> Self {
        let (row_slots, reduced) = (self.row_slots.skip(rows), self.reduced.skip(rows * self.stride as usize));
        Self { row_slots, reduced, ..self }
    }
}

impl<'a> Lora<'a> {
    /// What adapters of `memory`, by the rows' sequences, add to products of group `group`.
    pub fn new(
        (memory, slot_bytes): (&'a CudaSlice<u8>, usize),
        adapters: &'a CudaSlice<i32>,
        row_slots: &'a CudaView<'a, i32>,
        (group, columns): (usize, &'a CudaSlice<u8>),
        (reduced, stride): (&'a CudaSlice<f32>, usize),
    ) -> Self {
        Self { memory, slot_bytes, adapters, row_slots, columns, reduced, stride, group, first: 0, early: false }
    }

    /// Of a captured pass, which begins when adapters, and who has which, are there.
    pub fn early(self, early: bool) -> Self {
        Self { early, ..self }
    }

    /// For the product whose first output is number `first` of the group's.
    pub(in crate::cuda) fn at_output(self, first: usize) -> Self {
        Self { first, ..self }
    }

    /// As kernels are given it.
    pub(in crate::cuda) fn parts(&self, stream: &CudaStream) -> LoraParts {
        LoraParts {
            memory: Ptr::of(self.memory, stream),
            adapters: Ptr::of(self.adapters, stream),
            row_slots: Ptr::of(self.row_slots, stream),
            columns: Ptr::of(self.columns, stream).skip(self.first),
            reduced: Ptr::of(self.reduced, stream),
            slot_bytes: self.slot_bytes as u64,
            group: self.group as u32,
            stride: self.stride as i32,
            first: self.first as i32,
            early: i32::from(self.early),
        }
    }

    /// That adapters are given where the kernels of launch `name` know some, with room for `rows` rows and `outputs`.
    ///
    /// # Errors
    /// With what does not fit.
    pub(in crate::cuda) fn check(
        name: &'static str,
        lora: Option<&Self>,
        adapted: bool,
        rows: usize,
        outputs: usize,
    ) -> Result<(), CudaError> {
        let Some(lora) = lora.filter(|_| adapted) else {
            let fits = lora.is_some() == adapted;
            let wrong = "adapters are given to kernels that know none, or the other way round";
            return if fits { Ok(()) } else { Err(CudaError::shape(name, wrong)) };
        };
        let (columns, slots) = (lora.columns.len(), lora.row_slots.len());
        let room = lora.reduced.len() / lora.stride.max(1);
        if columns < lora.first + outputs || slots < rows || room < rows || !lora.slot_bytes.is_multiple_of(PLACE_BYTES)
        {
            let what = format!(
                "adapters of {columns} outputs and of rows {slots}, {room}, in slots of {} bytes: {rows} rows of \
                 {outputs} outputs from {} on",
                lora.slot_bytes, lora.first
            );
            return Err(CudaError::shape(name, what));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_lies_as_the_device_reads_it() {
        let head = GroupHead { a: 2, b: 3, rank: 8, parts: 5, scales: [1.0, 0.0, -2.0, 0.5] };
        let words: Vec<u32> = head.bytes().as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        assert_eq!(words[..5], [2, 3, 8, 5, 0x3f80_0000]);
        assert_eq!((words.len(), words[6]), (8, 0xc000_0000));
    }
}

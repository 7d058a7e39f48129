//! What drafted rows leave behind until it is known which of them count.
//!
//! A drafted row must not change its slot's state, for it may turn out that its token does not come. So it computes on
//! a copy, and what the state would become is kept as factors: a key, a delta and a decay for each value head, from
//! which `S = decay S + key delta^T` (`blocks/gdn/rule.rs`). The next piece of the slot folds the factors of the rows
//! that count, with the very operations by which a row of its own would have changed the state. A convolution's inputs
//! are kept whole, and are few. Keys and values of rows that do not count stay in their pages, where the next rows
//! write before anybody reads.

use crate::backend::cpu::team::shared::SharedBuffer;
use crate::model::StateShape;
use std::ops::Range;

/// Floats of one drafted row, for all rows that a slot may have.
pub(crate) struct DraftedRows {
    /// Drafted rows that each slot has room for.
    room: usize,
    shape: DraftedShape,
    factors: SharedBuffer<f32>,
    inputs: SharedBuffer<f32>,
}

/// Where each block has its part of a row, in floats.
#[derive(Clone, Debug, Default)]
pub(crate) struct DraftedShape {
    blocks: Vec<(Range<usize>, Range<usize>)>,
    factors: usize,
    inputs: usize,
}

impl DraftedShape {
    /// Takes room for the next block.
    pub(crate) fn push(&mut self, block: StateShape) {
        let factors = self.factors..self.factors + block.factors;
        let inputs = self.inputs..self.inputs + block.inputs;
        (self.factors, self.inputs) = (factors.end, inputs.end);
        self.blocks.push((factors, inputs));
    }

    /// Bytes of one row.
    pub(crate) fn row_bytes(&self) -> u64 {
        ((self.factors + self.inputs) * 4) as u64
    }
}

impl DraftedRows {
    /// For so many slots with `room` rows each.
    pub(crate) fn new(shape: DraftedShape, slots: usize, room: usize) -> Self {
        let rows = slots * room;
        Self {
            room,
            factors: SharedBuffer::new(rows * shape.factors),
            inputs: SharedBuffer::new(rows * shape.inputs),
            shape,
        }
    }

    /// Key `[K]`, delta `[V]` and decay of a row's value head: `[K + V + 1]`, of `heads` in the block.
    ///
    /// # Safety
    /// Nobody else touches the head's part of this row while the slice lives.
    #[allow(clippy::mut_from_ref, reason = "the caller divides the buffer")]
    pub(crate) unsafe fn factors(
        &self,
        slot: usize,
        row: usize,
        block: usize,
        (head, heads): (usize, usize),
    ) -> &mut [f32] {
        let all = self.place(slot, row, self.shape.factors, &self.shape.blocks[block].0);
        let len = all.len() / heads;
        // SAFETY: the caller's.
        unsafe { self.factors.get_mut(all.start + head * len..all.start + (head + 1) * len) }
    }

    /// A row's input of the convolution, `[channels]`.
    ///
    /// # Safety
    /// Nobody else touches this row's part while the slice lives.
    #[allow(clippy::mut_from_ref, reason = "the caller divides the buffer")]
    pub(crate) unsafe fn inputs(&self, slot: usize, row: usize, block: usize) -> &mut [f32] {
        // SAFETY: the caller's.
        unsafe { self.inputs.get_mut(self.place(slot, row, self.shape.inputs, &self.shape.blocks[block].1)) }
    }

    fn place(&self, slot: usize, row: usize, width: usize, part: &Range<usize>) -> Range<usize> {
        assert!(row < self.room, "row {row} of {}", self.room);
        let at = (slot * self.room + row) * width;
        at + part.start..at + part.end
    }

    /// Moves a convolution's tail on over the first `count` rows of a slot.
    pub(crate) fn advance_tail(&mut self, slot: usize, count: usize, block: usize, tail: &mut [f32]) {
        let channels = self.shape.blocks[block].1.len();
        if channels == 0 {
            return;
        }
        let kept = tail.len() / channels;
        let new = count.min(kept);
        tail.copy_within(new * channels.., 0);
        for i in 0..new {
            // SAFETY: `&mut self` excludes everybody else.
            let input = unsafe { self.inputs(slot, count - new + i, block) };
            tail[(kept - new + i) * channels..][..channels].copy_from_slice(input);
        }
    }

    /// Fills everything with NaN, as memory that was never written.
    pub(crate) fn poison(&mut self) {
        // SAFETY: `&mut self` excludes everybody else.
        unsafe {
            self.factors.get_mut(0..self.factors.len()).fill(f32::NAN);
            self.inputs.get_mut(0..self.inputs.len()).fill(f32::NAN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_moves_on_over_the_rows_that_count_and_no_others() {
        let mut shape = DraftedShape::default();
        shape.push(StateShape { kv_heads: 1, kv_dim: 4, ..StateShape::default() });
        shape.push(StateShape { recurrent: 8, tail: 6, factors: 5, inputs: 2, ..StateShape::default() });
        assert_eq!(shape.row_bytes(), 28);
        let mut rows = DraftedRows::new(shape, 2, 4);
        for row in 0..4 {
            // SAFETY: one thread.
            unsafe { rows.inputs(1, row, 1) }.fill(10.0 + row as f32);
        }
        for (count, want) in [
            (0, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]),
            (1, [2.0, 2.0, 3.0, 3.0, 10.0, 10.0]),
            (3, [10.0, 10.0, 11.0, 11.0, 12.0, 12.0]),
            (4, [11.0, 11.0, 12.0, 12.0, 13.0, 13.0]),
        ] {
            let mut tail = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0];
            rows.advance_tail(1, count, 1, &mut tail);
            assert_eq!(tail, want, "{count} rows");
        }
        rows.advance_tail(1, 4, 0, &mut []);
    }
}

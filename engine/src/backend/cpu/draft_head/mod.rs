//! The model's draft head: a layer of its own that guesses, from what the model made of the last position and from the
//! token behind it, which token comes after that (multi-token prediction).
//!
//! The layer reads the token at a position and the hidden state, after the final norm, of the position before:
//! `x = fc [norm(embedding); norm(hidden)]`. Its keys and values, which follow from `x` alone, lie at the token's
//! position of the sequence's pages, so what a prefix's pages hold depends on the prefix. A prompt's rows leave them at
//! once; those of decode rows wait, as hidden states, until a guess is asked for, and of many that wait only the last
//! are read: from the gap on the head attends to what is behind it, as it does behind position 0, which has nothing
//! before it. The whole layer is computed only for guesses, a row a sequence and pass: the guess is what the sampler of
//! its output would choose, and the next pass reads it, and the layer's own output after its last norm. Nothing here
//! shows in a sample.

pub(crate) mod buffers;
pub(crate) mod guess_row;
pub(crate) mod pass;
pub(crate) mod weights;

pub(crate) use weights::is_computed;

use crate::backend::cpu::draft_head::buffers::{HeadBuffers, HeadViews};
use crate::backend::cpu::draft_head::weights::PackedDraftHead;
use std::ops::Range;

/// A model's draft head in this backend.
pub(crate) struct CpuDraftHead {
    pub(crate) weights: PackedDraftHead,
    pub(crate) buffers: HeadBuffers,
}

impl CpuDraftHead {
    /// The weights, and the buffers at the size of a pass over `rows` rows.
    pub(crate) fn views(&mut self, rows: usize, hidden: usize) -> (&PackedDraftHead, HeadViews<'_>) {
        (&self.weights, self.buffers.views(rows, hidden))
    }
}

/// Place of a row in a buffer `[rows, hidden]`.
pub(crate) fn row_of(row: usize, hidden: usize) -> Range<usize> {
    row * hidden..(row + 1) * hidden
}

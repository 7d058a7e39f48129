//! Weights that are asked for before they are read.

use std::arch::x86_64::*;

/// How far ahead weights are asked for: the processor's own prefetching alone reads half as fast on Intel, for it stops
/// at page ends. Into the second-level cache, because the first has few places for lines on their way, and from there
/// to the first.
pub(super) const FAR_BYTES: usize = 32 << 10;
pub(super) const NEAR_BYTES: usize = 2 << 10;
/// What is asked for before a product begins.
const FIRST_BYTES: usize = 16 << 10;
/// Groups of rows that ask for weights while they pass: more would ask for less than a cache line each.
pub(super) const ASKS_MAX: usize = 4;

/// What is asked for block by block.
#[derive(Clone, Copy)]
pub(super) struct PrefetchStream {
    /// For the first block; null where nothing is asked for.
    at: *const u8,
    /// Bytes that are asked for in each block.
    step: usize,
}

impl PrefetchStream {
    /// A stream that asks for nothing.
    pub(super) const NONE: Self = Self { at: std::ptr::null(), step: 0 };

    /// `step` bytes a block from `at` on.
    #[inline(always)]
    pub(super) fn new(at: *const u8, step: usize) -> Self {
        Self { at, step }
    }

    /// The stream from `b` blocks on.
    #[inline(always)]
    pub(super) fn from(self, b: usize) -> Self {
        if self.at.is_null() { self } else { Self { at: self.at.wrapping_add(b * self.step), ..self } }
    }

    /// Piece `nth` of `pieces` of what is asked for in `blocks` blocks, so much less for each of them.
    #[inline(always)]
    pub(super) fn piece(self, nth: usize, pieces: usize, blocks: usize) -> Self {
        let step = self.step.div_ceil(pieces);
        if nth < pieces { Self { step, ..self }.from(nth * blocks) } else { Self::NONE }
    }

    /// Asks for the bytes of block `b`, into the first-level cache or into the second.
    #[inline(always)]
    pub(super) fn ask<const HINT: i32>(self, b: usize) {
        if !self.at.is_null() {
            ask::<HINT>(self.at.wrapping_add(b * self.step), self.step);
        }
    }
}

/// Asks for `bytes` bytes.
#[inline(always)]
pub(super) fn ask<const HINT: i32>(at: *const u8, bytes: usize) {
    let mut line = 0;
    while line < bytes {
        // SAFETY: a hint; the address need not be mapped.
        unsafe { _mm_prefetch::<HINT>(at.wrapping_add(line).cast()) };
        line += 64;
    }
}

/// Asks for the weights that a product begins with.
pub(super) fn ask_first(weights: &[u8]) {
    ask::<_MM_HINT_T0>(weights.as_ptr(), weights.len().min(FIRST_BYTES));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_together_ask_for_what_the_whole_asks_for_in_turn() {
        let weights = [0u8; 1];
        let whole = PrefetchStream::new(weights.as_ptr(), 544);
        for pieces in 1..5 {
            let mut reached = whole.at.addr();
            for nth in 0..pieces {
                let piece = whole.piece(nth, pieces, 16);
                assert_eq!(piece.at.addr(), reached, "piece {nth} of {pieces} begins where the last ends");
                reached += 16 * piece.step;
            }
            assert!(reached >= whole.from(16).at.addr(), "{pieces} pieces");
            assert!(whole.piece(pieces, pieces, 16).at.is_null());
        }
        assert!(PrefetchStream::NONE.from(3).piece(0, 2, 16).at.is_null());
    }
}

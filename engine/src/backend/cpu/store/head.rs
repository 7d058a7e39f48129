//! How far the draft head has read a slot's sequence.

use crate::ids::TokenId;

/// Rows of a slot that wait to be read at most.
pub(crate) const LATE_MAX: usize = 64;
/// Rows that stay of those that wait where there are more than [`LATE_MAX`].
pub(crate) const LATE_KEPT: usize = 32;

/// The part of a slot's sequence that the draft head has read.
#[derive(Clone, Debug)]
pub(crate) struct HeadSlot {
    /// From this position on it has read all but those that wait.
    pub(crate) from: usize,
    /// Tokens of the last positions, which wait. The store keeps the hidden states before each of them (`Store::late`).
    pub(crate) late: Vec<TokenId>,
    /// The position behind the last of these.
    pub(crate) end: usize,
}

impl Default for HeadSlot {
    fn default() -> Self {
        Self { from: 1, late: Vec::new(), end: 0 }
    }
}

impl HeadSlot {
    /// A piece from this position on was read at once: tokens that wait before it are never read.
    pub(crate) fn read_at_once(&mut self, start: usize) {
        if !self.late.is_empty() {
            (self.from, self.late) = (start, Vec::new());
        }
    }
}

//! The buffers that a draft head's rows are computed in.

use crate::backend::cpu::matmul::{ActivationRows, RowsView};
use crate::backend::cpu::pass::room::WorkspaceRoom;
use crate::backend::cpu::team::shared::SharedBuffer;

/// What its rows are computed in, beside the buffers of its blocks' shapes.
pub(crate) struct HeadBuffers {
    /// Both halves of the input, `[rows, 2 * hidden]`.
    input: ActivationRows,
    /// Of a step's rows after the final norm, `[rows, hidden]`.
    pub(crate) finals: SharedBuffer<f32>,
    /// What each guessing sequence's next pass reads, `[sequences, hidden]`.
    pub(crate) carried: SharedBuffer<f32>,
}

/// The buffers in a step.
#[derive(Clone, Copy)]
pub(crate) struct HeadViews<'a> {
    pub(super) input: RowsView<'a>,
    pub(super) finals: &'a SharedBuffer<f32>,
    pub(super) carried: &'a SharedBuffer<f32>,
}

impl HeadBuffers {
    /// For up to so many guessing sequences.
    pub(crate) fn new(room: &mut WorkspaceRoom, sequences: usize) -> Self {
        let hidden = room.hidden();
        Self {
            input: room.activations(1, 2 * hidden),
            finals: room.floats(hidden),
            carried: room.plain(sequences * hidden),
        }
    }

    /// At the size of a step.
    pub(crate) fn views(&mut self, rows: usize, hidden: usize) -> HeadViews<'_> {
        self.input.set_len(rows, 2 * hidden);
        HeadViews { input: self.input.view(), finals: &self.finals, carried: &self.carried }
    }
}

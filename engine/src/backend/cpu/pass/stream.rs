//! The residual stream of a pass's rows, and the buffers of an operator's first input and last output.

use crate::backend::cpu::matmul::{ActivationRows, RowsView};
use crate::backend::cpu::pass::room::WorkspaceRoom;
use crate::backend::cpu::team::shared::SharedBuffer;

/// Buffers that every operator reads and writes, each `[rows, hidden]`.
pub(crate) struct StreamBuffers {
    x: SharedBuffer<f32>,
    made: SharedBuffer<f32>,
    normed: ActivationRows,
    hidden: usize,
}

/// The buffers at the size of a pass.
#[derive(Clone, Copy)]
pub(crate) struct StreamViews<'a> {
    /// The residual stream of every row.
    pub(crate) x: &'a SharedBuffer<f32>,
    /// Products of an operator's last matrix, before they are added to the residual stream.
    pub(crate) made: &'a SharedBuffer<f32>,
    /// The rows after the norm, as an operator's first matrices read them.
    pub(crate) normed: RowsView<'a>,
}

impl StreamBuffers {
    /// Takes room for the rows of a step.
    pub(crate) fn new(room: &mut WorkspaceRoom) -> Self {
        let hidden = room.hidden();
        Self { x: room.floats(hidden), made: room.floats(hidden), normed: room.activations(1, hidden), hidden }
    }

    /// Brings the buffers to the size of a pass.
    pub(crate) fn views(&mut self, rows: usize) -> StreamViews<'_> {
        self.normed.set_len(rows, self.hidden);
        StreamViews { x: &self.x, made: &self.made, normed: self.normed.view() }
    }
}

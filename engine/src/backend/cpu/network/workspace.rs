//! The buffers of one step.

use crate::backend::cpu::blocks::{OpBuffers, OpStep};
use crate::backend::cpu::matmul::{ActivationRows, RowsView};
use crate::backend::cpu::pass::batch::RowBatch;
use crate::backend::cpu::pass::room::WorkspaceRoom;
use crate::backend::cpu::pass::stream::{StreamBuffers, StreamViews};
use crate::backend::cpu::team::shared::SharedBuffer;
use crate::model::ModelConfig;

/// Buffers for steps of up to a fixed number of rows.
pub(crate) struct Workspace {
    stream: StreamBuffers,
    /// Input of the head, `[logit_rows, hidden]`.
    last: ActivationRows,
    /// Output of the head, `[logit_rows, vocab]`.
    pub(crate) logits: SharedBuffer<f32>,
    /// One for each of the model's shapes, its draft head's included.
    shapes: Vec<OpBuffers>,
    hidden: usize,
    logit_rows: usize,
}

/// The buffers at the size of a pass, shared among the threads of a step.
pub(crate) struct WorkspaceViews<'a> {
    pub(crate) stream: StreamViews<'a>,
    /// Rows after the last norm, as the head reads them.
    pub(crate) last: RowsView<'a>,
    /// Logits of the rows in [`WorkspaceViews::last`], `[logit_rows, vocab]`.
    pub(crate) logits: &'a SharedBuffer<f32>,
    /// Buffers of each shape, in which the blocks of that shape compute.
    pub(crate) steps: Vec<OpStep<'a>>,
}

impl Workspace {
    /// Takes the memory of steps, or counts it, where logits of up to `logit_rows` rows are held at once.
    pub(crate) fn new(c: &ModelConfig, logit_rows: usize, room: &mut WorkspaceRoom) -> Self {
        Self {
            stream: StreamBuffers::new(room),
            last: room.activation_rows(logit_rows, c.hidden),
            logits: room.plain(logit_rows * c.vocab),
            shapes: c.shapes_with_draft().into_iter().map(|shape| OpBuffers::new(shape, room)).collect(),
            hidden: c.hidden,
            logit_rows,
        }
    }

    /// Brings all buffers to the size of a pass.
    pub(crate) fn views(&mut self, batch: &RowBatch, threads: usize) -> WorkspaceViews<'_> {
        self.last.set_len(self.logit_rows, self.hidden);
        WorkspaceViews {
            stream: self.stream.views(batch.rows()),
            last: self.last.view(),
            logits: &self.logits,
            steps: self.shapes.iter_mut().map(|buffers| buffers.step(batch, threads)).collect(),
        }
    }
}

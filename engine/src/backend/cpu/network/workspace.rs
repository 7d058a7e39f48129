//! The buffers of one step, and their sizes before they exist.

use crate::backend::cpu::blocks::{Buffers, Step};
use crate::backend::cpu::draft_head;
use crate::backend::cpu::matmul::{ActivationRows, RowsView};
use crate::backend::cpu::pass::batch::Batch;
use crate::backend::cpu::team::shared::{PerThread, Shared};
use crate::model::ModelConfig;

/// Gives out buffers for the rows of a step, or counts what they would take: so a plan cannot differ from what is done.
pub(crate) struct WorkspaceRoom {
    rows: usize,
    hidden: usize,
    threads: usize,
    counts_only: bool,
    bytes: u64,
}

impl WorkspaceRoom {
    /// Width of the residual stream.
    pub(crate) fn hidden(&self) -> usize {
        self.hidden
    }

    /// `[rows, width]`.
    pub(crate) fn floats(&mut self, width: usize) -> Shared<f32> {
        self.plain(self.rows * width)
    }

    /// `[rows, width]`.
    pub(crate) fn words(&mut self, width: usize) -> Shared<u32> {
        self.plain(self.rows * width)
    }

    /// `[rows * times, cols]` of activations that matrices multiply, with their int8 form.
    pub(crate) fn activations(&mut self, times: usize, cols: usize) -> ActivationRows {
        self.activation_rows(self.rows * times, cols)
    }

    /// Something small for each thread.
    pub(crate) fn per_thread<T>(&self, make: impl Fn() -> T) -> PerThread<T> {
        PerThread::new(if self.counts_only { 0 } else { self.threads }, make)
    }

    fn activation_rows(&mut self, rows: usize, cols: usize) -> ActivationRows {
        // An activation is four bytes, and two in its int8 block.
        self.bytes += (rows * cols.next_multiple_of(32) * 6) as u64;
        ActivationRows::with_capacity(if self.counts_only { 0 } else { rows }, cols)
    }

    /// Of this length.
    pub(crate) fn plain<T: Copy + Default>(&mut self, len: usize) -> Shared<T> {
        self.bytes += (len * size_of::<T>()) as u64;
        Shared::new(if self.counts_only { 0 } else { len })
    }
}

/// Bytes that [`Workspace::new`] will take.
pub(crate) fn workspace_bytes(c: &ModelConfig, rows: usize, logit_rows: usize) -> u64 {
    let mut room = WorkspaceRoom { rows, hidden: c.hidden, threads: 0, counts_only: true, bytes: 0 };
    Workspace::take(c, logit_rows, &mut room);
    room.bytes
}

/// Buffers for up to so many rows.
pub(crate) struct Workspace {
    pub(crate) plain: Plain,
    normed: ActivationRows,
    last: ActivationRows,
    /// Of each of the model's shapes.
    shapes: Vec<Buffers>,
    /// Where the model guesses.
    pub(crate) head: Option<draft_head::Buffers>,
    hidden: usize,
    logit_rows: usize,
}

/// Buffers that only this crate's loops read.
pub(crate) struct Plain {
    /// The residual stream.
    pub(crate) x: Shared<f32>,
    /// What an operator's last matrix made, before it is added to the residual stream.
    pub(crate) made: Shared<f32>,
    pub(crate) logits: Shared<f32>,
}

/// Activations that matrices multiply, shared among the threads of a step.
#[derive(Clone, Copy)]
pub(crate) struct Views<'a> {
    pub(crate) plain: &'a Plain,
    pub(crate) normed: RowsView<'a>,
    pub(crate) last: RowsView<'a>,
    pub(crate) head: Option<draft_head::Views<'a>>,
}

impl Workspace {
    /// Takes the memory for steps of up to `rows` rows, of which up to `logit_rows` have their logits held at once, by
    /// `threads` threads.
    pub(crate) fn new(c: &ModelConfig, rows: usize, logit_rows: usize, threads: usize) -> Self {
        Self::take(c, logit_rows, &mut WorkspaceRoom { rows, hidden: c.hidden, threads, counts_only: false, bytes: 0 })
    }

    fn take(c: &ModelConfig, logit_rows: usize, room: &mut WorkspaceRoom) -> Self {
        Self {
            plain: Plain {
                x: room.floats(c.hidden),
                made: room.floats(c.hidden),
                logits: room.plain(logit_rows * c.vocab),
            },
            normed: room.activations(1, c.hidden),
            last: room.activation_rows(logit_rows, c.hidden),
            shapes: c.shapes_with_draft().into_iter().map(|shape| Buffers::new(shape, room)).collect(),
            head: (!c.draft.is_empty()).then(|| draft_head::Buffers::new(room, logit_rows)),
            hidden: c.hidden,
            logit_rows,
        }
    }

    /// Everything for a step: what all blocks share, and what those of each shape do.
    pub(crate) fn views(&mut self, batch: &Batch, threads: usize) -> (Views<'_>, Vec<Step<'_>>) {
        self.normed.set_len(batch.rows(), self.hidden);
        self.last.set_len(self.logit_rows, self.hidden);
        let steps = self.shapes.iter_mut().map(|buffers| buffers.step(batch, threads)).collect();
        let head = self.head.as_mut().map(|head| head.views(batch.rows(), self.hidden));
        (Views { plain: &self.plain, normed: self.normed.view(), last: self.last.view(), head }, steps)
    }
}

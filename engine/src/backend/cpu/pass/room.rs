//! Memory of a step's buffers, and its size before any is taken.

use crate::backend::cpu::matmul::ActivationRows;
use crate::backend::cpu::team::shared::{PerThread, SharedBuffer};

/// Gives out buffers for the rows of a step, or counts what they would take: so a plan cannot differ from what is done.
pub(crate) struct WorkspaceRoom {
    rows: usize,
    hidden: usize,
    threads: usize,
    counts_only: bool,
    bytes: u64,
}

impl WorkspaceRoom {
    /// Gives out buffers for steps of up to `rows` rows by `threads` threads, over a residual stream of width `hidden`.
    pub(crate) fn new(rows: usize, hidden: usize, threads: usize) -> Self {
        Self { rows, hidden, threads, counts_only: false, bytes: 0 }
    }

    /// Only counts the bytes of buffers for steps of up to `rows` rows.
    pub(crate) fn counting(rows: usize, hidden: usize) -> Self {
        Self { rows, hidden, threads: 0, counts_only: true, bytes: 0 }
    }

    /// Bytes of all buffers so far, those of single threads left out.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Width of the residual stream.
    pub(crate) fn hidden(&self) -> usize {
        self.hidden
    }

    /// A buffer of f32 for each row of a step, `[rows, width]`.
    pub(crate) fn floats(&mut self, width: usize) -> SharedBuffer<f32> {
        self.plain(self.rows * width)
    }

    /// A buffer of u32 for each row of a step, `[rows, width]`.
    pub(crate) fn words(&mut self, width: usize) -> SharedBuffer<u32> {
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

    /// `[rows, cols]` of activations that matrices multiply, with their int8 form, whatever the rows of a step.
    pub(crate) fn activation_rows(&mut self, rows: usize, cols: usize) -> ActivationRows {
        // An activation is four bytes, and two in its int8 block.
        self.bytes += (rows * cols.next_multiple_of(32) * 6) as u64;
        ActivationRows::with_capacity(if self.counts_only { 0 } else { rows }, cols)
    }

    /// A buffer of `len` elements, whatever the rows of a step.
    pub(crate) fn plain<T: Copy + Default>(&mut self, len: usize) -> SharedBuffer<T> {
        self.bytes += (len * size_of::<T>()) as u64;
        SharedBuffer::new(if self.counts_only { 0 } else { len })
    }
}

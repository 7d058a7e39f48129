//! Looks into a step, and disturbs one: what tests of exactness need. Measuring tables of n-grams reads whole rows of
//! logits here too; nothing that serves does.

use crate::backend::cpu::pass::batch::RowBatch;
use crate::ids::SeqId;
use std::sync::Mutex;

/// What to watch in the steps to come.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    /// Keep hidden states and logits of every row of the last step.
    pub record: bool,
    /// Adds to one hidden value of one row, once its position comes.
    pub perturbation: Option<Perturbation>,
}

/// A deliberate fault: a test that compares bytes must notice it.
#[derive(Clone, Copy, Debug)]
pub struct Perturbation {
    /// The sequence whose row is changed.
    pub seq: SeqId,
    /// The position at which it is changed.
    pub position: u32,
    /// Added to the first value of the embedding.
    pub by: f32,
}

/// What the last recorded step computed.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The residual stream after each block: `[blocks][rows * hidden]`.
    pub hidden: Vec<Vec<f32>>,
    /// The logits of every row, `[rows * vocab]`.
    pub logits: Vec<f32>,
    /// The logits of the draft head's guesses, pass by pass.
    pub guesses: Vec<f32>,
}

/// Collects a [`Recording`] from the threads of a step.
#[derive(Default)]
pub(crate) struct Recorder {
    probe: Probe,
    recording: Mutex<Recording>,
}

impl Recorder {
    pub(crate) fn new(probe: Probe) -> Self {
        Self { probe, recording: Mutex::default() }
    }

    /// Whether logits of every row are wanted.
    pub(crate) fn records(&self) -> bool {
        self.probe.record
    }

    /// Keeps the residual stream at a place of the pass.
    pub(crate) fn hidden<'a>(&self, place: usize, x: impl FnOnce() -> &'a [f32]) {
        if self.probe.record {
            let hidden = &mut self.recording.lock().expect("no recorder panics").hidden;
            hidden.resize(place + 1, Vec::new());
            hidden[place] = x().to_vec();
        }
    }

    /// Keeps rows of logits, in order.
    pub(crate) fn logits(&self, rows: &[f32]) {
        self.recording.lock().expect("no recorder panics").logits.extend_from_slice(rows);
    }

    /// Disturbs the row if it is the one.
    pub(crate) fn perturb(&self, batch: &RowBatch, row: usize, x: &mut [f32]) {
        if let Some(p) = self.probe.perturbation
            && batch.positions[row] == p.position
            && batch.piece_of(row).seq == p.seq
        {
            x[0] += p.by;
        }
    }

    pub(crate) fn finish(self) -> Recording {
        self.recording.into_inner().expect("no recorder panics")
    }
}

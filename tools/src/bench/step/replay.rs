//! A trace's experts, step by step, for a backend that is told which ones its rows use.

use super::{BenchStepArgs, Cases};
use crate::CliError;
use crate::trace::ExpertTrace;
use chimere_engine::model::{ModelConfig, MoeConfig};
use std::path::Path;

/// Sequences of a step, at most: rows of one launch of the experts' kernels.
const ROWS_MAX: u32 = 16;

/// How far a trace has been replayed. It goes on from one measurement to the next, so that none finds on the device
/// what the one before it brought there for the same tokens.
pub(super) struct Replay {
    trace: ExpertTrace,
    at: usize,
    /// Of the last step, `[layers][rows][used]`.
    step: Vec<u32>,
}

impl Replay {
    /// Reads the trace, and refuses it where it is not of the model's shape or too short for what is to be measured.
    pub(super) fn open(
        path: &Path,
        args: &BenchStepArgs,
        cases: &Cases,
        config: &ModelConfig,
    ) -> Result<Self, CliError> {
        let trace = ExpertTrace::open(path)?;
        let wrong = |wanted: String, got: String| {
            Err(CliError::Usage(format!("--expert-trace {}: wanted {wanted}, got {got}", path.display())))
        };
        let of = |layers, experts, used| format!("{layers} layers that use {used} of {experts} experts");
        let moe = config.each::<MoeConfig>().next().map_or((0, 0), |moe| (moe.experts, moe.used));
        let (wanted, head) = ((config.each::<MoeConfig>().count(), moe.0, moe.1), &trace.head);
        if wanted != (head.layers, head.experts, head.used) {
            return wrong(of(wanted.0, wanted.1, wanted.2), of(head.layers, head.experts, head.used));
        }
        let batch = cases.decode.iter().map(|(batch, _)| *batch).max().unwrap_or(0);
        if batch > ROWS_MAX {
            return wrong(format!("a --batch of at most {ROWS_MAX}"), batch.to_string());
        }
        let (sequences, tokens) = (trace.sequences.len(), trace.tokens(batch as usize));
        let steps = cases.decode.len() * (args.repeat as usize + 1) * args.steps as usize;
        if sequences < batch as usize || tokens < steps {
            return wrong(
                format!("{batch} sequences of {steps} tokens, for every repetition of every case and one more"),
                format!("{sequences} of {tokens}"),
            );
        }
        Ok(Self { trace, at: 0, step: Vec::new() })
    }

    /// Experts that the rows of the next step use, `[layers][rows][used]`.
    pub(super) fn next(&mut self, rows: usize) -> &[u32] {
        let used = self.trace.head.used;
        let layers = 0..self.trace.head.layers;
        let of_row = |layer: usize, row: usize| &self.trace.token(row, self.at)[layer * used..(layer + 1) * used];
        let pairs = layers.flat_map(|layer| (0..rows).map(move |row| (layer, row)));
        self.step = pairs.flat_map(|(layer, row)| of_row(layer, row)).map(|e| u32::from(*e)).collect();
        self.at += 1;
        &self.step
    }

    /// Checks that the last step's rows used the experts that they were given: `used`, layer by layer, padding rows
    /// last.
    ///
    /// # Panics
    /// If they did not, which is a bug: nothing that was measured would be of the trace.
    pub(super) fn check(&self, used: &[Vec<i32>]) {
        let layers = self.trace.head.layers;
        assert_eq!(used.len(), layers, "every layer tells what its rows used");
        for (layer, (got, given)) in used.iter().zip(self.step.chunks_exact(self.step.len() / layers)).enumerate() {
            let got: Vec<u32> = got.iter().take(given.len()).map(|e| *e as u32).collect();
            assert_eq!(got, given, "layer {layer} uses what it was given");
        }
    }
}

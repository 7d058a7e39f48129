//! What is measured on the calibration text: how much each input counts, and how far the model's answers move when one
//! group of weights is encoded and all others stay.
//!
//! A group's divergence is close to `alpha t^2` for an encoding whose relative squared error is `t^2`; `alpha` is
//! measured with one encoding and holds for the others as long as errors are small.

use crate::CliError;
use crate::figures::{StepProgress, bytes_text};
use crate::logits::LogitReader;
use chimere_engine::backend::cpu::CpuBackend;
use chimere_engine::format::{BlockType, Gguf, Tensor};
use chimere_engine::ids::TokenId;
use chimere_engine::model::{self, Model};
use chimere_engine::quantize::{Divergence, Encoder, Group, Importance, InputMoments, distortion, fitting};
use std::collections::HashSet;
use std::path::Path;

/// The base model's logits take at most so much memory; the text is cut to fit.
const BASE_LOGIT_BYTES_MAX: usize = 4 << 30;

/// So much memory at most is for how inputs are correlated; where all matrices together want more, the smallest have
/// it.
const MOMENT_BYTES_MAX: usize = 2 << 30;

/// Calibration text that the base model has answered.
pub(super) struct BaseAnswers {
    windows: Vec<Vec<TokenId>>,
    /// Of all positions, one row after the other.
    logits: Vec<f32>,
    vocab: usize,
    threads: usize,
}

/// Reads all windows once: sums of squares of every matrix's inputs from all of them, and how they are correlated where
/// a tensor's name is one of `correlated`; logits of the first `tokens`.
pub(super) fn answer(
    model: &Model,
    mut windows: Vec<Vec<TokenId>>,
    (tokens, correlated): (usize, &HashSet<String>),
    threads: usize,
) -> Result<(Importance, BaseAnswers), CliError> {
    let longest = windows.iter().map(Vec::len).max().unwrap_or(0);
    let mut reader = LogitReader::exact(model, longest as u32, threads).map_err(CliError::Failed)?;
    watch(reader.backend(), correlated);
    let vocab = model.config.vocab;
    let tokens = tokens.min(BASE_LOGIT_BYTES_MAX / vocab / size_of::<f32>());
    let mut logits = Vec::with_capacity(tokens * vocab);
    let (mut kept, mut progress) = (0, StepProgress::new("reading calibration text"));
    for (i, window) in windows.iter().enumerate() {
        let keep = logits.len() < tokens * vocab;
        kept += usize::from(keep);
        reader
            .read(window, |_, row| {
                if keep {
                    logits.extend_from_slice(row)
                }
            })
            .map_err(failed)?;
        progress.show(i + 1, windows.len());
    }
    progress.end();
    windows.truncate(kept);
    let mut importance = Importance::default();
    for matrix in reader.backend().matrices() {
        let (seen, source) = (matrix.seen().expect("all are watched"), matrix.source());
        let (rows, squares) = seen.sums();
        importance.add(&source.tensor, source.index, rows, &squares);
        if let Some(products) = seen.take_products() {
            importance.correlate(&source.tensor, source.index, products);
        }
    }
    Ok((importance, BaseAnswers { windows, logits, vocab, threads }))
}

/// All matrices; what any two inputs make where there is room for it, smallest matrices first.
fn watch(backend: &CpuBackend, correlated: &HashSet<String>) {
    let (mut wanted, others): (Vec<_>, Vec<_>) =
        backend.matrices().partition(|m| correlated.contains(&m.source().tensor));
    wanted.sort_by_key(|m| m.cols());
    let (mut bytes, mut count) = (0, 0);
    for matrix in &wanted {
        let more = bytes + InputMoments::bytes(matrix.cols());
        let fits = more <= MOMENT_BYTES_MAX;
        matrix.watch(fits);
        if fits {
            (bytes, count) = (more, count + 1);
        }
    }
    others.into_iter().for_each(|m| m.watch(false));
    if !wanted.is_empty() {
        eprintln!("correlations of {count} of {} matrices' inputs: {}", wanted.len(), bytes_text(bytes as u64));
    }
}

fn failed(e: impl std::fmt::Display) -> CliError {
    CliError::Failed(e.to_string())
}

impl BaseAnswers {
    /// The divergence of another model's answers from the base model's.
    pub(super) fn divergence(&self, model: &Model) -> Result<Divergence, CliError> {
        let longest = self.windows.iter().map(Vec::len).max().unwrap_or(0);
        let mut reader = LogitReader::exact(model, longest as u32, self.threads).map_err(CliError::Failed)?;
        let (mut sum, mut base) = (Divergence::default(), self.logits.chunks_exact(self.vocab));
        for window in &self.windows {
            let each = |at: usize, row: &[f32]| {
                sum.add(base.next().expect("the base model read this too"), row, window.get(at + 1).copied());
            };
            reader.read(window, each).map_err(failed)?;
        }
        Ok(sum)
    }

    /// The divergence of the model in a file.
    pub(super) fn divergence_of_file(&self, path: &Path) -> Result<Divergence, CliError> {
        self.divergence(&model::load(path).map_err(failed)?)
    }

    /// The divergence with one group encoded as `ty`, or what fits in its place, and the group's `t^2`.
    pub(super) fn of_group(
        &self,
        (source, encoder): (&Gguf, &dyn Encoder),
        group: &Group,
        ty: BlockType,
        importance: &Importance,
    ) -> Result<(f64, f64), CliError> {
        let tensors = group.tensors.iter().map(|name| source.tensor(name).expect("a group's tensors are the file's"));
        let encoded = tensors.map(|t| encoded(encoder, t, ty, importance)).collect::<Result<Vec<_>, _>>()?;
        let model = model::load_gguf(&source.with(encoded)).map_err(failed)?;
        Ok((self.divergence(&model)?.mean(), group_distortion((source, encoder), group, ty, importance, 1)?.t2()))
    }
}

fn encoded(encoder: &dyn Encoder, tensor: &Tensor, ty: BlockType, importance: &Importance) -> Result<Tensor, CliError> {
    let ty = fitting(ty, tensor.cols()).expect("a group has only tensors that fit");
    let rows: Vec<usize> = (0..tensor.rows() * tensor.matrices()).collect();
    let bytes = encoder.encode(tensor, &rows, ty, importance).map_err(failed)?;
    Ok(Tensor::owned(tensor.name.clone(), ty, tensor.shape.clone(), bytes).expect("as many bytes as the type takes"))
}

/// The distortion of a group by an encoding, computed from every `every`th row.
pub(super) fn group_distortion(
    (source, encoder): (&Gguf, &dyn Encoder),
    group: &Group,
    ty: BlockType,
    importance: &Importance,
    every: usize,
) -> Result<chimere_engine::quantize::Distortion, CliError> {
    let each = group.tensors.iter().map(|name| {
        let tensor = source.tensor(name).expect("a group's tensors are the file's");
        distortion(encoder, tensor, fitting(ty, tensor.cols()).expect("it fits"), importance, every)
    });
    each.reduce(|a, b| Ok(a? + b?)).expect("a group has a tensor").map_err(failed)
}

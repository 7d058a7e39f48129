//! Who encodes: the threads of this machine, or a device that finds the same bytes.

use super::distortion::values;
use super::rounding::round_row;
use super::{Importance, QuantizeError};
use crate::format::blocks::quantize_row;
use crate::format::{BlockType, Tensor};
use rayon::prelude::*;

/// Encodes rows of tensors. Whoever does it, the bytes are the same.
pub trait Encoder {
    /// Encodes some rows (counted over all matrices of a stack) as `ty`: as [`Encoder::nearest`], then, where it is known
    /// how a matrix's inputs are correlated, rounded again so that outputs change least.
    ///
    /// # Errors
    /// As [`Encoder::nearest`].
    ///
    /// # Panics
    /// As [`Encoder::nearest`].
    fn encode(
        &self,
        tensor: &Tensor,
        rows: &[usize],
        ty: BlockType,
        importance: &Importance,
    ) -> Result<Vec<u8>, QuantizeError> {
        let mut out = self.nearest(tensor, rows, ty, importance)?;
        let len = ty.row_bytes(tensor.cols()).expect("the type fits the rows");
        out.par_chunks_exact_mut(len).zip(rows).try_for_each(|(out, row)| {
            if let Some(moments) = importance.moments(&tensor.name, row / tensor.rows(), tensor.cols()) {
                round_row(ty, &values(tensor, *row)?, moments, out);
            }
            Ok::<(), QuantizeError>(())
        })?;
        Ok(out)
    }

    /// Encodes some rows (counted over all matrices of a stack) as `ty`, each value as the nearest that its scale has:
    /// the bytes of [`quantize_row`].
    ///
    /// # Errors
    /// If a weight is no number, or a device fails.
    ///
    /// # Panics
    /// If a row is no whole number of blocks of `ty`, or there is no such row.
    fn nearest(
        &self,
        tensor: &Tensor,
        rows: &[usize],
        ty: BlockType,
        importance: &Importance,
    ) -> Result<Vec<u8>, QuantizeError>;

    /// What it computes on, for people.
    fn name(&self) -> &str;
}

/// All threads of the pool that it is called from. Which of them has which row never shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threads;

impl Encoder for Threads {
    fn nearest(
        &self,
        tensor: &Tensor,
        rows: &[usize],
        ty: BlockType,
        importance: &Importance,
    ) -> Result<Vec<u8>, QuantizeError> {
        let len = ty.row_bytes(tensor.cols()).expect("the type fits the rows");
        let mut out = vec![0; rows.len() * len];
        out.par_chunks_exact_mut(len).zip(rows).try_for_each(|(out, row)| {
            let weights = importance.of(&tensor.name, row / tensor.rows(), tensor.cols());
            quantize_row(ty, &values(tensor, *row)?, weights, out);
            Ok::<(), QuantizeError>(())
        })?;
        Ok(out)
    }

    fn name(&self) -> &str {
        "cpu"
    }
}

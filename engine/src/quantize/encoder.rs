//! Who encodes: the threads of this machine, or a device that finds the same bytes.

use super::distortion::values;
use super::{Importance, QuantizeError};
use crate::format::blocks::quantize_row;
use crate::format::{BlockType, Tensor};
use rayon::prelude::*;

/// Encodes rows of tensors. Whoever does it, the bytes are those of [`quantize_row`].
pub trait Encoder {
    /// Encodes some rows (counted over all matrices of a stack) as `ty`.
    ///
    /// # Errors
    /// If a weight is no number, or a device fails.
    ///
    /// # Panics
    /// If a row is no whole number of blocks of `ty`, or there is no such row.
    fn encode(
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
    fn encode(
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

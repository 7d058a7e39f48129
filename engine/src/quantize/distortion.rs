//! Encoding a tensor by rows on all threads, and what that does to its weights.

use super::{Importance, QuantizeError};
use crate::format::blocks::{decode_row, quantize_row};
use crate::format::{BlockType, Tensor};
use rayon::prelude::*;
use std::ops::{Add, Range};

/// Squares of what an encoding changes and of what there was, summed over weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distortion {
    /// `sum E[x^2] (w' - w)^2`: what the outputs lose, where E[x^2] is a sum over calibration rows.
    pub error: f64,
    /// `sum E[x^2] w^2`.
    pub signal: f64,
    /// `sum (w' - w)^2`.
    pub plain_error: f64,
    /// `sum w^2`.
    pub plain_signal: f64,
}

impl Distortion {
    /// `t^2 = |W' - W|^2 / |W|^2`, weighted by importance where there is any.
    pub fn t2(&self) -> f64 {
        if self.signal > 0.0 { self.error / self.signal } else { self.plain_t2() }
    }

    /// The same with all weights alike.
    pub fn plain_t2(&self) -> f64 {
        if self.plain_signal > 0.0 { self.plain_error / self.plain_signal } else { 0.0 }
    }
}

impl Add for Distortion {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            error: self.error + other.error,
            signal: self.signal + other.signal,
            plain_error: self.plain_error + other.plain_error,
            plain_signal: self.plain_signal + other.plain_signal,
        }
    }
}

/// Row `row` of all matrices of a stack, decoded; an error if a weight is no number.
pub(super) fn values(tensor: &Tensor, row: usize) -> Result<Vec<f32>, QuantizeError> {
    let mut values = vec![0.0; tensor.cols()];
    decode_row(tensor.ty, tensor.row(row / tensor.rows(), row % tensor.rows()), &mut values);
    match values.iter().position(|v| !v.is_finite()) {
        None => Ok(values),
        Some(column) => {
            Err(QuantizeError::NotFinite { tensor: tensor.name.clone(), row, column, value: values[column] })
        }
    }
}

/// Encodes some rows (counted over all matrices of a stack) as `ty`. Which thread has which row never shows.
///
/// # Panics
/// If a row is no whole number of blocks of `ty`, or there is no such row.
pub fn encode_rows(
    tensor: &Tensor,
    rows: Range<usize>,
    ty: BlockType,
    importance: &Importance,
) -> Result<Vec<u8>, QuantizeError> {
    let len = ty.row_bytes(tensor.cols()).expect("the type fits the rows");
    let mut out = vec![0; rows.len() * len];
    out.par_chunks_exact_mut(len).zip(rows).try_for_each(|(out, row)| {
        let weights = importance.of(&tensor.name, row / tensor.rows(), tensor.cols());
        quantize_row(ty, &values(tensor, row)?, weights, out);
        Ok::<(), QuantizeError>(())
    })?;
    Ok(out)
}

/// What encoding as `ty` does to every `every`th row.
pub fn distortion(
    tensor: &Tensor,
    ty: BlockType,
    importance: &Importance,
    every: usize,
) -> Result<Distortion, QuantizeError> {
    let tensor = &tensor.passing();
    let rows: Vec<usize> = (0..tensor.rows() * tensor.matrices()).step_by(every.max(1)).collect();
    let each = rows.par_iter().map(|row| row_distortion(tensor, *row, ty, importance));
    // Collected first, so that the sum has one order.
    Ok(each.collect::<Result<Vec<_>, _>>()?.into_iter().fold(Distortion::default(), Distortion::add))
}

fn row_distortion(
    tensor: &Tensor,
    row: usize,
    ty: BlockType,
    importance: &Importance,
) -> Result<Distortion, QuantizeError> {
    let x = values(tensor, row)?;
    let weights = importance.of(&tensor.name, row / tensor.rows(), tensor.cols());
    let mut bytes = vec![0; ty.row_bytes(x.len()).expect("the type fits the rows")];
    let mut back = vec![0.0; x.len()];
    quantize_row(ty, &x, weights, &mut bytes);
    decode_row(ty, &bytes, &mut back);
    let mut sums = Distortion::default();
    for (i, (x, back)) in x.iter().zip(&back).enumerate() {
        let w = weights.map_or(0.0, |w| f64::from(w[i]));
        let (off, x) = ((f64::from(*back) - f64::from(*x)).powi(2), f64::from(*x).powi(2));
        sums = sums + Distortion { error: w * off, signal: w * x, plain_error: off, plain_signal: x };
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(values: impl Iterator<Item = f32>, shape: &[usize]) -> Tensor {
        let bytes = values.flat_map(f32::to_le_bytes).collect();
        Tensor::owned("w".into(), BlockType::F32, shape.to_vec(), bytes).unwrap()
    }

    #[test]
    fn a_nan_is_refused_by_name_and_place() {
        let t = tensor((0..128).map(|i| if i == 70 { f32::NAN } else { 1.0 }), &[2, 2, 32]);
        let e = encode_rows(&t, 0..4, BlockType::Q8_0, &Importance::default()).unwrap_err().to_string();
        assert_eq!(e, "tensor `w`: wanted finite weights, got NaN in row 2, column 6");
        assert!(encode_rows(&t, 0..2, BlockType::Q8_0, &Importance::default()).is_ok());
        assert!(distortion(&t, BlockType::Q4_0, &Importance::default(), 2).is_err());
    }

    #[test]
    fn the_same_bytes_come_from_any_number_of_threads_and_any_slabs() {
        let t = tensor((0..64 * 256).map(|i| (i as f32 * 0.37).sin()), &[2, 32, 256]);
        let mut importance = Importance::default();
        importance.add("w", 1, 5, &(0..256).map(|i| 1.0 + f64::from(i % 3)).collect::<Vec<_>>());
        let encode = |rows| encode_rows(&t, rows, BlockType::Q4K, &importance).unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let alone = pool.install(|| encode(0..64));
        assert_eq!(alone, encode(0..64));
        assert_eq!(alone, [encode(0..40), encode(40..64)].concat());
        let d = distortion(&t, BlockType::Q4K, &importance, 1).unwrap();
        assert!(d.t2() > 0.0 && d.t2() < 0.02 && d.plain_t2() > 0.0, "{d:?}");
    }
}

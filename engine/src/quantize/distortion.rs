//! What encoding does to a tensor's weights.

use super::{Encoder, Importance, InputMoments, QuantizeError};
use crate::format::blocks::decode_row;
use crate::format::{BlockType, Tensor};
use rayon::prelude::*;
use std::ops::Add;

/// Squares of what an encoding changes and of what there was, summed over weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distortion {
    /// `sum E[x^2] (w' - w)^2`: what the outputs lose, where E[x^2] is a sum over calibration rows and inputs count as
    /// if they were independent; where it is known how they are correlated, `(w' - w)' H (w' - w)`.
    pub error: f64,
    /// `sum E[x^2] w^2`. In both cases: values that are rounded each for itself have the same error in both on the average,
    /// so that `t^2` stays comparable.
    pub signal: f64,
    /// `sum (w' - w)^2`.
    pub plain_error: f64,
    /// Sum of the squared weights, `sum w^2`.
    pub plain_signal: f64,
}

impl Distortion {
    /// `t^2 = |W' - W|^2 / |W|^2`, weighted by importance where there is any.
    pub fn t2(&self) -> f64 {
        if self.signal > 0.0 { self.error / self.signal } else { self.plain_t2() }
    }

    /// `t^2 = |W' - W|^2 / |W|^2` without weights: every value counts alike.
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
    values_into(tensor, row, &mut values).map(|()| values)
}

/// Decodes a row, counted over all matrices of a stack, into `out`, which is as long as the tensor is wide.
pub(crate) fn values_into(tensor: &Tensor, row: usize, out: &mut [f32]) -> Result<(), QuantizeError> {
    decode_row(tensor.ty, tensor.row(row / tensor.rows(), row % tensor.rows()), out);
    match out.iter().position(|v| !v.is_finite()) {
        None => Ok(()),
        Some(column) => Err(QuantizeError::NotFinite { tensor: tensor.name.clone(), row, column, value: out[column] }),
    }
}

/// What encoding as `ty` does to every `every`th row.
///
/// # Errors
/// As [`Encoder::encode`].
pub fn distortion(
    encoder: &dyn Encoder,
    tensor: &Tensor,
    ty: BlockType,
    importance: &Importance,
    every: usize,
) -> Result<Distortion, QuantizeError> {
    let tensor = &tensor.passing();
    let rows: Vec<usize> = (0..tensor.rows() * tensor.matrices()).step_by(every.max(1)).collect();
    let bytes = encoder.encode(tensor, &rows, ty, importance)?;
    let len = ty.row_bytes(tensor.cols()).expect("the type fits the rows");
    let each = rows.par_iter().zip(bytes.par_chunks_exact(len)).map(|(row, bytes)| {
        let matrix = (&*tensor.name, row / tensor.rows(), tensor.cols());
        let known = (importance.of(matrix.0, matrix.1, matrix.2), importance.moments(matrix.0, matrix.1, matrix.2));
        Ok(row_distortion(&values(tensor, *row)?, known, ty, bytes))
    });
    // Collected first, so that the sum has one order.
    Ok(each.collect::<Result<Vec<_>, QuantizeError>>()?.into_iter().fold(Distortion::default(), Distortion::add))
}

fn row_distortion(
    x: &[f32],
    (weights, moments): (Option<&[f32]>, Option<&InputMoments>),
    ty: BlockType,
    bytes: &[u8],
) -> Distortion {
    let mut back = vec![0.0; x.len()];
    decode_row(ty, bytes, &mut back);
    let off: Vec<f32> = back.iter().zip(x).map(|(back, x)| back - x).collect();
    let squares = |v: &[f32]| v.iter().map(|v| f64::from(*v).powi(2)).sum();
    let weighed =
        |v: &[f32]| weights.map_or(0.0, |w| v.iter().zip(w).map(|(v, w)| f64::from(*w) * f64::from(*v).powi(2)).sum());
    let error = moments.map_or_else(|| weighed(&off), |m| m.loss(&off));
    Distortion { error, signal: weighed(x), plain_error: squares(&off), plain_signal: squares(x) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::Threads;

    fn tensor(values: impl Iterator<Item = f32>, shape: &[usize]) -> Tensor {
        let bytes = values.flat_map(f32::to_le_bytes).collect();
        Tensor::owned("w".into(), BlockType::F32, shape.to_vec(), bytes).unwrap()
    }

    #[test]
    fn a_nan_is_refused_by_name_and_place() {
        let t = tensor((0..128).map(|i| if i == 70 { f32::NAN } else { 1.0 }), &[2, 2, 32]);
        let e = Threads.encode(&t, &[0, 1, 2, 3], BlockType::Q8_0, &Importance::default()).unwrap_err().to_string();
        assert_eq!(e, "tensor `w`: wanted finite weights, got NaN in row 2, column 6");
        assert!(Threads.encode(&t, &[0, 1], BlockType::Q8_0, &Importance::default()).is_ok());
        assert!(distortion(&Threads, &t, BlockType::Q4_0, &Importance::default(), 2).is_err());
    }

    #[test]
    fn the_same_bytes_come_from_any_number_of_threads_and_any_slabs() {
        let t = tensor((0..64 * 256).map(|i| (i as f32 * 0.37).sin()), &[2, 32, 256]);
        let mut importance = Importance::default();
        importance.add("w", 1, 5, &(0..256).map(|i| 1.0 + f64::from(i % 3)).collect::<Vec<_>>());
        let (inputs, mut products) = ([0.7f32, 0.3], vec![0.0; 256 * 256]);
        for (at, product) in products.iter_mut().enumerate() {
            *product = inputs.iter().map(|by| (by * (at / 256) as f32).sin() * (by * (at % 256) as f32).sin()).sum();
        }
        importance.correlate("w", 1, products);
        let encode = |rows: std::ops::Range<usize>| {
            Threads.encode(&t, &rows.collect::<Vec<_>>(), BlockType::Q4K, &importance).unwrap()
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let alone = pool.install(|| encode(0..64));
        assert_eq!(alone, encode(0..64));
        assert_eq!(alone, [encode(0..40), encode(40..64)].concat());
        let backwards = Threads.encode(&t, &(0..64).rev().collect::<Vec<_>>(), BlockType::Q4K, &importance).unwrap();
        let len = BlockType::Q4K.row_bytes(256).unwrap();
        assert!(alone.chunks_exact(len).eq(backwards.chunks_exact(len).rev()), "each row for itself");
        let nearest = Threads.nearest(&t, &(0..64).collect::<Vec<_>>(), BlockType::Q4K, &importance).unwrap();
        assert!(alone[..32 * len] == nearest[..32 * len] && alone[32 * len..] != nearest[32 * len..]);
        let d = distortion(&Threads, &t, BlockType::Q4K, &importance, 1).unwrap();
        assert!(d.t2() > 0.0 && d.t2() < 0.02 && d.plain_t2() > 0.0, "{d:?}");
    }
}

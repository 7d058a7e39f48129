//! What weights look like, without running the model: the sensitivity that some quantisers guess from. Here for
//! comparison.

use super::{QuantizeError, distortion::values};
use crate::format::Tensor;

/// Rows that are looked at, at most: the work grows with their square.
const ROWS_MAX: usize = 192;

/// Kurtosis of the weights times the effective rank of their singular values, as a share of the largest rank that they
/// could have: `kurtosis (sum s^2)^2 / sum s^4 / rows`, of rows evenly over the tensor.
pub fn weight_shape(tensor: &Tensor) -> Result<f64, QuantizeError> {
    let tensor = &tensor.passing();
    let all = tensor.rows() * tensor.matrices();
    let rows = all.div_ceil(all.div_ceil(ROWS_MAX));
    let x: Vec<Vec<f32>> =
        (0..rows).map(|i| values(tensor, (i * all.div_ceil(ROWS_MAX)).min(all - 1))).collect::<Result<_, _>>()?;
    let count = (rows * tensor.cols()) as f64;
    let moment = |p: i32| x.iter().flatten().map(|v| f64::from(*v).powi(p)).sum::<f64>() / count;
    let (second, fourth) = (moment(2), moment(4));
    if second == 0.0 {
        return Ok(0.0);
    }
    // The Gram matrix has the squares of the singular values: its trace is their sum, its squared norm that of the
    // fourth powers.
    let dot = |a: &[f32], b: &[f32]| f64::from(a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>());
    let (mut trace, mut squares) = (0.0, 0.0);
    for (i, a) in x.iter().enumerate() {
        trace += dot(a, a);
        squares += dot(a, a).powi(2) + 2.0 * x[..i].iter().map(|b| dot(a, b).powi(2)).sum::<f64>();
    }
    let rank_max = rows.min(tensor.cols()) as f64;
    Ok(fourth / (second * second) * trace * trace / squares / rank_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::BlockType;

    #[test]
    fn rank_one_is_low_and_heavy_tails_are_high() {
        let shape = |value: &dyn Fn(usize, usize) -> f32| {
            let bytes = (0..64 * 64).flat_map(|i| value(i / 64, i % 64).to_le_bytes()).collect();
            weight_shape(&Tensor::owned("w".into(), BlockType::F32, vec![64, 64], bytes).unwrap()).unwrap()
        };
        assert!((shape(&|r, c| if r == c { 1.0 } else { 0.0 }) - 64.0).abs() < 1e-3, "sparse, of full rank");
        assert!((shape(&|_, _| 1.0) - 1.0 / 64.0).abs() < 1e-6, "flat, of rank one");
        assert_eq!(shape(&|_, _| 0.0), 0.0);
    }
}

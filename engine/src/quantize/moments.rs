//! What a matrix's inputs have to do with one another: their second moments over calibration text. An error `e` of a row
//! of weights changes the row's outputs by `e' H e` in all, `H` being the sum of `x x'`.

/// So much of what any two inputs have in common is not believed: other texts have other correlations. Of 1, 5, 10, 20
/// and 40 hundredths, documentation is best with the last and the model's own text with 5
/// (docs/measurements/quantisation.md).
const DOUBT: f32 = 0.2;

/// Second moments `[n, n]` of one matrix's `n` inputs, what is off the diagonal drawn towards nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct InputMoments {
    cols: usize,
    products: Vec<f32>,
}

impl InputMoments {
    /// Memory of a matrix with so many inputs.
    pub fn bytes(cols: usize) -> usize {
        cols * cols * size_of::<f32>()
    }

    /// From the sum of `x x'` over inputs, `[n, n]`, of which the lower triangle counts. `None` if there was no input but
    /// zeros, or one that is no number.
    ///
    /// # Panics
    /// If it is no square.
    pub(super) fn new(mut products: Vec<f32>) -> Option<Self> {
        let cols = products.len().isqrt();
        assert_eq!(products.len(), cols * cols, "products of any two inputs");
        let squares = || (0..cols).map(|i| products[i * cols + i]);
        if products.iter().any(|p| !p.is_finite()) || squares().all(|s| s == 0.0) {
            return None;
        }
        for i in 0..cols {
            for j in 0..i {
                let believed = (1.0 - DOUBT) * products[i * cols + j];
                (products[i * cols + j], products[j * cols + i]) = (believed, believed);
            }
        }
        Some(Self { cols, products })
    }

    /// How many inputs there are.
    pub(super) fn cols(&self) -> usize {
        self.cols
    }

    /// Input `i` with all inputs.
    pub(super) fn row(&self, i: usize) -> &[f32] {
        &self.products[i * self.cols..][..self.cols]
    }

    /// `H e`, summed in the order of the inputs.
    pub(super) fn times(&self, e: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; self.cols];
        for (i, e) in e.iter().enumerate().filter(|(_, e)| **e != 0.0) {
            out.iter_mut().zip(self.row(i)).for_each(|(out, h)| *out += e * h);
        }
        out
    }

    /// The quadratic form `e' H e`: what an error `e` of the weights costs in the output.
    pub(super) fn loss(&self, e: &[f32]) -> f64 {
        self.times(e).iter().zip(e).map(|(h, e)| f64::from(*h) * f64::from(*e)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_what_outputs_change_by_less_what_is_not_believed() {
        // Inputs (1, 2) and (3, -1): H = [[10, -1], [-1, 5]]; what is above the diagonal does not count.
        let moments = InputMoments::new(vec![10.0, 99.0, -1.0, 5.0]).unwrap();
        assert_eq!(moments.loss(&[1.0, 0.0]), 10.0);
        let shared = f64::from(2.0 * (1.0 - DOUBT));
        assert!((moments.loss(&[1.0, 1.0]) - (15.0 - shared)).abs() < 1e-6);
        assert_eq!(InputMoments::new(vec![0.0; 4]), None);
        assert_eq!(InputMoments::new(vec![1.0, 0.0, f32::NAN, 1.0]), None);
    }
}

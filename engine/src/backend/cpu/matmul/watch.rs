//! What a matrix is multiplied with: sums of squares, input by input, which say how much each of its columns counts.

use super::RowsView;
use std::sync::Mutex;

/// Sums of squared inputs over rows of activations.
///
/// Of the threads that share a product, the one with the first tile adds its rows; so a row counts once, and the order
/// of the sums is that of the rows.
#[derive(Debug)]
pub struct InputSquares(Mutex<Sums>);

#[derive(Clone, Debug)]
struct Sums {
    rows: u64,
    squares: Vec<f64>,
}

impl InputSquares {
    pub(super) fn new(cols: usize) -> Self {
        Self(Mutex::new(Sums { rows: 0, squares: vec![0.0; cols] }))
    }

    pub(super) fn add(&self, x: RowsView<'_>, pairs: &[(u32, u32)]) {
        let mut sums = self.0.lock().expect("sums do not panic");
        sums.rows += pairs.len() as u64;
        for (row, _) in pairs {
            // SAFETY: whoever multiplies with rows has them finished.
            let values = unsafe { x.row(*row as usize) };
            sums.squares.iter_mut().zip(values).for_each(|(sum, x)| *sum += f64::from(*x) * f64::from(*x));
        }
    }

    /// How many rows there were, and the sum of squares of each input.
    pub fn sums(&self) -> (u64, Vec<f64>) {
        let sums = self.0.lock().expect("sums do not panic");
        (sums.rows, sums.squares.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ActivationRows, OutView, PackedMatrix, matmul};
    use crate::format::{BlockType, Tensor};

    #[test]
    fn each_row_counts_once_however_the_tiles_are_shared() {
        let t = Tensor::owned("w".into(), BlockType::F32, vec![40, 4], vec![0; 640]).expect("it fits");
        let w = PackedMatrix::pack(&t, 0, false);
        let mut x = ActivationRows::with_capacity(3, 4);
        x.set_len(3, 4);
        (0..3).for_each(|i| x.row_mut(i).copy_from_slice(&[i as f32, 1.0, 2.0, -3.0]));
        let mut out = vec![0.0; 3 * 40];
        let mut multiply = |tiles| matmul(&w, x.view(), &[(1, 0), (2, 1)], tiles, OutView::of(&mut out, 40));
        multiply(0..3);
        assert!(w.seen().is_none());
        w.watch();
        (0..3).for_each(|tile| multiply(tile..tile + 1));
        multiply(0..3);
        assert_eq!(w.seen().unwrap().sums(), (4, vec![10.0, 4.0, 16.0, 36.0]));
        assert_eq!((w.source().tensor.as_str(), w.source().index), ("w", 0));
    }
}

//! What a matrix is multiplied with: sums of squares, input by input, which say how much each of its columns counts,
//! and of products of two inputs, which say how they are correlated.

use super::RowsView;
use std::sync::Mutex;

/// Rows that are added to the products at once: each entry is read and written once for all of them.
const AT_ONCE: usize = 4;

/// Sums over rows of activations.
///
/// Of the threads that share a product, the one with the first tile adds its rows; so a row counts once, and the order
/// of the sums is that of the rows.
#[derive(Debug)]
pub struct InputSums(Mutex<RowSums>);

#[derive(Clone, Debug)]
struct RowSums {
    rows: u64,
    squares: Vec<f64>,
    /// `[cols, cols]`, of which the lower triangle is kept up; empty if nobody wants it.
    products: Vec<f32>,
}

impl InputSums {
    pub(super) fn new(cols: usize, products: bool) -> Self {
        let products = if products { vec![0.0; cols * cols] } else { Vec::new() };
        Self(Mutex::new(RowSums { rows: 0, squares: vec![0.0; cols], products }))
    }

    pub(super) fn add(&self, x: RowsView<'_>, pairs: &[(u32, u32)]) {
        let mut sums = self.0.lock().expect("sums do not panic");
        for some in pairs.chunks(AT_ONCE) {
            // SAFETY: whoever multiplies with rows has them finished.
            let rows: Vec<&[f32]> = some.iter().map(|(row, _)| unsafe { x.row(*row as usize) }).collect();
            sums.add(&rows);
        }
    }

    /// How many rows there were, and the sum of squares of each input.
    pub fn sums(&self) -> (u64, Vec<f64>) {
        let sums = self.0.lock().expect("sums do not panic");
        (sums.rows, sums.squares.clone())
    }

    /// The sums of products of two inputs, `[cols, cols]`, of which the lower triangle is right. Nothing if they were
    /// not asked for; they are kept no longer.
    pub fn take_products(&self) -> Option<Vec<f32>> {
        let mut sums = self.0.lock().expect("sums do not panic");
        let products = std::mem::take(&mut sums.products);
        (!products.is_empty()).then_some(products)
    }
}

impl RowSums {
    fn add(&mut self, rows: &[&[f32]]) {
        self.rows += rows.len() as u64;
        for values in rows {
            self.squares.iter_mut().zip(*values).for_each(|(sum, x)| *sum += f64::from(*x) * f64::from(*x));
        }
        if self.products.is_empty() {
            return;
        }
        let cols = self.squares.len();
        let none = vec![0.0; cols];
        let four: [&[f32]; AT_ONCE] = std::array::from_fn(|r| rows.get(r).map_or(&none[..], |row| &row[..cols]));
        for (i, sums) in self.products.chunks_exact_mut(cols).enumerate() {
            let by = four.map(|row| row[i]);
            let [a, b, c, d] = four.map(|row| &row[..=i]);
            for (j, sum) in sums[..=i].iter_mut().enumerate() {
                *sum += (by[0] * a[j] + by[1] * b[j]) + (by[2] * c[j] + by[3] * d[j]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ActivationRows, OutView, PackedMatrix, matmul};
    use crate::format::{BlockType, Tensor};

    #[test]
    fn each_row_counts_once_however_the_tiles_are_shared() {
        let t = Tensor::owned("w".into(), BlockType::F32, vec![40, 4], vec![0; 640]).expect("it fits");
        let w = PackedMatrix::pack(&t, 0, false).unwrap();
        let mut x = ActivationRows::with_capacity(3, 4);
        x.set_len(3, 4);
        (0..3).for_each(|i| x.row_mut(i).copy_from_slice(&[i as f32, 1.0, 2.0, -3.0]));
        let mut out = vec![0.0; 3 * 40];
        let mut multiply = |tiles| matmul(&w, x.view(), &[(1, 0), (2, 1)], tiles, OutView::of(&mut out, 40));
        multiply(0..3);
        assert!(w.seen().is_none());
        w.watch(true);
        (0..3).for_each(|tile| multiply(tile..tile + 1));
        multiply(0..3);
        assert_eq!(w.seen().unwrap().sums(), (4, vec![10.0, 4.0, 16.0, 36.0]));
        let products = w.seen().unwrap().take_products().unwrap();
        assert_eq!(products, [10., 0., 0., 0., 6., 4., 0., 0., 12., 8., 16., 0., -18., -12., -24., 36.]);
        assert!(w.seen().unwrap().take_products().is_none(), "they were taken");
        assert_eq!((w.source().tensor.as_str(), w.source().index), ("w", 0));
    }
}

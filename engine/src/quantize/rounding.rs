//! Rounding for inputs that are correlated: with a row's scales as an encoder chose them, codes are moved so that the
//! row's outputs change least, not each weight for itself. Errors then make up for one another where inputs go together.

use super::InputMoments;
use crate::format::BlockType;
use crate::format::blocks::{ValueGrid, decode_row};

/// Sweeps over a row, at most: nearly all moves are in the first three.
const SWEEPS_MAX: usize = 16;

/// Moves codes of an encoded row of the weights `x` until no single move makes `e' H e` of its error smaller. Scales
/// stay, and so do codes that stand for several values at once.
pub(super) fn round_row(ty: BlockType, x: &[f32], moments: &InputMoments, row: &mut [u8]) {
    let Some(grid) = ValueGrid::of(ty, x.len(), row) else { return };
    let mut rounded = RowRounding::of(ty, x, (grid, moments), row);
    for _ in 0..SWEEPS_MAX {
        // All values are looked at, whether or not one has moved.
        if (0..x.len()).filter(|i| rounded.step(*i)).count() == 0 {
            break;
        }
    }
    rounded.put(row);
}

/// A row while codes move.
struct RowRounding<'a> {
    x: &'a [f32],
    grid: ValueGrid,
    moments: &'a InputMoments,
    /// The level of each value.
    levels: Vec<f32>,
    /// What values are off by.
    error: Vec<f32>,
    /// `H e`: half of what the loss gains with each value.
    slope: Vec<f32>,
}

impl<'a> RowRounding<'a> {
    fn of(ty: BlockType, x: &'a [f32], (grid, moments): (ValueGrid, &'a InputMoments), row: &[u8]) -> Self {
        let mut values = vec![0.0; x.len()];
        decode_row(ty, row, &mut values);
        let levels = (0..x.len()).map(|i| grid.get(row, i)).collect();
        let error: Vec<f32> = values.iter().zip(x).map(|(v, x)| v - x).collect();
        let slope = moments.times(&error);
        Self { x, grid, moments, levels, error, slope }
    }

    /// Moves value `i` to the level that is best with all others as they are. Whether it did.
    fn step(&mut self, i: usize) -> bool {
        let row = self.moments.row(i);
        // An input that was always zero says nothing: this is then no number, and has no nearest level.
        let ideal = self.x[i] + self.error[i] - self.slope[i] / row[i];
        let Some(level) = self.grid.nearest(i, ideal).filter(|level| self.levels[i] != *level) else {
            return false;
        };
        let error = self.grid.value(i, level) - self.x[i];
        let change = error - self.error[i];
        // Where both are equally good it stays.
        if change * (2.0 * self.slope[i] + change * row[i]) >= 0.0 {
            return false;
        }
        (self.levels[i], self.error[i]) = (level, error);
        self.slope.iter_mut().zip(row).for_each(|(s, h)| *s += change * h);
        true
    }

    fn put(&self, row: &mut [u8]) {
        self.levels.iter().enumerate().for_each(|(i, level)| self.grid.put(row, i, *level));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::blocks::{SplitMix, quantize_row};
    use crate::quantize::MENU;
    use proptest::prelude::*;

    const COLS: usize = 256;

    fn values(rng: &mut SplitMix, n: usize, by: f32) -> Vec<f32> {
        (0..n).map(|_| (0..4).map(|_| rng.signed_unit()).sum::<f32>() * by).collect()
    }

    /// Of inputs that are mixtures of few signals, with a little noise each.
    fn moments(rng: &mut SplitMix, noise: f32) -> InputMoments {
        let mixing: Vec<Vec<f32>> = (0..12).map(|_| values(rng, COLS, 1.0)).collect();
        let mut products = vec![0.0; COLS * COLS];
        for _ in 0..64 {
            let mut x = values(rng, COLS, noise);
            for of_signal in &mixing {
                let signal = rng.signed_unit();
                x.iter_mut().zip(of_signal).for_each(|(x, m)| *x += signal * m);
            }
            (0..COLS * COLS).for_each(|at| products[at] += x[at / COLS] * x[at % COLS]);
        }
        InputMoments::new(products).unwrap()
    }

    fn encoded(ty: BlockType, x: &[f32], importance: &[f32]) -> Vec<u8> {
        let mut row = vec![0; ty.row_bytes(COLS).unwrap()];
        quantize_row(ty, x, Some(importance), &mut row);
        row
    }

    fn loss(ty: BlockType, x: &[f32], moments: &InputMoments, row: &[u8]) -> f64 {
        let mut back = vec![0.0; COLS];
        decode_row(ty, row, &mut back);
        moments.loss(&back.iter().zip(x).map(|(b, x)| b - x).collect::<Vec<_>>())
    }

    fn squares(moments: &InputMoments) -> Vec<f32> {
        (0..COLS).map(|i| moments.row(i)[i]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn outputs_change_less_and_never_more(seed: u64, scale in 1e-3f32..10.0) {
            let mut rng = SplitMix::new(seed, 0);
            let (moments, x) = (moments(&mut rng, 0.3), values(&mut rng, COLS, scale));
            for ty in MENU.into_iter().chain([BlockType::Q4_0]) {
                let nearest = encoded(ty, &x, &squares(&moments));
                let mut row = nearest.clone();
                round_row(ty, &x, &moments, &mut row);
                let (before, after) = (loss(ty, &x, &moments, &nearest), loss(ty, &x, &moments, &row));
                if matches!(ty, BlockType::Iq3S | BlockType::Iq3Xxs) {
                    prop_assert_eq!(row, nearest);
                } else {
                    prop_assert!(after < 0.9 * before, "{}: {} of {}", ty.name(), after, before);
                }
            }
        }
    }

    #[test]
    fn independent_inputs_change_nothing() {
        let mut rng = SplitMix::new(3, 0);
        let (x, importance) = (values(&mut rng, COLS, 0.02), (0..COLS).map(|i| (i % 7) as f32).collect::<Vec<_>>());
        let mut products = vec![0.0; COLS * COLS];
        importance.iter().enumerate().for_each(|(i, w)| products[i * COLS + i] = *w);
        let moments = InputMoments::new(products).unwrap();
        for ty in MENU {
            let nearest = encoded(ty, &x, &importance);
            let mut row = nearest.clone();
            round_row(ty, &x, &moments, &mut row);
            assert_eq!(row, nearest, "{}", ty.name());
        }
    }

    #[test]
    fn no_single_code_could_do_better() {
        let mut rng = SplitMix::new(5, 0);
        let (moments, x) = (moments(&mut rng, 0.5), values(&mut rng, COLS, 0.02));
        let ty = BlockType::Q3K;
        let mut row = encoded(ty, &x, &squares(&moments));
        round_row(ty, &x, &moments, &mut row);
        let (best, grid) = (loss(ty, &x, &moments, &row), ValueGrid::of(ty, COLS, &row).unwrap());
        for i in 0..COLS {
            for level in 0..8 {
                let mut other = row.clone();
                grid.put(&mut other, i, level as f32);
                let other = loss(ty, &x, &moments, &other);
                assert!(other >= best * (1.0 - 1e-5), "value {i} at {level}: {other} of {best}");
            }
        }
    }

    #[test]
    fn rows_of_zeros_stay() {
        let moments = moments(&mut SplitMix::new(7, 0), 0.1);
        for ty in MENU {
            let mut row = encoded(ty, &[0.0; COLS], &squares(&moments));
            round_row(ty, &[0.0; COLS], &moments, &mut row);
            assert!(row.iter().all(|b| *b == 0), "{}", ty.name());
        }
    }
}

//! What the encoders share: a block in units of its largest value, the levels that codes stand for, and the search for
//! the scale of a group of values.

use half::f16;
use std::ops::Range;

/// Blocks whose largest value is below this are zeros: no f16 factor reaches so far down, and its reciprocal stays
/// finite.
const LARGEST_MIN: f32 = 1e-30;
/// The least that a value counts, as a share of the row's mean: an input that calibration never saw still counts for
/// something, and no sum of weights is zero.
const WEIGHT_MIN: f32 = 1e-6;

/// A row with the weight of each value.
pub(super) struct WeightedRow<'a> {
    x: &'a [f32],
    /// Of mean 1; `None` where all are 1.
    weights: Option<Vec<f32>>,
}

/// What each value of a row weighs, of mean 1; `None` where all weigh the same. Importance that is nothing but zeros, or
/// no number, counts as none.
pub(crate) fn row_weights(importance: &[f32]) -> Option<Vec<f32>> {
    let mean = importance.iter().map(|w| f64::from(*w)).sum::<f64>() / importance.len() as f64;
    let scaled = |w: &f32| (f64::from(*w) / mean) as f32;
    (mean.is_finite() && mean > 0.0).then(|| importance.iter().map(|w| scaled(w).max(WEIGHT_MIN)).collect())
}

impl<'a> WeightedRow<'a> {
    pub(super) fn new(x: &'a [f32], importance: Option<&[f32]>) -> Self {
        let weights = importance.and_then(|all| {
            assert_eq!(all.len(), x.len(), "an importance a value");
            row_weights(all)
        });
        Self { x, weights }
    }

    /// Some values in units of the largest; `None` if they are zeros.
    pub(super) fn block(&self, range: Range<usize>) -> Option<ScaledBlock> {
        let x = &self.x[range.clone()];
        let largest = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        (largest >= LARGEST_MIN).then(|| ScaledBlock {
            largest,
            x: x.iter().map(|x| x / largest).collect(),
            w: self.weights.as_ref().map_or_else(|| vec![1.0; x.len()], |w| w[range].to_vec()),
        })
    }
}

/// Values of at most 1, and what each weighs.
pub(super) struct ScaledBlock {
    /// What the values were divided by.
    pub(super) largest: f32,
    pub(super) x: Vec<f32>,
    pub(super) w: Vec<f32>,
}

impl ScaledBlock {
    /// The factor that is stored for `d`, and what it is in the block's own units.
    pub(super) fn factor(&self, d: f32) -> (f16, f32) {
        let stored = f16::from_f32((d * self.largest).clamp(f16::MIN.to_f32(), f16::MAX.to_f32()));
        (stored, stored.to_f32() / self.largest)
    }

    /// Group `g` of groups of `len` values.
    pub(super) fn group(&self, g: usize, len: usize) -> ScaleGroup<'_> {
        ScaleGroup { x: &self.x[g * len..(g + 1) * len], w: &self.w[g * len..(g + 1) * len] }
    }
}

/// Values that share a scale.
#[derive(Clone, Copy)]
pub(super) struct ScaleGroup<'a> {
    pub(super) x: &'a [f32],
    pub(super) w: &'a [f32],
}

/// The numbers that a code can stand for, before a scale.
pub(super) trait LevelSet: Copy {
    /// The level that is nearest to `y`.
    fn nearest(self, y: f32) -> f32;
}

/// Nearest whole number, ties to even, of |v| < 2^22: adding 1.5 * 2^23 leaves no room for a fraction.
pub(super) fn round(v: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0;
    (v + MAGIC) - MAGIC
}

/// All whole numbers between two.
#[derive(Clone, Copy)]
pub(super) struct WholeNumbers {
    pub(super) min: f32,
    pub(super) max: f32,
}

impl LevelSet for WholeNumbers {
    fn nearest(self, y: f32) -> f32 {
        round(y.max(self.min).min(self.max))
    }
}

/// Any 16 levels, in ascending order.
#[derive(Clone, Copy)]
pub(super) struct LevelTable<'a>(pub(super) &'a [f32; 16]);

impl LevelSet for LevelTable<'_> {
    fn nearest(self, y: f32) -> f32 {
        let mut at = 0;
        for pair in self.0.windows(2) {
            at += usize::from(y > (pair[0] + pair[1]) * 0.5);
        }
        self.0[at]
    }
}

impl ScaleGroup<'_> {
    /// The scale `s` for which `sum w (x - s level)^2` is least, of those that least squares give where the value of
    /// largest magnitude lies on each of `ends`.
    pub(super) fn scale(self, levels: impl LevelSet, ends: impl Iterator<Item = f32>) -> f32 {
        let extreme = self.x.iter().fold(0.0f32, |m, x| if x.abs() > m.abs() { *x } else { m });
        let (mut best, mut scale) = (0.0, 0.0);
        if extreme == 0.0 {
            return scale;
        }
        for end in ends {
            let (xq, qq) = self.products(levels, end / extreme);
            if qq > 0.0 && xq * xq > best * qq {
                (best, scale) = (xq * xq / qq, xq / qq);
            }
        }
        scale
    }

    /// `sum w x q` and `sum w q^2` of the levels nearest to `x / scale`, given as its reciprocal.
    pub(super) fn products(self, levels: impl LevelSet, inverse: f32) -> (f32, f32) {
        let (mut xq, mut qq) = (0.0, 0.0);
        for (x, w) in self.x.iter().zip(self.w) {
            let q = levels.nearest(x * inverse);
            xq += w * x * q;
            qq += w * q * q;
        }
        (xq, qq)
    }

    /// `sum w (x - scale level)^2` with the nearest levels.
    pub(super) fn error(self, levels: impl LevelSet, scale: f32) -> f32 {
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let mut sum = 0.0;
        for (x, w) in self.x.iter().zip(self.w) {
            let off = x - scale * levels.nearest(x * inverse);
            sum += w * off * off;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_level_is_the_nearest() {
        let table = std::array::from_fn(|i| (i * i) as f32 - 20.0);
        for i in -400..2400 {
            let y = i as f32 * 0.1 - 0.01;
            let near = |levels: &[f32]| levels.iter().fold(f32::MAX, |m, l| m.min((l - y).abs()));
            assert_eq!((LevelTable(&table).nearest(y) - y).abs(), near(&table), "{y}");
            let whole: Vec<f32> = (-8..8).map(|i| i as f32).collect();
            assert_eq!((WholeNumbers { min: -8.0, max: 7.0 }.nearest(y) - y).abs(), near(&whole), "{y}");
        }
    }

    #[test]
    fn importance_is_a_matter_of_ratios_and_of_nothing_counts_as_none() {
        let x = [1.0, -2.0, 3.0, 4.0];
        let weights = |importance: &[f32]| WeightedRow::new(&x, Some(importance)).block(0..4).unwrap().w;
        assert_eq!(weights(&[1.0, 2.0, 3.0, 2.0]), weights(&[1e-20, 2e-20, 3e-20, 2e-20]));
        assert_eq!(weights(&[0.0; 4]), [1.0; 4]);
        assert_eq!(weights(&[f32::NAN, 1.0, 1.0, 1.0]), [1.0; 4]);
        assert!(weights(&[0.0, 1.0, 1.0, 1.0])[0] > 0.0);
        assert!(WeightedRow::new(&[0.0; 4], None).block(0..4).is_none());
    }
}

//! Order statistics of measured values.

use serde::Serialize;

/// A summary of samples, in their unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct OrderStatistics {
    pub(super) count: usize,
    pub(super) mean: f64,
    pub(super) min: f64,
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl OrderStatistics {
    /// `None` without samples. Percentiles are values that were measured (nearest rank), the median of an even count
    /// too.
    pub(super) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let rank = |p: f64| sorted[((p * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1];
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        Some(Self {
            count: sorted.len(),
            mean,
            min,
            p50: rank(0.5),
            p90: rank(0.9),
            p95: rank(0.95),
            p99: rank(0.99),
            max,
        })
    }

    /// Half the distance from the least to the greatest value, as a fraction of the median.
    pub(super) fn spread(&self) -> f64 {
        if self.p50 == 0.0 { 0.0 } else { (self.max - self.min) / 2.0 / self.p50 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_measured_values() {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let s = OrderStatistics::of(&samples).unwrap();
        assert_eq!((s.min, s.p50, s.p90, s.p95, s.p99, s.max), (1.0, 50.0, 90.0, 95.0, 99.0, 100.0));
        assert_eq!((s.mean, s.count), (50.5, 100));
        assert_eq!(OrderStatistics::of(&[7.0]).unwrap().p99, 7.0);
        assert_eq!(OrderStatistics::of(&[]), None);
    }

    #[test]
    fn spread_is_half_the_range_over_the_median() {
        assert_eq!(OrderStatistics::of(&[9.0, 10.0, 11.0]).unwrap().spread(), 0.1);
    }
}

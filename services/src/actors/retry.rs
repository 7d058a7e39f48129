//! When a refused caller should come back.

use crate::limits::RETRY_AFTER_SECONDS;
use chimere_engine::ids::Micros;
use std::time::Duration;

/// Rows computed in a second, over the recent past. A decaying mean, so that an idle night does not count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    rows: f64,
    seconds: f64,
}

impl Rate {
    /// How much of the past each step keeps; the mean reaches back some 50 steps.
    const KEEP: f64 = 0.98;

    /// One more step.
    pub fn add(&mut self, rows: u32, took: Micros) {
        self.rows = self.rows * Self::KEEP + f64::from(rows);
        self.seconds = self.seconds * Self::KEEP + took.0 as f64 / 1e6;
    }

    /// Rows a second; `None` before the first step that took any time.
    pub fn per_second(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.rows / self.seconds)
    }
}

/// Waiting tokens over tokens a second, clamped, with `jitter` in -1..=1 for up to a fifth more or less, so that those who were
/// refused together do not come back together.
pub fn after(tokens_waiting: u64, rate: Rate, jitter: f64) -> Duration {
    let (least, most) = (*RETRY_AFTER_SECONDS.start() as f64, *RETRY_AFTER_SECONDS.end() as f64);
    let seconds = rate.per_second().map_or(least, |rate| tokens_waiting as f64 / rate).clamp(least, most);
    Duration::from_secs_f64((seconds * (1.0 + 0.2 * jitter)).clamp(least, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(rows: u32, seconds: f64) -> Rate {
        let mut rate = Rate::default();
        rate.add(rows, Micros((seconds * 1e6) as u64));
        rate
    }

    #[test]
    fn the_wait_is_the_queue_over_the_rate() {
        assert_eq!(after(3_000, rate(100, 1.0), 0.0), Duration::from_secs(30));
        assert_eq!(after(3_000, rate(100, 1.0), -1.0), Duration::from_secs(24));
        assert_eq!(after(3_000, rate(100, 1.0), 1.0), Duration::from_secs(36));
    }

    #[test]
    fn it_stays_between_a_second_and_a_minute_also_when_nothing_is_known() {
        assert_eq!(after(1 << 20, rate(1, 1.0), 1.0), Duration::from_secs(60));
        assert_eq!(after(0, rate(100, 1.0), -1.0), Duration::from_secs(1));
        assert_eq!(after(1 << 20, Rate::default(), 0.0), Duration::from_secs(1));
    }

    #[test]
    fn the_rate_follows_the_recent_past() {
        let mut rate = rate(1_000, 1.0);
        for _ in 0..500 {
            rate.add(10, Micros(1_000_000));
        }
        assert!((rate.per_second().unwrap() - 10.0).abs() < 1.0);
    }
}

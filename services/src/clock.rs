//! The one clock of a service. The scheduler is told the time by it; tests tell their own.

use chimere_engine::ids::Micros;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Counts from the moment it was made. Copies agree.
#[derive(Clone, Debug)]
pub struct Clock {
    start: Instant,
    /// Microseconds that it is wrong by.
    skew: Arc<AtomicI64>,
}

impl Clock {
    /// Starts at 0.
    pub fn start() -> Self {
        Self { start: Instant::now(), skew: Arc::default() }
    }

    /// Time since the start.
    pub fn now(&self) -> Micros {
        // 2^64 microseconds are half a million years.
        Micros((self.start.elapsed().as_micros() as u64).saturating_add_signed(self.skew.load(Ordering::Relaxed)))
    }

    /// Jumps, as a clock of a suspended or badly virtualised machine does; backwards at most to 0.
    pub fn jump(&self, micros: i64) {
        self.skew.fetch_add(micros, Ordering::Relaxed);
    }
}

/// Seconds since 1970.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_agree_also_after_a_jump_and_never_show_less_than_nothing() {
        let clock = Clock::start();
        let copy = clock.clone();
        clock.jump(3_600_000_000);
        assert!(copy.now() >= Micros(3_600_000_000));
        copy.jump(-7_200_000_000);
        assert_eq!(clock.now(), Micros(0));
    }
}

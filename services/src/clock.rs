//! The one clock of a service. The scheduler is told the time by it; tests tell their own.

use chimere_engine::ids::Micros;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Counts from the moment it was made. Copies agree.
#[derive(Clone, Debug)]
pub struct Clock {
    /// `None` for a clock that stands still.
    start: Option<Instant>,
    /// Microseconds that it is wrong by.
    skew: Arc<AtomicI64>,
}

impl Clock {
    /// Starts at 0.
    pub fn start() -> Self {
        Self { start: Some(Instant::now()), skew: Arc::default() }
    }

    /// Stands at 0 and moves only when it is made to jump: whoever is told the time by it takes no time for anything.
    pub fn stopped() -> Self {
        Self { start: None, skew: Arc::default() }
    }

    /// Time since the start.
    pub fn now(&self) -> Micros {
        // 2^64 microseconds are half a million years.
        let elapsed = self.start.map_or(0, |start| start.elapsed().as_micros() as u64);
        Micros(elapsed.saturating_add_signed(self.skew.load(Ordering::Relaxed)))
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

    #[test]
    fn a_stopped_clock_moves_by_its_jumps_alone() {
        let clock = Clock::stopped();
        clock.jump(5);
        assert_eq!((clock.now(), clock.now()), (Micros(5), Micros(5)));
    }
}

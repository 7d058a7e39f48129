//! The one clock of a service. The scheduler is told the time by it; tests tell their own.

use chimere_engine::ids::Micros;
use std::time::Instant;

/// Counts from the moment it was made. Copies agree.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts at 0.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub fn now(&self) -> Micros {
        // 2^64 microseconds are half a million years.
        Micros(self.0.elapsed().as_micros() as u64)
    }
}

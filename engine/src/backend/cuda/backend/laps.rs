//! How long the parts of a start take, for whoever wonders what it waits for.

use std::time::Instant;

/// Tells how long the parts of a start take.
pub(crate) struct Laps(Instant);

impl Laps {
    /// Of a part that begins now.
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// A part has ended, and the next one begins.
    pub(crate) fn end(&mut self, what: &str) {
        tracing::debug!(ms = self.0.elapsed().as_millis() as u64, "{what}");
        self.0 = Instant::now();
    }
}

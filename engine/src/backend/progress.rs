//! Tells an observer on another thread that a backend is still computing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that a backend advances while it computes a step. Copies share one count.
///
/// A backend that computes on the host advances it after each block of the model, so that an observer can tell a slow
/// step from one that stands still. A backend whose device shows nothing until a step is complete never advances it.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Notes that a part of a step was computed.
    pub fn advance(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of parts computed so far; only whether it changes has a meaning.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

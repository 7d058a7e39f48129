//! How many experts the rows of a step took.

use crate::step::ExpertUse;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many experts the rows of a step were given to, where that was cut.
#[derive(Default)]
pub(crate) struct ExpertCount {
    rows: AtomicU64,
    experts: AtomicU64,
}

impl ExpertCount {
    /// Counts one row of one layer that `kept` experts were given to.
    pub(crate) fn add(&self, kept: usize) {
        self.rows.fetch_add(1, Ordering::Relaxed);
        self.experts.fetch_add(kept as u64, Ordering::Relaxed);
    }

    /// The sums over all rows and layers so far.
    pub(crate) fn taken(&self) -> ExpertUse {
        ExpertUse { rows: self.rows.load(Ordering::Relaxed), experts: self.experts.load(Ordering::Relaxed) }
    }
}

//! The prior of several tables as one: their counts of each token added up, so that a prediction asks memory once for a token and not once
//! a table.

use super::pages::Pages;
use super::table::{Ngrams, prefetch};
use crate::ids::TokenId;
use std::sync::Arc;

/// Sums over some tables. Says what the tables say one by one, as long as the sums stay below 2^53.
#[derive(Debug)]
pub struct JointPrior {
    /// u64 of each token.
    counts: Pages,
}

impl JointPrior {
    /// Of these tables. Reads all of their priors: some milliseconds for a few tables of a large vocabulary.
    pub fn of(tables: &[Arc<dyn Ngrams>]) -> Self {
        let vocab = tables.iter().map(|t| t.vocab()).max().unwrap_or(0);
        let mut counts = Pages::zeroed(8 * vocab as usize);
        for (token, place) in (0..vocab).zip(counts.as_chunks_mut::<8>().0) {
            *place = tables.iter().fold(0u64, |sum, t| sum.saturating_add(t.prior(token))).to_ne_bytes();
        }
        Self { counts }
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        self.counts.len()
    }

    /// How often a token stood in the tables' texts.
    #[inline]
    pub(super) fn count(&self, token: TokenId) -> u64 {
        self.counts.as_chunks().0.get(token as usize).map_or(0, |count| u64::from_ne_bytes(*count))
    }

    /// Asks memory for what [`JointPrior::count`] will read.
    #[inline]
    pub(super) fn prefetch(&self, token: TokenId) {
        prefetch(&self.counts, 8 * token as usize);
    }
}

//! The prior of several tables as one: their counts of each token added up, so that a prediction asks memory once for a
//! token and not once a table.

use super::ngrams::Ngrams;
use crate::engram::pages::{Pages, prefetch};
use crate::ids::TokenId;
use std::sync::Arc;

/// Sums over some tables. Says what the tables say one by one, as long as the sums stay below 2^53.
#[derive(Debug)]
pub struct JointPrior {
    /// u64 of each token.
    counts: Pages,
    vocab: u32,
    total: u64,
}

impl JointPrior {
    /// Of these tables. Reads all of their priors: some milliseconds for a few tables of a large vocabulary.
    pub fn of<'a>(tables: impl IntoIterator<Item = &'a Arc<dyn Ngrams>>) -> Self {
        let tables: Vec<_> = tables.into_iter().collect();
        let vocab = tables.iter().map(|t| t.vocab()).max().unwrap_or(0);
        let mut counts = Pages::zeroed(8 * vocab as usize);
        for (token, place) in (0..vocab).zip(counts.as_chunks_mut::<8>().0) {
            *place = tables.iter().fold(0u64, |sum, t| sum.saturating_add(t.prior(token))).to_ne_bytes();
        }
        let total = tables.iter().fold(0u64, |sum, t| sum.saturating_add(t.prior_total()));
        Self { counts, vocab, total }
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.counts.len()
    }

    pub(in crate::engram) fn vocab(&self) -> u32 {
        self.vocab
    }

    /// Sum of [`JointPrior::count`] over the vocabulary.
    pub(in crate::engram) fn total(&self) -> u64 {
        self.total
    }

    /// How often a token stood in the tables' texts.
    #[inline]
    pub(in crate::engram) fn count(&self, token: TokenId) -> u64 {
        self.counts.as_chunks().0.get(token as usize).map_or(0, |count| u64::from_ne_bytes(*count))
    }

    /// Asks memory for what [`JointPrior::count`] will read.
    #[inline]
    pub(in crate::engram) fn prefetch(&self, token: TokenId) {
        prefetch(&self.counts, 8 * token as usize);
    }
}

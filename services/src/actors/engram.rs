//! Tables of n-grams as a late source: what they change in a step, with what the metrics hear of it.

use super::late::{LateActor, LateAnswer, LateLink, LateSource};
use crate::clock::Clock;
use crate::metrics;
use ::metrics::{Counter, Histogram};
use chimere_engine::constraint::{Awaiting, Source};
use chimere_engine::engram::{RequestTables, TableSequence, TableTracker};
use chimere_engine::ids::{SeqId, TokenId};
use std::sync::Arc;

/// The actor that looks tables up.
pub type EngramActor = LateActor<EngramSource>;
/// Where it is found.
pub type EngramLink = LateLink<EngramSource>;

/// The source that owns the tracker of tables.
pub struct EngramSource {
    tracker: TableTracker,
    figures: Figures,
}

/// What the metrics hear of each step, found once: to look for them by name takes as long as some lookups.
struct Figures {
    seconds: Histogram,
    lookups: Counter,
    hits: Counter,
}

impl EngramSource {
    /// `threads` threads share large batches of lookups.
    pub fn new(threads: usize) -> Self {
        // Without threads of its own the actor's one does it all, only slower for large batches.
        let tracker = TableTracker::new(threads).unwrap_or_else(|error| {
            tracing::warn!(%error, "no threads for lookups");
            TableTracker::default()
        });
        let seconds = ::metrics::histogram!(metrics::ENGRAM_LOOKUP_SECONDS);
        let (lookups, hits) = (::metrics::counter!(metrics::ENGRAM_LOOKUPS), ::metrics::counter!(metrics::ENGRAM_HITS));
        Self { tracker, figures: Figures { seconds, lookups, hits } }
    }
}

impl LateSource for EngramSource {
    const SOURCE: Source = Source::Tables;
    const QUICK: bool = true;

    type Rules = Arc<RequestTables>;

    fn follow(&mut self, seq: SeqId, prompt: &[TokenId], tables: &Arc<RequestTables>) {
        self.tracker.track(seq, TableSequence::new(prompt, tables.clone()));
    }

    fn forget(&mut self, seq: SeqId) {
        self.tracker.forget(seq);
    }

    fn launched(&mut self, step: Awaiting) {
        self.tracker.launched(step);
    }

    fn sampled(&mut self, tokens: &[(SeqId, TokenId)]) {
        self.tracker.sampled(tokens);
    }

    fn answer(&mut self, clock: &Clock) -> Option<LateAnswer> {
        let begin = clock.now();
        let answered = self.tracker.answer()?;
        self.figures.seconds.record(clock.now().since(begin).0 as f64 / 1e6);
        self.figures.lookups.increment(answered.lookups);
        self.figures.hits.increment(answered.hits);
        Some(LateAnswer { rules: answered.rules, failed: Vec::new(), forced: Vec::new() })
    }
}

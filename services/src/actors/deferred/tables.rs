//! Tables of n-grams as a deferred source: what they change in a step, with what the metrics hear of it.

use super::link::DeferredLink;
use super::source::{DeferredAnswer, DeferredSource};
use crate::metrics;
use ::metrics::{Counter, Histogram};
use chimere_engine::constraint::DeferredTracker;
use chimere_engine::engram::{RequestTables, TableAnswer, TableSequence, TableTracker};
use chimere_engine::ids::{SeqId, TokenId};
use std::sync::Arc;
use std::time::Duration;

/// The way to the actor that looks tables up.
pub type EngramLink = DeferredLink<EngramSource>;

/// The source that owns the tracker of tables.
pub struct EngramSource {
    tracker: TableTracker,
    figures: Figures,
}

/// The metrics of each step, found once: to look for them by name takes as long as some lookups.
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

impl DeferredSource for EngramSource {
    type Sequence = TableSequence;
    type Rules = Arc<RequestTables>;

    const QUICK: bool = true;

    fn tracker(&mut self) -> &mut DeferredTracker<TableSequence> {
        &mut self.tracker
    }

    fn begin(&self, _: SeqId, choice: u32, prompt: &[TokenId], tables: &Arc<RequestTables>) -> TableSequence {
        TableSequence::new(prompt, choice, tables.clone())
    }

    fn report(&mut self, answer: TableAnswer, took: Duration) -> DeferredAnswer {
        self.figures.seconds.record(took.as_secs_f64());
        self.figures.lookups.increment(answer.lookups);
        self.figures.hits.increment(answer.hits);
        DeferredAnswer { rules: answer.rules, failed: Vec::new(), forced: Vec::new() }
    }
}

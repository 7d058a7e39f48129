//! Grammars as a deferred source: which tokens they allow in a step, with what the metrics hear of it.

use super::link::DeferredLink;
use super::source::{DeferredAnswer, DeferredSource};
use crate::metrics;
use crate::text::grammar::GrammarStart;
use chimere_engine::constraint::DeferredTracker;
use chimere_engine::constraint::grammar::{GrammarAnswer, GrammarSequence, GrammarTracker};
use chimere_engine::ids::{SeqId, TokenId};
use std::time::Duration;

/// The way to the actor that follows grammars.
pub type GrammarLink = DeferredLink<GrammarSource>;

/// The source that owns the tracker of grammars.
pub struct GrammarSource {
    tracker: GrammarTracker,
}

impl GrammarSource {
    /// `threads` threads share the rows of a step.
    pub fn new(threads: usize) -> Self {
        let tracker = GrammarTracker::new(threads).unwrap_or_else(|error| {
            tracing::warn!(%error, "no threads for grammars");
            GrammarTracker::default()
        });
        Self { tracker }
    }
}

impl DeferredSource for GrammarSource {
    type Sequence = GrammarSequence;
    type Rules = GrammarStart;

    // Some masks take longer than a step, and outputs that are forced are wanted before the next one is planned.
    const QUICK: bool = false;

    fn tracker(&mut self) -> &mut DeferredTracker<GrammarSequence> {
        &mut self.tracker
    }

    fn begin(&self, seq: SeqId, _: u32, _: &[TokenId], grammar: &GrammarStart) -> GrammarSequence {
        GrammarSequence::new(grammar.begin(self.tracker.lane(seq)))
    }

    fn report(&mut self, answer: GrammarAnswer, took: Duration) -> DeferredAnswer {
        ::metrics::histogram!(metrics::GRAMMAR_MASK_SECONDS).record(took.as_secs_f64());
        ::metrics::counter!(metrics::GRAMMAR_MASKS).increment(answer.rows);
        DeferredAnswer { rules: answer.rules, failed: answer.failed, forced: answer.forced }
    }
}

//! Grammars as a late source: which tokens they allow in a step, with what the metrics hear of it.

use super::late::{LateActor, LateAnswer, LateLink, LateSource};
use crate::clock::Clock;
use crate::metrics;
use crate::text::grammar::GrammarStart;
use chimere_engine::constraint::grammar::{GrammarSequence, GrammarTracker};
use chimere_engine::constraint::{Awaiting, Source};
use chimere_engine::ids::{SeqId, TokenId};

/// The actor that follows grammars.
pub type GrammarActor = LateActor<GrammarSource>;
/// Where it is found.
pub type GrammarLink = LateLink<GrammarSource>;

/// Owns the tracker of grammars.
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

impl LateSource for GrammarSource {
    const SOURCE: Source = Source::Grammar;
    // Some masks take longer than a step, and outputs that are forced are wanted before the next one is planned.
    const QUICK: bool = false;

    type Rules = GrammarStart;

    fn follow(&mut self, seq: SeqId, _: &[TokenId], grammar: &GrammarStart) {
        let grammar = grammar.begin(self.tracker.lane(seq));
        self.tracker.track(seq, GrammarSequence::new(grammar));
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
        let answer = self.tracker.answer()?;
        ::metrics::histogram!(metrics::GRAMMAR_MASK_SECONDS).record(clock.now().since(begin).0 as f64 / 1e6);
        ::metrics::counter!(metrics::GRAMMAR_MASKS).increment(answer.rows);
        Some(LateAnswer { rules: answer.rules, failed: answer.failed, forced: answer.forced })
    }
}

//! The sources of one sequence: those that the scheduler asks when it plans a row, and the names of those that the row
//! waits for.

use super::thinking::{LAG, Thinking, Thought, ThoughtWatch};
use super::{Effect, Rule, Source, Sources};
use crate::ids::TokenId;
use crate::sampling::Certainty;
use std::sync::Arc;

/// See the file's head. Owned by the sequence.
#[derive(Debug)]
pub(crate) struct SequenceRules {
    /// Before so many outputs, none of `end_ids` may come.
    min_tokens: u32,
    end_ids: Arc<[TokenId]>,
    /// Decides about its thinking, if the request bounds it.
    thinking: Option<ThoughtWatch>,
    waits_for: Sources,
}

impl SequenceRules {
    /// Of a sequence that has no output yet; its rows wait for the deferred sources `waits_for`.
    pub(crate) fn new(
        (min_tokens, end_ids): (u32, Arc<[TokenId]>),
        thinking: Option<Arc<Thinking>>,
        waits_for: Sources,
    ) -> Self {
        assert!(waits_for.iter().all(Source::is_deferred), "{waits_for:?} are asked when a row is planned");
        Self { min_tokens, end_ids, thinking: thinking.map(ThoughtWatch::new), waits_for }
    }

    /// The deferred sources that each row waits for.
    pub(crate) fn waits_for(&self) -> Sources {
        self.waits_for
    }

    /// What the other sources say about output `index`. Every output before `index - 1` must have been taken: see
    /// [`SequenceRules::reads_further`].
    pub(crate) fn of_output(&mut self, index: u32) -> Vec<Rule> {
        let mut rules = Vec::new();
        if index < self.min_tokens && !self.end_ids.is_empty() {
            rules.push(Rule { source: Source::MinTokens, effect: Effect::Forbid(self.end_ids.clone()) });
        }
        rules.extend(self.thinking.as_mut().and_then(|watch| watch.rule(index)));
        rules
    }

    /// Does what comes next depend on an output that is not committed, when `pending` are not? Two outputs lie between
    /// a decision and what it reads, so that never is so with two steps in flight.
    pub(crate) fn reads_further(&self, pending: u32) -> bool {
        pending >= LAG && self.thinking.as_ref().is_some_and(|watch| !watch.is_over())
    }

    /// May several outputs be asked for at once? Not where one may be decided by another of them: deferred sources
    /// read the token just before, and a thought's end the one before that.
    pub(crate) fn may_draft(&self) -> bool {
        self.waits_for.is_empty() && self.thinking.as_ref().is_none_or(ThoughtWatch::is_over)
    }

    /// Is nothing said about this output and all behind it, whatever comes before?
    pub(crate) fn are_silent_from(&self, index: u32) -> bool {
        let ends_come = index >= self.min_tokens || self.end_ids.is_empty();
        ends_come && self.may_draft()
    }

    /// May outputs be asked for together of which a grammar leaves no choice? Where nobody else who reads the token
    /// just before is waited for, and no thought's end may come instead.
    pub(crate) fn may_run(&self) -> bool {
        let grammar = Sources::only(Source::Grammar);
        self.waits_for == grammar && self.thinking.as_ref().is_none_or(ThoughtWatch::is_over)
    }

    /// Takes a committed output.
    pub(crate) fn take(&mut self, token: TokenId, certainty: Option<Certainty>) {
        if let Some(watch) = &mut self.thinking {
            watch.take(token, certainty);
        }
    }

    /// Begins again behind these outputs, which it has taken: rows behind them were planned in vain.
    pub(crate) fn rewind(&mut self, outputs: &[TokenId]) {
        if let Some(watch) = &mut self.thinking {
            watch.rewind(outputs);
        }
    }

    /// No more outputs come.
    pub(crate) fn finish(&mut self) {
        if let Some(watch) = &mut self.thinking {
            watch.finish();
        }
    }

    /// How thinking went, once, as soon as its end is known.
    pub(crate) fn thought(&mut self) -> Option<Thought> {
        self.thinking.as_mut().and_then(ThoughtWatch::report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(min_tokens: u32, tokens_max: Option<u32>) -> SequenceRules {
        let bounds = |tokens| {
            let (ends, closing) = (vec![8], vec![7, 8]);
            Arc::new(Thinking { opens: None, ends, closing, tokens_max: Some(tokens), adaptive: None })
        };
        SequenceRules::new((min_tokens, [3, 8].into()), tokens_max.map(bounds), Sources::only(Source::Tables))
    }

    fn names(rules: &[Rule]) -> Vec<Source> {
        rules.iter().map(|rule| rule.source).collect()
    }

    #[test]
    fn ends_are_forbidden_before_the_least_number_of_tokens_and_not_after() {
        let mut sequence = rules(2, None);
        let forbids = Rule { source: Source::MinTokens, effect: Effect::Forbid([3, 8].into()) };
        assert_eq!([0, 1, 2].map(|index| sequence.of_output(index)), [vec![forbids.clone()], vec![forbids], vec![]]);
        assert_eq!(sequence.waits_for(), Sources::only(Source::Tables));
    }

    #[test]
    fn several_sources_may_speak_about_one_output() {
        let mut sequence = rules(9, Some(1));
        assert_eq!(names(&sequence.of_output(0)), [Source::MinTokens]);
        assert_eq!(names(&sequence.of_output(1)), [Source::MinTokens, Source::Forced]);
        assert!(!sequence.reads_further(1) && sequence.reads_further(2));
        assert!(!rules(9, None).reads_further(5), "only thinking reads what was said");
    }

    #[test]
    fn several_outputs_are_asked_for_only_where_none_decides_about_another() {
        let free = |thinking| SequenceRules::new((9, [3].into()), thinking, Sources::NONE);
        assert!(free(None).may_draft() && !rules(0, None).may_draft());
        let thinking = Thinking { opens: Some(4), ends: vec![8], closing: vec![8], tokens_max: None, adaptive: None };
        let mut thinks = free(Some(Arc::new(thinking)));
        assert!(!thinks.may_draft());
        thinks.take(1, None);
        thinks.of_output(2);
        assert!(thinks.may_draft(), "it did not think");
    }
}

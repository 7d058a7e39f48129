//! Follows the sequences whose output keeps to a grammar, and says what each of them may say next. Data in, data out:
//! no clock, no channel, and no grammar either: what one is, and what it allows, is known to whoever hands a
//! [`Grammar`] in.
//!
//! What a grammar says of an output follows from the outputs before it alone, so neither a device's lag nor the batch
//! that a sequence shares can change a token. Steps are answered in the order in which they were launched.

use super::{AwaitedSteps, Awaiting, Effect, RowRule, Source, StepRules, helpers};
use crate::ids::{SeqId, TokenId};
use rayon::prelude::*;
use std::collections::HashMap;

/// Rows that one thread answers before another one could be there to help.
const ALONE: usize = 4;

/// What one sequence may say. An error ends the sequence's request, and its text is what the client is told.
pub trait Grammar: Send {
    /// What it says of the next output; `None` where anything may come.
    fn rule(&mut self) -> Result<Option<Effect>, String>;

    /// The next output has come.
    fn take(&mut self, token: TokenId) -> Result<(), String>;
}

/// All sequences under a grammar, and the steps that wait for what these say.
#[derive(Default)]
pub struct GrammarTracker {
    sequences: HashMap<SeqId, UnderGrammar>,
    waiting: AwaitedSteps,
    helpers: Option<rayon::ThreadPool>,
}

/// What a step waited for.
#[derive(Debug)]
pub struct GrammarAnswer {
    /// One rule a row that a grammar says something of.
    pub rules: StepRules,
    /// Sequences whose grammar cannot go on, and why. Their rows in the step are free, and must be told to nobody.
    pub failed: Vec<(SeqId, String)>,
    /// Rows that were asked for.
    pub rows: u64,
}

struct UnderGrammar {
    grammar: Box<dyn Grammar>,
    outputs: u32,
    /// Why it cannot go on, from the moment when that was found until it is told.
    failure: Option<String>,
    failed: bool,
}

impl GrammarTracker {
    /// `threads` threads share the rows of a step, the caller's among them; with fewer than two it does it all.
    pub fn new(threads: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        Ok(Self { helpers: helpers(threads, "grammar")?, ..Self::default() })
    }

    /// Follows the sequence `seq` from its first output on.
    pub fn follow(&mut self, seq: SeqId, grammar: Box<dyn Grammar>) {
        let followed = UnderGrammar { grammar, outputs: 0, failure: None, failed: false };
        let before = self.sequences.insert(seq, followed);
        debug_assert!(before.is_none(), "sequence {seq} is followed once");
    }

    /// Nobody asks for `seq` any more. Steps in flight that still have a row of it get no rule for that, and its token
    /// is dropped.
    pub fn forget(&mut self, seq: SeqId) {
        self.sequences.remove(&seq);
    }

    /// A step was launched whose sampler waits.
    pub fn launched(&mut self, step: Awaiting) {
        self.waiting.launched(step);
    }

    /// Tokens of a finished step; sequences that nobody follows are passed over.
    pub fn sampled(&mut self, tokens: &[(SeqId, TokenId)]) {
        for (seq, token) in tokens {
            if let Some(followed) = self.sequences.get_mut(seq) {
                followed.take(*token);
            }
        }
    }

    /// What the grammars say of the oldest step that waits, if all that they depend on is here.
    pub fn answer(&mut self) -> Option<GrammarAnswer> {
        let outputs = |seq: &SeqId| self.sequences.get(seq).map(|followed| followed.outputs);
        let Awaiting { step, rows } = self.waiting.next_ready(outputs)?;
        let mut asked: Vec<_> =
            rows.iter().filter_map(|(seq, output)| Some((*seq, *output, self.sequences.remove(seq)?))).collect();
        let effects = self.effects(&mut asked);
        let (mut rules, mut failed) = (Vec::new(), Vec::new());
        let rows = asked.len() as u64;
        for ((seq, output, mut followed), effect) in asked.into_iter().zip(effects) {
            rules.extend(effect.map(|effect| RowRule { seq, output, effect }));
            failed.extend(followed.failure.take().map(|why| (seq, why)));
            self.sequences.insert(seq, followed);
        }
        Some(GrammarAnswer { rules: StepRules { step, source: Source::Grammar, rows: rules }, failed, rows })
    }

    /// How many sequences are followed.
    pub fn len(&self) -> usize {
        self.sequences.len()
    }

    /// Whether no sequence is under a grammar.
    pub fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    fn effects(&self, asked: &mut [(SeqId, u32, UnderGrammar)]) -> Vec<Option<Effect>> {
        let effect = |(_, output, followed): &mut (SeqId, u32, UnderGrammar)| followed.effect(*output);
        match &self.helpers {
            Some(helpers) if asked.len() > ALONE => {
                helpers.install(|| asked.par_iter_mut().with_max_len(ALONE).map(effect).collect())
            }
            _ => asked.iter_mut().map(effect).collect(),
        }
    }
}

impl UnderGrammar {
    fn take(&mut self, token: TokenId) {
        self.outputs += 1;
        if !self.failed
            && let Err(why) = self.grammar.take(token)
        {
            self.fail(why);
        }
    }

    /// A row behind the sequence's last output is computed in vain, so nothing is said of it.
    fn effect(&mut self, output: u32) -> Option<Effect> {
        if self.failed || output < self.outputs {
            return None;
        }
        match self.grammar.rule() {
            Ok(effect) => effect,
            Err(why) => {
                self.fail(why);
                None
            }
        }
    }

    fn fail(&mut self, why: String) {
        self.failed = true;
        self.failure = Some(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::StepId;

    /// Allows the sum of what came, and fails when that is 13.
    struct Sum(TokenId);

    impl Grammar for Sum {
        fn rule(&mut self) -> Result<Option<Effect>, String> {
            match self.0 {
                13 => Err("thirteen".into()),
                0 => Ok(None),
                sum => Ok(Some(Effect::Force(sum))),
            }
        }

        fn take(&mut self, token: TokenId) -> Result<(), String> {
            self.0 += token;
            if token == 99 { Err("too much".into()) } else { Ok(()) }
        }
    }

    fn awaiting(step: u64, rows: &[(u64, u32)]) -> Awaiting {
        Awaiting { step: StepId(step), rows: rows.iter().map(|(seq, output)| (SeqId(*seq), *output)).collect() }
    }

    /// The step, its rules as forced tokens, and who cannot go on.
    type Said = (u64, Vec<(u64, TokenId)>, Vec<(u64, String)>);

    fn said(answer: Option<GrammarAnswer>) -> Said {
        let answer = answer.expect("an answer");
        let token = |effect: &Effect| if let Effect::Force(token) = effect { *token } else { panic!("{effect:?}") };
        let rules = answer.rules.rows.iter().map(|row| (row.seq.0, token(&row.effect))).collect();
        (answer.rules.step.0, rules, answer.failed.into_iter().map(|(seq, why)| (seq.0, why)).collect())
    }

    #[test]
    fn a_step_is_answered_when_all_its_rows_have_their_last_token_and_in_order() {
        for threads in [1, 3] {
            let mut tracker = GrammarTracker::new(threads).unwrap();
            (0..9).for_each(|seq| tracker.follow(SeqId(seq), Box::new(Sum(seq as u32))));
            let rows = |output| (0..9).map(|seq| (seq, output)).collect::<Vec<_>>();
            tracker.launched(awaiting(4, &rows(0)));
            tracker.launched(awaiting(5, &rows(1)));
            let all = |add: u32| (0..9).filter(|i| i + add > 0).map(|i| (u64::from(i), i + add)).collect::<Vec<_>>();
            assert_eq!(said(tracker.answer()), (4, all(0), vec![]));
            tracker.sampled(&(0..8).map(|seq| (SeqId(seq), 2)).collect::<Vec<_>>());
            assert!(tracker.answer().is_none(), "one token is missing");
            tracker.sampled(&[(SeqId(8), 2), (SeqId(77), 3)]);
            assert_eq!(said(tracker.answer()), (5, all(2), vec![]));
            assert!(tracker.answer().is_none() && tracker.len() == 9);
        }
    }

    #[test]
    fn a_grammar_that_cannot_go_on_is_told_once_and_the_others_go_on() {
        let mut tracker = GrammarTracker::default();
        tracker.follow(SeqId(1), Box::new(Sum(13)));
        tracker.follow(SeqId(2), Box::new(Sum(5)));
        let rows = |output| [(1, output), (2, output)];
        tracker.launched(awaiting(0, &rows(0)));
        tracker.launched(awaiting(1, &rows(1)));
        tracker.launched(awaiting(2, &rows(2)));
        assert_eq!(said(tracker.answer()), (0, vec![(2, 5)], vec![(1, "thirteen".into())]));
        tracker.sampled(&[(SeqId(1), 1), (SeqId(2), 99)]);
        assert_eq!(said(tracker.answer()), (1, vec![], vec![(2, "too much".into())]));
        tracker.forget(SeqId(1));
        tracker.forget(SeqId(2));
        assert_eq!(said(tracker.answer()), (2, vec![], vec![]), "who was forgotten keeps no step waiting");
        assert!(tracker.is_empty());
    }
}

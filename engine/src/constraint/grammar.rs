//! What a grammar says of each output of a sequence: the grammars' side of [`DeferredTracker`]. What a grammar is, and
//! what it allows, is known to whoever hands a [`Grammar`] in.
//!
//! Where a grammar leaves one text only, whoever plans is told how the tokenizer would write it ([`ForcedRun`]) and may
//! draft that. A model may write the text in other tokens, so each row is answered for the drafts that stand before it,
//! and only tokens that have come are kept.

use super::deferred::{Awaiting, DeferredTracker, RowRule, StepRules, Tracked, TrackedSequence};
use super::{Effect, Source};
use crate::ids::{SeqId, TokenId};
use std::collections::HashMap;
use std::mem;
use std::ops::Range;

/// Up to this number of sequences, one thread has answered before another one could be there to help.
const ALONE: usize = 4;

/// What one sequence may write. An error ends the sequence's request, and its text is what the client is told.
pub trait Grammar: Send {
    /// The rule about the next output; `None` where anything may come.
    fn rule(&mut self) -> Result<Option<Effect>, String>;

    /// The tokens with which the tokenizer writes the text that has to come next; the rule may allow other tokens for
    /// it. Empty where there is a choice, or where it is not worth while to know. Asked for behind the rule.
    fn forced(&mut self) -> Vec<TokenId> {
        Vec::new()
    }

    /// Goes on as if `token` had come, until [`Self::recall`]. `false`: it cannot come, or that cannot be known.
    fn suppose(&mut self, token: TokenId) -> bool;

    /// Forgets all tokens that were supposed.
    fn recall(&mut self);

    /// Takes the next output, which has come.
    fn take(&mut self, token: TokenId) -> Result<(), String>;
}

/// Outputs of a sequence that write the only text which its grammar allows there, as the tokenizer would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForcedRun {
    /// The sequence that has the outputs.
    pub seq: SeqId,
    /// The number of the first one, from 0.
    pub output: u32,
    /// The tokens of all of them, at least two.
    pub tokens: Vec<TokenId>,
}

/// All sequences under a grammar, and the steps that wait for their rules.
pub type GrammarTracker = DeferredTracker<GrammarSequence>;

/// The grammars' answer to a step.
#[derive(Debug)]
pub struct GrammarAnswer {
    /// One rule for each row that a grammar restricts.
    pub rules: StepRules,
    /// Sequences whose grammar cannot go on, and why. Their rows in the step are free, and their tokens must be told to
    /// nobody.
    pub failed: Vec<(SeqId, String)>,
    /// Runs that begin with the last output that the step awaits of a sequence.
    pub forced: Vec<ForcedRun>,
    /// Number of rows that grammars were asked for.
    pub rows: u64,
}

/// A sequence whose output keeps to a grammar.
pub struct GrammarSequence {
    grammar: Box<dyn Grammar>,
    /// Number of outputs that have come.
    outputs: u32,
    /// The last of these, which the grammar has not read.
    unread: Vec<TokenId>,
    /// The reason why the grammar cannot go on, from the moment when that was found until it is told.
    failure: Option<String>,
    failed: bool,
}

impl TrackedSequence for GrammarSequence {
    const SOURCE: Source = Source::Grammar;

    type Answer = GrammarAnswer;

    fn outputs(&self) -> u32 {
        self.outputs
    }

    fn record(&mut self, token: TokenId) {
        self.outputs += 1;
        self.unread.push(token);
    }

    fn answer(Awaiting { step, rows, drafts }: Awaiting, tracked: &mut Tracked<Self>) -> GrammarAnswer {
        let asked = |(seq, rows)| Some((seq, rows, tracked.sequences.remove(&seq)?));
        let mut asked: Vec<_> = by_sequence(&rows).filter_map(asked).collect();
        let said = ask(tracked, &mut asked, &drafts);
        let rows = asked.iter().map(|(_, rows, _)| u64::from(rows.end - rows.start)).sum();
        let (mut rules, mut failed, mut forced) = (Vec::new(), Vec::new(), Vec::new());
        for ((seq, rows, mut sequence), said) in asked.into_iter().zip(said) {
            rules.extend(said.effects.into_iter().map(|(output, effect)| RowRule { seq, output, effect }));
            failed.extend(sequence.failure.take().map(|why| (seq, why)));
            if said.forced.len() > 1 {
                forced.push(ForcedRun { seq, output: rows.end - 1, tokens: said.forced });
            }
            tracked.sequences.insert(seq, sequence);
        }
        GrammarAnswer { rules: StepRules { step, source: Self::SOURCE, rows: rules }, failed, forced, rows }
    }
}

/// Asks the grammars of the sequences, lane by lane where that is worth waking other threads for.
fn ask(
    tracked: &Tracked<GrammarSequence>,
    asked: &mut [GrammarQuery],
    drafts: &HashMap<SeqId, Vec<TokenId>>,
) -> Vec<SequenceAnswer> {
    let say = |(seq, rows, sequence): &mut GrammarQuery| {
        sequence.say(rows.clone(), drafts.get(seq).map(Vec::as_slice).unwrap_or_default())
    };
    let Some(helpers) = tracked.helpers.as_ref().filter(|_| asked.len() > ALONE) else {
        return asked.iter_mut().map(say).collect();
    };
    let mut said: Vec<SequenceAnswer> = asked.iter().map(|_| SequenceAnswer::default()).collect();
    let mut lanes: Vec<Vec<(&mut GrammarQuery, &mut SequenceAnswer)>> =
        (0..tracked.lanes()).map(|_| Vec::new()).collect();
    asked.iter_mut().zip(&mut said).for_each(|pair| lanes[tracked.lane(pair.0.0)].push(pair));
    let say_all =
        |lane: Vec<(&mut GrammarQuery, &mut SequenceAnswer)>| lane.into_iter().for_each(|(of, said)| *said = say(of));
    helpers.in_place_scope(|scope| {
        let mut lanes = lanes.into_iter().filter(|lane| !lane.is_empty());
        let own = lanes.next();
        lanes.for_each(|lane| scope.spawn(move |_| say_all(lane)));
        own.into_iter().for_each(say_all);
    });
    said
}

/// A sequence with its id and the outputs that a step awaits of it.
type GrammarQuery = (SeqId, Range<u32>, GrammarSequence);

/// What a grammar says about the rows that one sequence has in a step.
#[derive(Default)]
struct SequenceAnswer {
    /// Each effect with the number of its output.
    effects: Vec<(u32, Effect)>,
    /// The run that begins with the last row's output.
    forced: Vec<TokenId>,
}

/// The rows of a step by sequence: those of one stand together, in the order of their outputs.
fn by_sequence(rows: &[(SeqId, u32)]) -> impl Iterator<Item = (SeqId, Range<u32>)> {
    let same = |a: &(SeqId, u32), b: &(SeqId, u32)| a.0 == b.0 && a.1 + 1 == b.1;
    rows.chunk_by(same).map(|rows| (rows[0].0, rows[0].1..rows[0].1 + rows.len() as u32))
}

impl GrammarSequence {
    /// A sequence without outputs, which this grammar restricts from the first one on.
    pub fn new(grammar: Box<dyn Grammar>) -> Self {
        Self { grammar, outputs: 0, unread: Vec::new(), failure: None, failed: false }
    }

    /// Lets the grammar read the outputs that have come, as far as it can go on.
    fn read(&mut self) {
        for token in mem::take(&mut self.unread) {
            if !self.failed
                && let Err(why) = self.grammar.take(token)
            {
                self.fail(why);
            }
        }
    }

    /// Says the rules of these outputs, where `drafts` stand before all but the first. Nothing is said about an output
    /// that cannot come and is computed in vain: one before the sequence's last one, or behind a draft that the grammar
    /// does not allow.
    fn say(&mut self, rows: Range<u32>, drafts: &[TokenId]) -> SequenceAnswer {
        self.read();
        let mut said = SequenceAnswer::default();
        let drafts = drafts.iter().copied().map(Some).chain([None]);
        for (output, draft) in rows.clone().zip(drafts) {
            if self.failed || output < self.outputs {
                break;
            }
            match self.grammar.rule() {
                Ok(effect) => said.effects.extend(effect.map(|effect| (output, effect))),
                // A draft is only supposed: the grammar fails again here if the draft comes.
                Err(_) if output > self.outputs => break,
                Err(why) => self.fail(why),
            }
            match draft {
                _ if self.failed => {}
                Some(token) if self.grammar.suppose(token) => {}
                Some(_) => break,
                None => said.forced = self.grammar.forced(),
            }
        }
        self.grammar.recall();
        said
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

        fn suppose(&mut self, _: TokenId) -> bool {
            false
        }

        fn recall(&mut self) {}

        fn take(&mut self, token: TokenId) -> Result<(), String> {
            self.0 += token;
            if token == 99 { Err("too much".into()) } else { Ok(()) }
        }
    }

    fn awaiting(step: u64, rows: &[(u64, u32)]) -> Awaiting {
        let rows = rows.iter().map(|(seq, output)| (SeqId(*seq), *output)).collect();
        Awaiting { step: StepId(step), rows, drafts: HashMap::new() }
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
            (0..9).for_each(|seq| tracker.track(SeqId(seq), GrammarSequence::new(Box::new(Sum(seq as u32)))));
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

    /// Allows the number behind the one that came last, and is sure of as many as come before the next multiple of 4.
    /// At 11 it cannot go on.
    #[derive(Default)]
    struct Counts {
        came: TokenId,
        supposed: u32,
    }

    impl Grammar for Counts {
        fn rule(&mut self) -> Result<Option<Effect>, String> {
            let next = self.came + self.supposed + 1;
            if next == 12 { Err("eleven".into()) } else { Ok(Some(Effect::Force(next))) }
        }

        fn forced(&mut self) -> Vec<TokenId> {
            let next = self.came + self.supposed + 1;
            (next..next.next_multiple_of(4)).collect()
        }

        fn suppose(&mut self, token: TokenId) -> bool {
            let may_come = token == self.came + self.supposed + 1;
            self.supposed += u32::from(may_come);
            may_come
        }

        fn recall(&mut self) {
            self.supposed = 0;
        }

        fn take(&mut self, token: TokenId) -> Result<(), String> {
            assert_eq!(self.supposed, 0, "what was supposed is forgotten");
            self.came = token;
            Ok(())
        }
    }

    /// The rows of a sequence from `first` on: one, and one behind each draft.
    fn drafted(step: u64, first: u32, drafts: &[TokenId]) -> Awaiting {
        let rows: Vec<_> = (first..=first + drafts.len() as u32).map(|output| (3, output)).collect();
        Awaiting { drafts: HashMap::from([(SeqId(3), drafts.to_vec())]), ..awaiting(step, &rows) }
    }

    #[test]
    fn rows_behind_drafts_wait_for_no_token_and_only_what_came_is_kept() {
        let mut tracker = GrammarTracker::default();
        tracker.track(SeqId(3), GrammarSequence::new(Box::new(Counts::default())));
        tracker.launched(awaiting(0, &[(3, 0)]));
        let answer = tracker.answer().unwrap();
        assert_eq!(answer.forced, [ForcedRun { seq: SeqId(3), output: 0, tokens: vec![1, 2, 3] }]);
        tracker.launched(drafted(1, 1, &[2, 3]));
        assert!(tracker.answer().is_none(), "the first of them waits");
        tracker.sampled(&[(SeqId(3), 1)]);
        let answer = tracker.answer().unwrap();
        assert_eq!((answer.rows, &answer.forced[..]), (3, &[][..]), "from 4 on there is no run");
        assert_eq!(said(Some(answer)), (1, vec![(3, 2), (3, 3), (3, 4)], vec![]));
        // The first draft was right, and in the place of the second another token came, with none behind it.
        tracker.sampled(&[(SeqId(3), 2), (SeqId(3), 4)]);
        tracker.launched(awaiting(2, &[(3, 3)]));
        let answer = tracker.answer().unwrap();
        assert_eq!(answer.forced, [ForcedRun { seq: SeqId(3), output: 3, tokens: vec![5, 6, 7] }]);
        assert_eq!(said(Some(answer)), (2, vec![(3, 5)], vec![]));
    }

    #[test]
    fn nothing_is_said_of_what_stands_behind_a_draft_that_cannot_come() {
        let mut tracker = GrammarTracker::default();
        tracker.track(SeqId(3), GrammarSequence::new(Box::new(Counts { came: 4, supposed: 0 })));
        tracker.launched(drafted(0, 0, &[5, 8, 9]));
        assert_eq!(said(tracker.answer()), (0, vec![(3, 5), (3, 6)], vec![]));
        tracker.sampled(&[(SeqId(3), 5), (SeqId(3), 6)]);
        tracker.launched(awaiting(1, &[(3, 2)]));
        assert_eq!(said(tracker.answer()), (1, vec![(3, 7)], vec![]));
    }

    #[test]
    fn a_sequence_ends_at_what_came_and_not_at_what_was_drafted() {
        let mut tracker = GrammarTracker::default();
        tracker.track(SeqId(3), GrammarSequence::new(Box::new(Counts { came: 9, supposed: 0 })));
        tracker.launched(drafted(0, 0, &[10, 11]));
        assert_eq!(said(tracker.answer()), (0, vec![(3, 10), (3, 11)], vec![]));
        tracker.sampled(&[(SeqId(3), 10), (SeqId(3), 11)]);
        tracker.launched(awaiting(1, &[(3, 2)]));
        assert_eq!(said(tracker.answer()), (1, vec![], vec![(3, "eleven".to_owned())]));
    }

    #[test]
    fn a_grammar_that_cannot_go_on_is_told_once_and_the_others_go_on() {
        let mut tracker = GrammarTracker::default();
        tracker.track(SeqId(1), GrammarSequence::new(Box::new(Sum(13))));
        tracker.track(SeqId(2), GrammarSequence::new(Box::new(Sum(5))));
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

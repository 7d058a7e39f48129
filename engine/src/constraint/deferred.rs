//! Deferred rules: those of a source that reads the token just before an output, which is still on the device when the
//! output's step is planned. Data in, data out: no clock, no channel.
//!
//! A [`DeferredTracker`] keeps the sequences that use one source and the launched steps that wait for it. What the
//! source says about an output follows from the tokens before that output alone, so neither a device's lag nor the
//! batch that a sequence shares can change a token. Steps are answered in the order of their launches.

use super::{Effect, Source};
use crate::hasher::ByNumber;
use crate::ids::{SeqId, StepId, TokenId};
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use std::collections::{HashMap, VecDeque};

/// What one deferred source knows of one sequence.
pub trait TrackedSequence: Sized {
    /// The source whose rules the sequence is tracked for.
    const SOURCE: Source;

    /// The answer to one step: its rules, and what else the source reports with them.
    type Answer;

    /// Number of outputs that have been recorded.
    fn outputs(&self) -> u32;

    /// Records the next output. All tokens of a step are recorded before [`TrackedSequence::settle`] is called.
    fn record(&mut self, token: TokenId);

    /// Ends the recording of a step's tokens. Memory that `record` asked for is on its way for all sequences by then.
    fn settle(&mut self) {}

    /// Answers a step whose rows have all the tokens that they depend on.
    fn answer(step: Awaiting, tracked: &mut Tracked<Self>) -> Self::Answer;
}

/// The sequences of one source, and the threads that share the work of answering for them.
pub struct Tracked<T> {
    /// The sequences that are tracked now.
    pub(crate) sequences: ByNumber<SeqId, T>,
    /// The threads beside the caller's, if there are any.
    pub(crate) helpers: Option<ThreadPool>,
}

/// All sequences that use one deferred source, and the steps that wait for its rules.
pub struct DeferredTracker<T> {
    tracked: Tracked<T>,
    waiting: AwaitedSteps,
}

impl<T> Default for DeferredTracker<T> {
    fn default() -> Self {
        let tracked = Tracked { sequences: ByNumber::default(), helpers: None };
        Self { tracked, waiting: AwaitedSteps::default() }
    }
}

impl<T: TrackedSequence> DeferredTracker<T> {
    /// `threads` threads share the work of a step, the caller's among them; with fewer than two the caller does it all.
    pub fn new(threads: usize) -> Result<Self, ThreadPoolBuildError> {
        let mut tracker = Self::default();
        tracker.tracked.helpers = helpers(threads, T::SOURCE.name())?;
        Ok(tracker)
    }

    /// Tracks the sequence `seq` from now on, which has its prompt and no output.
    pub fn track(&mut self, seq: SeqId, sequence: T) {
        self.track_behind(seq, sequence, &[]);
    }

    /// Tracks the sequence `seq` from now on, which has had these outputs already where another tracker knew it.
    pub fn track_behind(&mut self, seq: SeqId, mut sequence: T, outputs: &[TokenId]) {
        for token in outputs {
            sequence.record(*token);
            sequence.settle();
        }
        let before = self.tracked.sequences.insert(seq, sequence);
        assert!(before.is_none(), "sequence {seq} is tracked once");
    }

    /// Ends the tracking of `seq`. Steps in flight that still have a row of it get no rule for that row, and its token
    /// is dropped.
    pub fn forget(&mut self, seq: SeqId) {
        self.tracked.sequences.remove(&seq);
    }

    /// Notes a launched step whose sampler waits for the source.
    pub fn launched(&mut self, step: Awaiting) {
        self.waiting.launched(step);
    }

    /// Records the tokens of a finished step; sequences that are not tracked are passed over.
    pub fn sampled(&mut self, tokens: &[(SeqId, TokenId)]) {
        let sequences = &mut self.tracked.sequences;
        for (seq, token) in tokens {
            if let Some(sequence) = sequences.get_mut(seq) {
                sequence.record(*token);
            }
        }
        for (seq, _) in tokens {
            if let Some(sequence) = sequences.get_mut(seq) {
                sequence.settle();
            }
        }
    }

    /// Answers the oldest step that waits, if all tokens that its rules depend on have been recorded.
    pub fn answer(&mut self) -> Option<T::Answer> {
        let outputs = |seq: &SeqId| self.tracked.sequences.get(seq).map(T::outputs);
        let step = self.waiting.next_ready(outputs)?;
        Some(T::answer(step, &mut self.tracked))
    }

    /// The lane of a sequence: see [`Tracked::lane`].
    pub fn lane(&self, seq: SeqId) -> usize {
        self.tracked.lane(seq)
    }

    /// Number of sequences that are tracked.
    pub fn len(&self) -> usize {
        self.tracked.sequences.len()
    }

    /// Whether no sequence is tracked.
    pub fn is_empty(&self) -> bool {
        self.tracked.sequences.is_empty()
    }
}

impl<T> Tracked<T> {
    /// The lane of a sequence, for sources that divide their sequences: one thread answers for all sequences of a lane,
    /// one after another, so they may share what it works out.
    pub(super) fn lane(&self, seq: SeqId) -> usize {
        (seq.0 % self.lanes() as u64) as usize
    }

    /// Number of lanes: one for each thread.
    pub(super) fn lanes(&self) -> usize {
        self.helpers.as_ref().map_or(1, |helpers| helpers.current_num_threads() + 1)
    }
}

/// Threads that share a source's work with the caller's: `threads` in all. With fewer than two there are none.
fn helpers(threads: usize, name: &'static str) -> Result<Option<ThreadPool>, ThreadPoolBuildError> {
    let pool = |n| ThreadPoolBuilder::new().num_threads(n).thread_name(move |i| format!("{name}-{}", i + 1)).build();
    (threads > 1).then(|| pool(threads - 1)).transpose()
}

/// A launched step with rows that wait for one deferred source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaiting {
    /// The step that waits for the answers.
    pub step: StepId,
    /// The sequences that it samples for, each with the number of the output that is awaited, from 0. Several of one
    /// sequence stand together in their order.
    pub rows: Vec<(SeqId, u32)>,
    /// For each sequence with several rows, the drafts before each row but the first. Other tokens may come instead.
    pub drafts: HashMap<SeqId, Vec<TokenId>>,
}

/// Launched steps that wait for one deferred source, in the order of their launches.
#[derive(Debug, Default)]
struct AwaitedSteps(VecDeque<Awaiting>);

impl AwaitedSteps {
    /// Notes a launched step whose sampler waits.
    fn launched(&mut self, step: Awaiting) {
        assert!(self.0.back().is_none_or(|last| last.step < step.step), "steps are launched in order");
        self.0.push_back(step);
    }

    /// Takes the oldest step, if all its rows have the tokens that they depend on. `outputs` gives the number of a
    /// sequence's recorded outputs, and `None` for a sequence that is not tracked, whose rows wait for nothing.
    fn next_ready(&mut self, outputs: impl Fn(&SeqId) -> Option<u32>) -> Option<Awaiting> {
        let ready = |(seq, output): &(SeqId, u32)| outputs(seq).is_none_or(|had| had >= *output);
        // Of several rows of a sequence only the first waits for a token: drafts stand before the others.
        let firsts = |step: &Awaiting| step.rows.chunk_by(|a, b| a.0 == b.0).all(|rows| ready(&rows[0]));
        self.0.pop_front_if(|step| firsts(step))
    }
}

/// All rules of one deferred source for one step. An empty list frees the rows too.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRules {
    /// The step whose rows wait for them.
    pub step: StepId,
    /// The source that says them.
    pub source: Source,
    /// The rules in any order; a row may have several or none.
    pub rows: Vec<RowRule>,
}

impl StepRules {
    /// The answer of a source that says nothing about any row.
    pub fn silent(step: StepId, source: Source) -> Self {
        Self { step, source, rows: Vec::new() }
    }
}

/// A rule about one sampled row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowRule {
    /// The sequence that gets the token.
    pub seq: SeqId,
    /// The number of tokens that the sequence has before this one. It tells apart the rows of a sequence that has
    /// several in a step.
    pub output: u32,
    /// The rule's effect on the row.
    pub effect: Effect,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts its outputs, and how many of them have been settled.
    #[derive(Default)]
    struct Counter {
        outputs: u32,
        settled: u32,
    }

    impl TrackedSequence for Counter {
        const SOURCE: Source = Source::Tables;

        type Answer = (StepId, Vec<(SeqId, u32)>);

        fn outputs(&self) -> u32 {
            self.outputs
        }

        fn record(&mut self, _: TokenId) {
            self.outputs += 1;
        }

        fn settle(&mut self) {
            self.settled = self.outputs;
        }

        fn answer(step: Awaiting, tracked: &mut Tracked<Self>) -> Self::Answer {
            let settled = |(seq, _): &(SeqId, u32)| Some((*seq, tracked.sequences.get(seq)?.settled));
            (step.step, step.rows.iter().filter_map(settled).collect())
        }
    }

    fn awaiting(step: u64, rows: &[(u64, u32)]) -> Awaiting {
        let rows = rows.iter().map(|(seq, output)| (SeqId(*seq), *output)).collect();
        Awaiting { step: StepId(step), rows, drafts: HashMap::new() }
    }

    #[test]
    fn a_step_is_answered_behind_those_before_it_and_with_settled_tokens() {
        let mut tracker = DeferredTracker::<Counter>::default();
        [1, 2].into_iter().for_each(|seq| tracker.track(SeqId(seq), Counter::default()));
        tracker.launched(awaiting(0, &[(1, 1)]));
        tracker.launched(awaiting(1, &[(2, 0)]));
        assert!(tracker.answer().is_none(), "the second step could be answered, but not before the first");
        tracker.sampled(&[(SeqId(1), 5), (SeqId(9), 5), (SeqId(1), 5)]);
        assert_eq!(tracker.answer(), Some((StepId(0), vec![(SeqId(1), 2)])));
        assert_eq!(tracker.answer(), Some((StepId(1), vec![(SeqId(2), 0)])));
        assert!(tracker.answer().is_none());
    }

    #[test]
    fn a_sequence_that_is_forgotten_keeps_no_step_waiting() {
        let mut tracker = DeferredTracker::<Counter>::default();
        tracker.track(SeqId(1), Counter::default());
        tracker.launched(awaiting(0, &[(1, 3)]));
        assert!(tracker.answer().is_none() && tracker.len() == 1);
        tracker.forget(SeqId(1));
        assert_eq!(tracker.answer(), Some((StepId(0), vec![])));
        assert!(tracker.is_empty());
    }

    #[test]
    fn a_sequence_that_comes_with_outputs_waits_for_none_of_them() {
        let mut tracker = DeferredTracker::<Counter>::default();
        tracker.track_behind(SeqId(1), Counter::default(), &[5, 6, 7]);
        tracker.launched(awaiting(0, &[(1, 3)]));
        tracker.launched(awaiting(1, &[(1, 4)]));
        assert_eq!(tracker.answer(), Some((StepId(0), vec![(SeqId(1), 3)])));
        assert!(tracker.answer().is_none());
        tracker.sampled(&[(SeqId(1), 8)]);
        assert_eq!(tracker.answer(), Some((StepId(1), vec![(SeqId(1), 4)])));
    }

    #[test]
    fn of_several_rows_of_a_sequence_the_first_alone_waits() {
        let mut tracker = DeferredTracker::<Counter>::default();
        tracker.track(SeqId(1), Counter::default());
        tracker.launched(awaiting(0, &[(1, 1), (1, 2), (1, 3)]));
        assert!(tracker.answer().is_none());
        tracker.sampled(&[(SeqId(1), 5)]);
        assert!(tracker.answer().is_some());
    }

    #[test]
    fn sequences_are_divided_among_the_threads() {
        let tracker = DeferredTracker::<Counter>::new(3).unwrap();
        assert_eq!([0, 1, 2, 3].map(|seq| tracker.lane(SeqId(seq))), [0, 1, 2, 0]);
        assert_eq!(DeferredTracker::<Counter>::new(1).unwrap().lane(SeqId(7)), 0);
    }
}

//! Rules on their way: what a source says about the rows that wait for it, once it has read the token just before them.

use super::{Effect, Source};
use crate::ids::{SeqId, StepId, TokenId};
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use std::collections::{HashMap, VecDeque};

/// A launched step with rows that wait for one late source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaiting {
    /// The step that waits for the answers.
    pub step: StepId,
    /// The sequences that it samples for, each with the number of the output that is awaited, from 0. Several of one
    /// sequence stand together in their order.
    pub rows: Vec<(SeqId, u32)>,
    /// Of sequences with several rows what stands before each but the first: drafts, which may not be what comes.
    pub drafts: HashMap<SeqId, Vec<TokenId>>,
}

/// Launched steps that wait for one late source, oldest first: they are answered in the order in which they were
/// launched.
#[derive(Debug, Default)]
pub(crate) struct AwaitedSteps(VecDeque<Awaiting>);

impl AwaitedSteps {
    /// A step was launched whose sampler waits.
    pub(crate) fn launched(&mut self, step: Awaiting) {
        assert!(self.0.back().is_none_or(|last| last.step < step.step), "steps are launched in order");
        self.0.push_back(step);
    }

    /// Takes the oldest step, if all its rows have what they depend on. `outputs`: how many a sequence has had; `None`
    /// for one that nobody follows, whose rows wait for nothing.
    pub(crate) fn next_ready(&mut self, outputs: impl Fn(&SeqId) -> Option<u32>) -> Option<Awaiting> {
        let ready = |(seq, output): &(SeqId, u32)| outputs(seq).is_none_or(|had| had >= *output);
        // Of several rows of a sequence the first alone waits: before the others stand drafts.
        let firsts = |step: &Awaiting| step.rows.chunk_by(|a, b| a.0 == b.0).all(|rows| ready(&rows[0]));
        self.0.pop_front_if(|step| firsts(step))
    }
}

/// Threads that share a late source's work with the caller's: `threads` in all. With fewer than two there are none.
pub(crate) fn helpers(threads: usize, name: &'static str) -> Result<Option<ThreadPool>, ThreadPoolBuildError> {
    let pool = |n| ThreadPoolBuilder::new().num_threads(n).thread_name(move |i| format!("{name}-{}", i + 1)).build();
    (threads > 1).then(|| pool(threads - 1)).transpose()
}

/// What one late source says about the rows of one step: all that it has to say, so an empty list frees the rows too.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRules {
    /// The step whose rows wait for them.
    pub step: StepId,
    /// The source that says them.
    pub source: Source,
    /// In any order; a row may have several entries or none.
    pub rows: Vec<RowRule>,
}

impl StepRules {
    /// The source says nothing about any row.
    pub fn silent(step: StepId, source: Source) -> Self {
        Self { step, source, rows: Vec::new() }
    }
}

/// A rule about one sampled row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowRule {
    /// The sequence that gets the token.
    pub seq: SeqId,
    /// How many tokens it has before this one: with it a row is named also where a sequence has several in a step.
    pub output: u32,
    /// What the rule does.
    pub effect: Effect,
}

//! Follows the sequences that use tables, and says what the tables change in each step. Data in, data out: no clock, no
//! channel.
//!
//! The rules for an output follow from the ids before it alone: those of the prompt and of the outputs up to the one
//! just before. A step waits until the outputs of all its rows have come that far, however far ahead of them it was
//! launched; so neither the lag of a device nor the batch that a sequence shares can change a token. Steps are answered
//! in the order in which they were launched.

use super::context::Context;
use super::hasher::ByNumber;
use super::repeats::{RUN_TOKENS, Repeats};
use super::request_tables::{Ask, RequestTables};
use super::share::answer_together;
use crate::constraint::{RowRule, Source, StepRules};
use crate::ids::{SeqId, StepId, TokenId};
use crate::step::StepPlan;
use std::collections::VecDeque;
use std::sync::Arc;

/// Questions that one thread answers before another one could be there to help.
const ALONE: usize = 16;

/// All sequences that use tables, and the steps that wait for what these say.
#[derive(Default)]
pub struct Tracker {
    sequences: ByNumber<SeqId, Followed>,
    waiting: VecDeque<Awaiting>,
    helpers: Option<rayon::ThreadPool>,
}

/// A launched step with rows that wait for tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaiting {
    /// Which step.
    pub step: StepId,
    /// The sequences that it samples for, each with the number of the output that is awaited, from 0.
    pub rows: Vec<(SeqId, u32)>,
}

impl Awaiting {
    /// Of a plan; `None` if no row waits for tables.
    pub fn of(plan: &StepPlan) -> Option<Self> {
        let awaiting = plan.sample_rows().filter(|row| row.waits_for.contains(Source::Tables));
        let rows: Vec<_> = awaiting.map(|row| (row.seq, row.output_index)).collect();
        (!rows.is_empty()).then_some(Self { step: plan.id, rows })
    }
}

/// What a step waited for.
#[derive(Debug)]
pub struct Answered {
    /// One rule a row that tables were asked for; the others stay as they are.
    pub rules: StepRules,
    /// Rows that tables were asked for.
    pub lookups: u64,
    /// Of these, the ones where a table knew what might follow.
    pub hits: u64,
}

/// One sequence.
struct Followed {
    request: Arc<RequestTables>,
    context: Context,
    outputs: u32,
    thinking: bool,
    /// The last output ended the sequence.
    ended: bool,
    repeats: Repeats,
}

impl Tracker {
    /// `threads` threads share large batches, the caller's among them; with fewer than two it does it all.
    pub fn new(threads: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        let name = |i| format!("engram-{}", i + 1);
        let pool = |n| rayon::ThreadPoolBuilder::new().num_threads(n).thread_name(name).build();
        let helpers = (threads > 1).then(|| pool(threads - 1)).transpose()?;
        Ok(Self { helpers, ..Self::default() })
    }

    /// Follows the sequence `seq` from its prompt on.
    pub fn follow(&mut self, seq: SeqId, prompt: &[TokenId], request: Arc<RequestTables>) {
        let thinking = request.silent_in.is_some_and(|t| t.opened);
        let context = Context::new(prompt);
        let repeats = Repeats::default();
        let before = self.sequences.insert(seq, Followed { request, context, outputs: 0, thinking, ended: false, repeats });
        debug_assert!(before.is_none(), "sequence {seq} is followed once");
    }

    /// Nobody asks for `seq` any more. Steps in flight that still have a row of it get no rule for that, and its token
    /// is dropped.
    pub fn forget(&mut self, seq: SeqId) {
        self.sequences.remove(&seq);
    }

    /// A step was launched whose sampler waits.
    pub fn launched(&mut self, step: Awaiting) {
        debug_assert!(self.waiting.back().is_none_or(|last| last.step < step.step), "steps are launched in order");
        self.waiting.push_back(step);
    }

    /// Tokens of a finished step; sequences that nobody follows are passed over.
    pub fn sampled(&mut self, tokens: &[(SeqId, TokenId)]) {
        for (seq, token) in tokens {
            if let Some(followed) = self.sequences.get_mut(seq) {
                followed.push(*token);
            }
        }
        // What they announced to their repeats is on its way from memory for all of them by now.
        for (seq, _) in tokens {
            if let Some(followed) = self.sequences.get_mut(seq) {
                followed.repeats.take();
            }
        }
    }

    /// What the tables say of the oldest step that waits, if all that they depend on is here.
    pub fn answer(&mut self) -> Option<Answered> {
        let first = self.waiting.front()?;
        let ready = |(seq, output): &(SeqId, u32)| self.sequences.get(seq).is_none_or(|f| f.outputs >= *output);
        if !first.rows.iter().all(ready) {
            return None;
        }
        let Awaiting { step, rows } = self.waiting.pop_front()?;
        let asks: Vec<Ask> = rows.iter().filter_map(|(seq, output)| self.sequences.get(seq)?.ask(*seq, *output)).collect();
        let lookups = asks.len() as u64;
        let (rows, hits): (Vec<_>, Vec<_>) = self.answers(asks).into_iter().unzip();
        let hits = hits.into_iter().filter(|hit| *hit).count() as u64;
        Some(Answered { rules: StepRules { step, source: Source::Tables, rows }, lookups, hits })
    }

    /// How many sequences are followed.
    pub fn len(&self) -> usize {
        self.sequences.len()
    }

    /// Nobody uses tables.
    pub fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    fn answers(&self, asks: Vec<Ask>) -> Vec<(RowRule, bool)> {
        match &self.helpers {
            Some(helpers) if asks.len() > ALONE => answer_together(asks, helpers),
            _ => Ask::answer_all(&asks),
        }
    }
}

impl Followed {
    fn push(&mut self, token: TokenId) {
        if let Some(t) = self.request.silent_in {
            let opens = self.outputs == 0 && token == t.open;
            self.thinking = (self.thinking || opens) && token != t.close;
        }
        self.context.push(token);
        self.outputs += 1;
        self.ended = self.request.end_ids.contains(&token);
        // The prompt is no output: to say what it says is not to go round in circles.
        let run = self.context.hash(RUN_TOKENS).filter(|_| self.outputs as usize >= RUN_TOKENS);
        run.into_iter().for_each(|run| self.repeats.announce(run));
    }

    fn ask(&self, seq: SeqId, output: u32) -> Option<Ask> {
        let silent = self.thinking || self.ended || self.repeats.again();
        (!silent).then(|| Ask { seq, output, context: self.context, request: self.request.clone() })
    }
}

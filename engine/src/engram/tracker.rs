//! Follows the sequences that use tables, and says what the tables change in each step. Data in, data out: no clock, no
//! channel.
//!
//! The rules for an output follow from the ids before it alone: those of the prompt and of the outputs up to the one
//! just before. A step waits until the outputs of all its rows have come that far, however far ahead of them it was
//! launched; so neither the lag of a device nor the batch that a sequence shares can change a token. Steps are answered
//! in the order in which they were launched.

use super::hasher::ByNumber;
use super::matching::{RUN_TOKENS, Recent, Repeats};
use super::request_tables::{RequestTables, TableQuestion};
use super::share::answer_together;
use crate::constraint::{AwaitedSteps, Awaiting, RowRule, Source, StepRules, helpers};
use crate::ids::{SeqId, TokenId};
use std::sync::Arc;

/// Questions that one thread answers as soon as it would with others: it asks memory for all of them at once, and
/// waking another thread takes about half of that time.
const ALONE: usize = if cfg!(test) { 16 } else { 64 };

/// All sequences that use tables, and the steps that wait for what these say.
#[derive(Default)]
pub struct Tracker {
    sequences: ByNumber<SeqId, Followed>,
    waiting: AwaitedSteps,
    helpers: Option<rayon::ThreadPool>,
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

/// A sequence whose outputs are followed.
struct Followed {
    request: Arc<RequestTables>,
    /// Number of the sequence among its request's.
    choice: u32,
    recent: Recent,
    outputs: u32,
    thinking: bool,
    /// The last output ended the sequence.
    ended: bool,
    repeats: Repeats,
}

impl Tracker {
    /// `threads` threads share large batches, the caller's among them; with fewer than two it does it all.
    pub fn new(threads: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        Ok(Self { helpers: helpers(threads, "engram")?, ..Self::default() })
    }

    /// Follows the sequence `seq` from its prompt on.
    pub fn follow(&mut self, seq: SeqId, prompt: &[TokenId], request: Arc<RequestTables>) {
        let thinking = request.silent_in.is_some_and(|t| t.opened);
        let (choice, recent, repeats) = (request.tally.next_choice(), Recent::new(prompt), Repeats::default());
        let followed = Followed { request, choice, recent, outputs: 0, thinking, ended: false, repeats };
        let before = self.sequences.insert(seq, followed);
        assert!(before.is_none(), "sequence {seq} is followed once");
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
        let outputs = |seq: &SeqId| self.sequences.get(seq).map(|followed| followed.outputs);
        let Awaiting { step, rows, .. } = self.waiting.next_ready(outputs)?;
        let asks: Vec<TableQuestion> =
            rows.iter().filter_map(|(seq, output)| self.sequences.get(seq)?.ask(*seq, *output)).collect();
        let lookups = asks.len() as u64;
        let (rows, hits): (Vec<_>, Vec<_>) = self.answers(asks).into_iter().unzip();
        let hits = hits.into_iter().filter(|hit| *hit).count() as u64;
        Some(Answered { rules: StepRules { step, source: Source::Tables, rows }, lookups, hits })
    }

    /// How many sequences are followed.
    pub fn len(&self) -> usize {
        self.sequences.len()
    }

    /// Whether no sequence uses tables.
    pub fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    fn answers(&self, asks: Vec<TableQuestion>) -> Vec<(RowRule, bool)> {
        match &self.helpers {
            Some(helpers) if asks.len() > ALONE => answer_together(asks, helpers),
            _ => TableQuestion::answer_all(&asks),
        }
    }
}

impl Followed {
    fn push(&mut self, token: TokenId) {
        self.recent.push(token);
        if let Some(t) = self.request.silent_in {
            let opens = self.outputs == 0 && token == t.open;
            if self.thinking || opens {
                self.recent.count_as_thought();
            }
            self.thinking = (self.thinking || opens) && token != t.close;
        }
        self.outputs += 1;
        self.ended = self.request.end_ids.contains(&token);
        // The prompt is no output: to say what it says is not to go round in circles.
        let run = self.recent.context().hash(RUN_TOKENS).filter(|_| self.outputs as usize >= RUN_TOKENS);
        run.into_iter().for_each(|run| self.repeats.announce(run));
    }

    fn ask(&self, seq: SeqId, output: u32) -> Option<TableQuestion> {
        let silent = self.thinking || self.ended || self.repeats.again();
        let (choice, request) = (self.choice, self.request.clone());
        (!silent).then_some(TableQuestion { seq, output, choice, recent: self.recent, request })
    }
}

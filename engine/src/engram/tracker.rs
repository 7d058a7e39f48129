//! What tables must know of a sequence to change its steps: the tables' side of [`DeferredTracker`].
//!
//! The rules for an output follow from the ids before it alone: those of the prompt and of the outputs up to the one
//! just before.

use super::matching::{RUN_TOKENS, Recent, Repeats};
use super::request_tables::{RequestTables, TableQuestion};
use super::share::answer_together;
use crate::constraint::{Awaiting, DeferredTracker, Effect, RowRule, Source, StepRules, Tracked, TrackedSequence};
use crate::ids::{SeqId, TokenId};
use rayon::ThreadPool;
use std::sync::Arc;

/// Questions that one thread answers as soon as it would with others: it asks memory for all of them at once, and
/// waking another thread takes about half of that time.
const ALONE: usize = if cfg!(test) { 16 } else { 64 };

/// All sequences that use tables, and the steps that wait for the tables' rules.
pub type TableTracker = DeferredTracker<TableSequence>;

/// The tables' answer to a step.
#[derive(Debug)]
pub struct TableAnswer {
    /// One rule for each row that tables were asked for; the others stay as they are.
    pub rules: StepRules,
    /// Number of rows that tables were asked for.
    pub lookups: u64,
    /// Number of these for which a table knew what might follow.
    pub hits: u64,
}

/// A sequence that uses tables.
pub struct TableSequence {
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

impl TableSequence {
    /// The choice of this number of `request`, from its prompt on.
    pub fn new(prompt: &[TokenId], choice: u32, request: Arc<RequestTables>) -> Self {
        let thinking = request.silent_in.is_some_and(|t| t.opened);
        let (recent, repeats) = (Recent::new(prompt), Repeats::default());
        Self { request, choice, recent, outputs: 0, thinking, ended: false, repeats }
    }

    /// What tables do to the first output behind a prompt, for whoever asks outside of a step; `None` where they are
    /// silent.
    pub fn first_effect(prompt: &[TokenId], request: Arc<RequestTables>) -> Option<Effect> {
        let asked = Self::new(prompt, 0, request).ask(SeqId(0), 0)?;
        TableQuestion::answer_all(&[asked]).pop().map(|(rule, _)| rule.effect)
    }

    /// The question to the tables about one output; `None` where they are silent.
    fn ask(&self, seq: SeqId, output: u32) -> Option<TableQuestion> {
        let silent = self.thinking || self.ended || self.repeats.again();
        let (choice, request) = (self.choice, self.request.clone());
        (!silent).then_some(TableQuestion { seq, output, choice, recent: self.recent, request })
    }
}

impl TrackedSequence for TableSequence {
    const SOURCE: Source = Source::Tables;

    type Answer = TableAnswer;

    fn outputs(&self) -> u32 {
        self.outputs
    }

    fn record(&mut self, token: TokenId) {
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
        // The prompt is no output: an output that repeats the prompt does not go round in circles.
        let run = self.recent.context().hash(RUN_TOKENS).filter(|_| self.outputs as usize >= RUN_TOKENS);
        run.into_iter().for_each(|run| self.repeats.announce(run));
    }

    fn settle(&mut self) {
        self.repeats.take();
    }

    fn answer(Awaiting { step, rows, .. }: Awaiting, tracked: &mut Tracked<Self>) -> TableAnswer {
        let asks: Vec<TableQuestion> =
            rows.iter().filter_map(|(seq, output)| tracked.sequences.get(seq)?.ask(*seq, *output)).collect();
        let lookups = asks.len() as u64;
        let (rows, hits): (Vec<_>, Vec<_>) = answers(asks, tracked.helpers.as_ref()).into_iter().unzip();
        let hits = hits.into_iter().filter(|hit| *hit).count() as u64;
        TableAnswer { rules: StepRules { step, source: Self::SOURCE, rows }, lookups, hits }
    }
}

/// The answers in the order of the questions, each with whether a table knew something.
fn answers(asks: Vec<TableQuestion>, helpers: Option<&ThreadPool>) -> Vec<(RowRule, bool)> {
    match helpers {
        Some(helpers) if asks.len() > ALONE => answer_together(asks, helpers),
        _ => TableQuestion::answer_all(&asks),
    }
}

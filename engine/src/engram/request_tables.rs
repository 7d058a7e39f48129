//! What tables do for one request: which ones, how strongly, and where they are silent.

use super::apply::{Mixing, Mode};
use super::fit::{Auto, Levels, Origin};
use super::matching::Recent;
use super::predict::{ContinuationCounts, Gathered, Prediction};
use super::table::{Filter, JointPrior, Member, Ngrams, PredictionRules, Query, lookup};
use crate::constraint::{Effect, RowRule};
use crate::ids::{SeqId, TokenId};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts of a position that there is room for at once; more take more room.
const COUNTS_USUAL: usize = 64;

/// Shared by the choices of a request; fixed when the request is made, so that tables which are replaced later change
/// nothing for it.
pub struct RequestTables {
    /// Knows at least the contexts of `tables`.
    pub filter: Arc<Filter>,
    /// Tables by name, as they were when the request came.
    pub tables: Vec<Member>,
    /// The prior of all of `tables`, which saves asking each.
    pub prior: Option<Arc<JointPrior>>,
    /// Tables that the filter does not know: those of the request alone.
    pub own: Vec<Arc<dyn Ngrams>>,
    /// How predictions are applied, unless that is computed.
    pub mode: Mode,
    /// The strength is computed at each position, and `mode` counts for nothing.
    pub auto: Option<Auto>,
    /// Which counts are believed.
    pub rules: PredictionRules,
    /// Where thinking begins and ends, if the tables are silent in it.
    pub silent_in: Option<ThinkIds>,
    /// Ids that end the sequence: nothing is looked up after them.
    pub end_ids: Vec<TokenId>,
    /// What was done so far.
    pub tally: Tally,
}

/// How thinking shows in a sequence's ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinkIds {
    /// Opens it, as the output's first token only.
    pub open: TokenId,
    /// The token that closes a thought.
    pub close: TokenId,
    /// The prompt has opened it.
    pub opened: bool,
}

/// Counts of a request, over all its choices. A token's position counts once, whatever the number of tables and orders.
#[derive(Debug, Default)]
pub struct Tally {
    lookups: AtomicU32,
    hits: AtomicU32,
    sources: Mutex<Vec<Source>>,
}

/// Where a token that Engram would like comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Number of the choice, from 0.
    pub choice: u32,
    /// Number of the output that the token would be, from 0.
    pub output: u32,
    /// The token that weighs most there.
    pub token: TokenId,
    /// The document or the tables that expect it.
    pub origin: Origin,
}

impl Tally {
    /// Positions that the tables were asked about.
    pub fn lookups(&self) -> u32 {
        self.lookups.load(Ordering::Relaxed)
    }

    /// Of these, the ones where a table knew what might follow.
    pub fn hits(&self) -> u32 {
        self.hits.load(Ordering::Relaxed)
    }

    /// What was said for an output of a choice, if anything. Only requests with a computed strength know it.
    pub fn source(&self, choice: u32, output: u32) -> Option<Source> {
        // The newest are asked for first.
        self.sources().iter().rev().find(|s| (s.choice, s.output) == (choice, output)).copied()
    }

    fn sources(&self) -> MutexGuard<'_, Vec<Source>> {
        // What is in it was put there whole.
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, lookups: usize, hits: usize) {
        self.lookups.fetch_add(lookups as u32, Ordering::Relaxed);
        self.hits.fetch_add(hits as u32, Ordering::Relaxed);
    }
}

/// One position that the tables are asked about.
pub(super) struct TableQuestion {
    pub(super) seq: SeqId,
    /// Number of the output that is asked about.
    pub(super) output: u32,
    /// Number of the sequence among its request's.
    pub(super) choice: u32,
    pub(super) recent: Recent,
    pub(super) request: Arc<RequestTables>,
}

impl TableQuestion {
    /// The answers to some questions, in their order, and whether a table knew something. Each depends on its own
    /// question alone.
    pub(super) fn answer_all(asks: &[TableQuestion]) -> Vec<(RowRule, bool)> {
        // Requests from before and after a change of the tables have filters of their own.
        let same_filter = |a: &TableQuestion, b: &TableQuestion| Arc::ptr_eq(&a.request.filter, &b.request.filter);
        let mut answers = Vec::with_capacity(asks.len());
        asks.chunk_by(same_filter).for_each(|asks| Self::answer_with_one_filter(asks, &mut answers));
        answers
    }

    fn answer_with_one_filter(asks: &[TableQuestion], answers: &mut Vec<(RowRule, bool)>) {
        let queries: Vec<_> = asks.iter().map(Self::query).collect();
        let (found, first) = (lookup(&asks[0].request.filter, &queries), answers.len());
        // What one prediction waits for is asked for while others are gathered.
        let fixed = |i: usize| asks[i].request.auto.is_none();
        let room = COUNTS_USUAL * (0..asks.len()).filter(|&i| fixed(i)).count();
        let (mut counts, mut prediction) = (ContinuationCounts::with_capacity(room), Prediction::default());
        let gather = |i: usize| Gathered::new(&queries[i], found.of(i), &mut counts);
        let mut gathered = (0..asks.len()).filter(|&i| fixed(i)).map(gather).collect::<Vec<_>>().into_iter();
        let mut levels = Levels::default();
        for (i, ask) in asks.iter().enumerate() {
            answers.push(match &ask.request.auto {
                Some(auto) => {
                    levels.fill(auto, &ask.recent, found.of(i), ask.request.rules);
                    ask.auto_rule(&mut levels, auto)
                }
                None => {
                    let gathered = gathered.next().expect("a question with a fixed strength was gathered");
                    gathered.predict(&mut counts, ask.request.rules, &mut prediction);
                    ask.rule(&prediction)
                }
            });
        }
        Self::tally(asks, &answers[first..]);
    }

    /// Counts what was done. Threads share the tally of a request with many choices, so each touches it once for
    /// neighbours and not once for a position.
    fn tally(asks: &[Self], answers: &[(RowRule, bool)]) {
        let mut rest = answers;
        for same in asks.chunk_by(|a, b| Arc::ptr_eq(&a.request, &b.request)) {
            let (own, others) = rest.split_at(same.len());
            same[0].request.tally.add(own.len(), own.iter().filter(|(_, hit)| *hit).count());
            rest = others;
        }
    }

    fn query(&self) -> Query<'_> {
        let request = &*self.request;
        let context = self.recent.context();
        Query { context, tables: &request.tables, prior: request.prior.as_deref(), own: &request.own }
    }

    fn rule(&self, prediction: &Prediction) -> (RowRule, bool) {
        let hit = !prediction.listed.is_empty();
        let effect = match Mixing::new(prediction, self.request.mode) {
            Mixing::Add(list) => Effect::Bias(list),
            Mixing::Mix(list) => Effect::Mix(list),
        };
        (RowRule { seq: self.seq, output: self.output, effect }, hit)
    }

    /// Nothing known says nothing, and the row pays nothing for it.
    fn auto_rule(&self, levels: &mut Levels<'_>, auto: &Auto) -> (RowRule, bool) {
        let weights = levels.weights(&auto.strengths);
        let best = weights.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|w| w.0);
        if let Some((token, origin)) = best.and_then(|token| Some((token, levels.origin(token)?))) {
            let source = Source { choice: self.choice, output: self.output, token, origin };
            self.request.tally.sources().push(source);
        }
        let hit = !weights.is_empty();
        (RowRule { seq: self.seq, output: self.output, effect: Effect::Mix(weights) }, hit)
    }
}

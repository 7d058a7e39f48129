//! What tables do for one request: which ones, how strongly, and where they are silent.

use super::apply::{Mixing, Mode};
use super::context::Context;
use super::filter::Filter;
use super::lookup::{Member, Query, lookup};
use super::predict::{Counts, Gathered, Prediction, PredictionRules};
use super::prior::JointPrior;
use super::table::Ngrams;
use crate::constraint::{Effect, RowRule};
use crate::ids::{SeqId, TokenId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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
    /// How predictions are applied.
    pub mode: Mode,
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
    pub(super) context: Context,
    pub(super) request: Arc<RequestTables>,
}

impl TableQuestion {
    /// The answers to some questions, in their order, and whether a table knew something. Each depends on its own
    /// question alone.
    pub(super) fn answer_all(asks: &[TableQuestion]) -> Vec<(RowRule, bool)> {
        // Requests from before and after a change of the tables have filters of their own.
        let same_filter = |a: &TableQuestion, b: &TableQuestion| Arc::ptr_eq(&a.request.filter, &b.request.filter);
        asks.chunk_by(same_filter).flat_map(Self::answer_with_one_filter).collect()
    }

    fn answer_with_one_filter(asks: &[TableQuestion]) -> Vec<(RowRule, bool)> {
        let queries: Vec<_> = asks.iter().map(Self::query).collect();
        let found = lookup(&asks[0].request.filter, &queries);
        // What one prediction waits for is asked for while others are gathered.
        let (mut counts, mut prediction) = (Counts::with_capacity(COUNTS_USUAL * asks.len()), Prediction::default());
        let gathered: Vec<_> = (0..asks.len()).map(|i| Gathered::new(&queries[i], found.of(i), &mut counts)).collect();
        let predict = |(ask, gathered): (&TableQuestion, Gathered<'_>)| {
            gathered.predict(&mut counts, ask.request.rules, &mut prediction);
            ask.rule(&prediction)
        };
        let answers: Vec<_> = asks.iter().zip(gathered).map(predict).collect();
        Self::tally(asks, &answers);
        answers
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
        Query { context: self.context, tables: &request.tables, prior: request.prior.as_deref(), own: &request.own }
    }

    fn rule(&self, prediction: &Prediction) -> (RowRule, bool) {
        let hit = !prediction.listed.is_empty();
        let effect = match Mixing::new(prediction, self.request.mode) {
            Mixing::Add(list) => Effect::Bias(list),
            Mixing::Mix(list) => Effect::Mix(list),
        };
        (RowRule { seq: self.seq, output: self.output, effect }, hit)
    }
}

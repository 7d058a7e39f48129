//! From counts to probabilities: interpolated back-off over orders, as confident as the counts allow.
//!
//! p_0(t) = (c(t) + 1) / (C + V), the prior. For each order k that knows the context, shortest first, with N_k occurrences of which
//! c_k(t) went on with t: p_k(t) = w p_ml + (1 - w) p_(k-1)(t), with p_ml = c_k(t) / N_k and w = N_k / (N_k + 4). Several tables
//! count as one table of all their texts.

use super::ORDER_MAX;
use super::lookup::{Found, Member, Query};
use super::prior::JointPrior;
use super::table::Ngrams;
use crate::ids::TokenId;
use std::ops::Range;
use std::sync::Arc;

/// Occurrences at which a context is believed by half.
const HALF: f64 = 4.0;

/// What counts for a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictionRules {
    /// Continuations with fewer occurrences over all tables are passed over.
    pub min_count: u32,
}

/// What the tables expect next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Tokens that followed one of the contexts, by rising id.
    pub listed: Vec<Predicted>,
    /// Length of the longest context that is known; 0 if none is.
    pub order: usize,
    /// Occurrences of that context: N in the formulas.
    pub seen: u64,
}

/// One expected token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// The token.
    pub token: TokenId,
    /// Probability by the tables.
    pub p: f64,
    /// Probability by the prior alone.
    pub prior: f64,
}

/// w(N): how far a context with this many occurrences is believed.
pub(super) fn confidence(seen: u64) -> f64 {
    seen as f64 / (seen as f64 + HALF)
}

/// One answer's count of one token. Sorted by both at once: token, then order.
pub(super) struct Count {
    token_and_order: u64,
    count: u32,
}

const ORDER_BITS: u32 = ORDER_MAX.ilog2() + 1;

impl Count {
    fn new(token: TokenId, order: usize, count: u32) -> Self {
        Self { token_and_order: u64::from(token) << ORDER_BITS | order as u64, count }
    }

    fn token(&self) -> TokenId {
        (self.token_and_order >> ORDER_BITS) as TokenId
    }

    fn order(&self) -> usize {
        (self.token_and_order & ((1 << ORDER_BITS) - 1)) as usize
    }
}

/// The counts that a prediction is made of, in a list that many share.
pub(super) struct Gathered<'a> {
    prior: Prior<'a>,
    counts: Range<usize>,
    /// Occurrences of the contexts, by order.
    seen: [u64; ORDER_MAX + 1],
}

impl<'a> Gathered<'a> {
    /// From the answers for `query`; asks memory for what [`Gathered::predict`] will read.
    pub(super) fn new<'f>(query: &Query<'a>, found: impl Iterator<Item = Found<'f>>, counts: &mut Vec<Count>) -> Self {
        let (first, prior, mut seen) = (counts.len(), Prior::of(query), [0u64; ORDER_MAX + 1]);
        for f in found {
            seen[f.order] = seen[f.order].saturating_add(f.list.total());
            counts.extend(f.listed().map(|(token, count)| {
                prior.prefetch(token);
                Count::new(token, f.order, count)
            }));
        }
        Self { prior, counts: first..counts.len(), seen }
    }

    /// `counts` is the list that they were put into.
    pub(super) fn predict(self, counts: &mut [Count], rules: PredictionRules) -> Prediction {
        let Self { prior, counts: own, seen } = self;
        let counts = &mut counts[own];
        counts.sort_unstable_by_key(|c| c.token_and_order);
        let order = seen.iter().rposition(|&n| n > 0).unwrap_or(0);
        let mut listed = Vec::with_capacity(counts.len());
        let tokens = counts.chunk_by(|a, b| a.token() == b.token());
        listed.extend(tokens.filter_map(|counts| back_off(counts, &seen[..=order], &prior, rules)));
        Prediction { listed, order, seen: seen[order] }
    }
}

impl Prediction {
    /// From the answers for `query`.
    pub fn new<'a>(query: &Query<'_>, found: impl Iterator<Item = Found<'a>>, rules: PredictionRules) -> Self {
        let mut counts = Vec::new();
        Gathered::new(query, found, &mut counts).predict(&mut counts, rules)
    }
}

/// One token through all orders; `None` if nowhere frequent enough.
fn back_off(counts: &[Count], seen: &[u64], prior: &Prior<'_>, rules: PredictionRules) -> Option<Predicted> {
    let mut sums = [0u64; ORDER_MAX + 1];
    counts.iter().for_each(|c| sums[c.order()] += u64::from(c.count));
    sums.iter_mut().filter(|sum| **sum < u64::from(rules.min_count)).for_each(|sum| *sum = 0);
    if sums.iter().all(|&sum| sum == 0) {
        return None;
    }
    let token = counts[0].token();
    let prior = prior.p(token);
    let orders = seen.iter().zip(&sums).filter(|(seen, _)| **seen > 0);
    // The same as w p_ml + (1 - w) p, and above 0 for any N.
    let p = orders.fold(prior, |p, (&seen, &sum)| (sum as f64 + HALF * p) / (seen as f64 + HALF));
    Some(Predicted { token, p, prior })
}

/// The unigram distribution of all tables of a query, one added to every count so that no token is impossible.
struct Prior<'a> {
    joint: Option<&'a JointPrior>,
    /// Those that are asked one by one.
    tables: &'a [Member],
    own: &'a [Arc<dyn Ngrams>],
    total: f64,
}

impl<'a> Prior<'a> {
    fn of(query: &Query<'a>) -> Self {
        let tables = if query.prior.is_some() { &[] } else { query.tables };
        let mut prior = Self { joint: query.prior, tables, own: query.own, total: 0.0 };
        let joint = prior.joint.iter().map(|joint| (joint.vocab(), joint.total()));
        let sizes = || joint.clone().chain(prior.apart().map(|t| (t.vocab(), t.prior_total())));
        let vocab = sizes().map(|(vocab, _)| vocab).max().unwrap_or(0);
        prior.total = sizes().map(|(_, total)| total as f64).sum::<f64>() + f64::from(vocab);
        prior
    }

    fn apart(&self) -> impl Iterator<Item = &'a Arc<dyn Ngrams>> + use<'a> {
        self.tables.iter().map(Member::table).chain(self.own)
    }

    fn prefetch(&self, token: TokenId) {
        self.joint.iter().for_each(|joint| joint.prefetch(token));
        self.apart().for_each(|t| t.prefetch_prior(token));
    }

    fn p(&self, token: TokenId) -> f64 {
        let joint = self.joint.map_or(0, |joint| joint.count(token)) as f64;
        let count = self.apart().fold(joint, |sum, t| sum + t.prior(token) as f64);
        (count + 1.0) / self.total
    }
}

//! From counts to probabilities: interpolated back-off over orders, as confident as the counts allow.
//!
//! p_0(t) = (c(t) + 1) / (C + V), the prior. For each order k that knows the context, shortest first, with N_k occurrences of which
//! c_k(t) went on with t: p_k(t) = w p_ml + (1 - w) p_(k-1)(t), with p_ml = c_k(t) / N_k and w = N_k / (N_k + 4). Several tables
//! count as one table of all their texts.

use super::ORDER_MAX;
use super::lookup::{Found, Query};
use super::table::Ngrams;
use crate::ids::TokenId;

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

impl Prediction {
    /// From the answers for `query`.
    pub fn new<'a>(query: &Query<'_>, found: impl Iterator<Item = Found<'a>>, rules: PredictionRules) -> Self {
        let mut seen = [0u64; ORDER_MAX + 1];
        let mut counts: Vec<(TokenId, usize, u64)> = Vec::new();
        for f in found {
            seen[f.order] = seen[f.order].saturating_add(f.list.total());
            counts.extend(f.listed().map(|(token, count)| (token, f.order, u64::from(count))));
        }
        counts.sort_unstable();
        let order = seen.iter().rposition(|&n| n > 0).unwrap_or(0);
        let prior = Prior::of(query);
        let tokens = counts.chunk_by(|a, b| a.0 == b.0);
        let listed = tokens.filter_map(|counts| back_off(counts, &seen, &prior, rules)).collect();
        Self { listed, order, seen: seen[order] }
    }
}

/// One token through all orders; `None` if nowhere frequent enough.
fn back_off(
    counts: &[(TokenId, usize, u64)],
    seen: &[u64; ORDER_MAX + 1],
    prior: &Prior<'_>,
    rules: PredictionRules,
) -> Option<Predicted> {
    let mut sums = [0u64; ORDER_MAX + 1];
    counts.iter().for_each(|&(_, order, count)| sums[order] += count);
    sums.iter_mut().filter(|sum| **sum < u64::from(rules.min_count)).for_each(|sum| *sum = 0);
    if sums.iter().all(|&sum| sum == 0) {
        return None;
    }
    let (token, prior) = (counts[0].0, prior.p(counts[0].0));
    let orders = (1..=ORDER_MAX).filter(|&k| seen[k] > 0);
    // The same as w p_ml + (1 - w) p, and above 0 for any N.
    let p = orders.fold(prior, |p, k| (sums[k] as f64 + HALF * p) / (seen[k] as f64 + HALF));
    Some(Predicted { token, p, prior })
}

/// The unigram distribution of all tables of a query, one added to every count so that no token is impossible.
struct Prior<'a> {
    tables: [&'a [&'a dyn Ngrams]; 2],
    total: f64,
}

impl<'a> Prior<'a> {
    fn of(query: &Query<'a>) -> Self {
        let tables = [query.tables, query.own];
        let vocab = tables.iter().copied().flatten().map(|t| t.vocab()).max().unwrap_or(0);
        let total = tables.iter().copied().flatten().map(|t| t.prior_total() as f64).sum::<f64>() + f64::from(vocab);
        Self { tables, total }
    }

    fn p(&self, token: TokenId) -> f64 {
        let count: f64 = self.tables.iter().copied().flatten().map(|t| t.prior(token) as f64).sum();
        (count + 1.0) / self.total
    }
}

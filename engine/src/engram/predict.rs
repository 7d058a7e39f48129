//! From counts to probabilities: interpolated back-off over orders, as confident as the counts allow.
//!
//! p_0(t) = (c(t) + 1) / (C + V), the prior. For each order k that knows the context, shortest first, with N_k
//! occurrences of which c_k(t) went on with t: p_k(t) = w p_ml + (1 - w) p_(k-1)(t), with p_ml = c_k(t) / N_k and w =
//! N_k / (N_k + 4). Several tables count as one table of all their texts.

use super::order::ORDER_MAX;
use super::table::{Found, JointPrior, Member, Ngrams, PredictionRules, Query};
use crate::ids::TokenId;
use std::ops::Range;
use std::sync::Arc;

/// Occurrences at which a context is believed by half.
const HALF: f64 = 4.0;

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

/// A token that the tables expect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// Id of the expected token.
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

/// Counts of the answers for some queries, side by side.
#[derive(Default)]
pub(super) struct ContinuationCounts {
    /// From the top: token, order, and where in the query's part of `amounts` the count is. They sort as one number,
    /// which takes half as long as sorting pairs.
    keys: Vec<u64>,
    amounts: Vec<u32>,
}

impl ContinuationCounts {
    /// With room for so many.
    pub(super) fn with_capacity(counts: usize) -> Self {
        Self { keys: Vec::with_capacity(counts), amounts: Vec::with_capacity(counts) }
    }
}

const TOKEN_SHIFT: u32 = 32;
const ORDER_SHIFT: u32 = TOKEN_SHIFT - ORDER_MAX.ilog2() - 1;

/// The counts that a prediction is made of, in a list that many share.
pub(super) struct Gathered<'a> {
    prior: Prior<'a>,
    counts: Range<usize>,
    /// Occurrences of the contexts, by order.
    seen: [u64; ORDER_MAX + 1],
}

impl<'a> Gathered<'a> {
    /// From the answers for `query`; asks memory for what [`Gathered::predict`] will read.
    pub(super) fn new(query: &Query<'a>, found: &[Found<'_>], counts: &mut ContinuationCounts) -> Self {
        let (first, prior, mut seen) = (counts.keys.len(), Prior::of(query), [0u64; ORDER_MAX + 1]);
        // Beyond the dense orders only computed strengths look.
        for f in found.iter().filter(|f| f.order <= ORDER_MAX) {
            seen[f.order] = seen[f.order].saturating_add(f.list.total());
            let order = (f.order as u64) << ORDER_SHIFT;
            let place = (counts.keys.len() - first) as u64..1 << ORDER_SHIFT;
            counts.keys.extend(f.listed().zip(place).map(|((token, _), place)| {
                prior.prefetch(token);
                u64::from(token) << TOKEN_SHIFT | order | place
            }));
            counts.amounts.extend(f.listed().map(|(_, amount)| amount));
        }
        assert_eq!(counts.keys.len(), counts.amounts.len(), "each count has a place");
        Self { prior, counts: first..counts.keys.len(), seen }
    }

    /// `counts` is the list that they were put into. What `prediction` was before does not matter.
    pub(super) fn predict(self, counts: &mut ContinuationCounts, rules: PredictionRules, prediction: &mut Prediction) {
        let Self { prior, counts: own, seen } = self;
        let (keys, amounts) = (&mut counts.keys[own.clone()], &counts.amounts[own]);
        keys.sort_unstable();
        let levels: [OrderShare; ORDER_MAX + 1] = std::array::from_fn(|order| OrderShare::new(order, seen[order]));
        let first = seen.iter().position(|&n| n > 0).unwrap_or(0);
        prediction.order = seen.iter().rposition(|&n| n > 0).unwrap_or(0);
        prediction.seen = seen[prediction.order];
        let levels = &levels[first..=prediction.order];
        let back_off = BackOff { levels, count_min: f64::from(rules.min_count), prior, amounts };
        prediction.listed.clear();
        for keys in keys.chunk_by(|a, b| a >> TOKEN_SHIFT == b >> TOKEN_SHIFT) {
            prediction.listed.extend(back_off.token(keys));
        }
    }
}

impl Prediction {
    /// From the answers for `query`.
    pub fn new(query: &Query<'_>, found: &[Found<'_>], rules: PredictionRules) -> Self {
        let (mut counts, mut prediction) = (ContinuationCounts::default(), Self::default());
        Gathered::new(query, found, &mut counts).predict(&mut counts, rules, &mut prediction);
        prediction
    }
}

/// A context of one order, known or not.
#[derive(Clone, Copy)]
struct OrderShare {
    order: usize,
    /// 1 / (N + 4), and 4 / (N + 4): a division here saves one for each token. Without the context they are 1/4 and 1,
    /// which leaves what is said so far to the last bit, so that nobody asks.
    share: f64,
    rest: f64,
}

impl OrderShare {
    fn new(order: usize, seen: u64) -> Self {
        let all = seen as f64 + HALF;
        Self { order, share: 1.0 / all, rest: HALF / all }
    }
}

/// What all tokens of a prediction share.
struct BackOff<'a> {
    /// From the shortest known context to the longest.
    levels: &'a [OrderShare],
    count_min: f64,
    prior: Prior<'a>,
    amounts: &'a [u32],
}

impl BackOff<'_> {
    /// One token through all orders; `None` if nowhere frequent enough.
    #[inline]
    fn token(&self, keys: &[u64]) -> Option<Predicted> {
        // Exact, as long as no token was seen 2^53 times.
        let mut sums = [0.0; 1 << (TOKEN_SHIFT - ORDER_SHIFT)];
        for &key in keys {
            let low = key as u32;
            sums[(low >> ORDER_SHIFT) as usize] += f64::from(self.amounts[(low & ((1 << ORDER_SHIFT) - 1)) as usize]);
        }
        let token = (keys[0] >> TOKEN_SHIFT) as TokenId;
        let prior = self.prior.p(token);
        let (mut p, mut most) = (prior, 0.0);
        for level in self.levels {
            let sum = sums[level.order];
            let sum = if sum < self.count_min { 0.0 } else { sum };
            most = f64::max(most, sum);
            // Equals w p_ml + (1 - w) p, and is above 0 for any N.
            p = sum * level.share + p * level.rest;
        }
        // Rounding may lead beyond 1 where nearly all of a million occurrences went on alike.
        (most > 0.0).then_some(Predicted { token, p: p.min(1.0), prior })
    }
}

/// The unigram distribution of all tables of a query, one added to every count so that no token is impossible.
struct Prior<'a> {
    joint: Option<&'a JointPrior>,
    /// Those that are asked one by one.
    tables: &'a [Member],
    own: &'a [Arc<dyn Ngrams>],
    /// One divided by all tokens of the texts and of the vocabulary.
    share: f64,
}

impl<'a> Prior<'a> {
    fn of(query: &Query<'a>) -> Self {
        let tables = if query.prior.is_some() { &[] } else { query.tables };
        let mut prior = Self { joint: query.prior, tables, own: query.own, share: 0.0 };
        let joint = prior.joint.iter().map(|joint| (joint.vocab(), joint.total()));
        let sizes = || joint.clone().chain(prior.apart().map(|t| (t.vocab(), t.prior_total())));
        let vocab = sizes().map(|(vocab, _)| vocab).max().unwrap_or(0);
        prior.share = 1.0 / (sizes().map(|(_, total)| total as f64).sum::<f64>() + f64::from(vocab));
        prior
    }

    fn apart(&self) -> impl Iterator<Item = &'a Arc<dyn Ngrams>> + use<'a> {
        self.tables.iter().map(Member::table).chain(self.own)
    }

    #[inline]
    fn prefetch(&self, token: TokenId) {
        self.joint.iter().for_each(|joint| joint.prefetch(token));
        self.apart().for_each(|t| t.prefetch_prior(token));
    }

    #[inline]
    fn p(&self, token: TokenId) -> f64 {
        let joint = self.joint.map_or(0, |joint| joint.count(token)) as f64;
        let count = self.apart().fold(joint, |sum, t| sum + t.prior(token) as f64);
        (count + 1.0) * self.share
    }
}

//! The two legs of a search, words and vectors: how each is scored beside the other, and how a weight puts them
//! together. Collections and stores of documents have this in common.

use super::self_test::{FIRST, Hits, WEIGHTS};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What is no farther from the middle of all vectors than this lies in no direction from it.
const MIDDLE: f32 = 1e-3;

/// With which weights of the vectors a text is found, by all texts' shares of words and cosines.
pub(crate) fn found_with(legs: &[(f32, f32)], gold: usize) -> Hits {
    WEIGHTS.map(|weight| is_found(legs, gold, weight as f32))
}

/// Whether an item is among the first by these shares of words and cosines.
fn is_found(legs: &[(f32, f32)], gold: usize, weight: f32) -> bool {
    let score = |at: usize| blend(weight, legs[at].0, legs[at].1);
    let own = score(gold);
    // Of equal scores the item that came first is found first.
    let before = (0..legs.len()).filter(|at| (score(*at), gold) > (own, *at));
    own > 0.0 && before.take(FIRST).count() < FIRST
}

/// A score of words and vectors; a direction away from the query says no more than none.
pub(crate) fn blend(weight: f32, words: f32, cosine: f32) -> f32 {
    (1.0 - weight) * words + weight * cosine.max(0.0)
}

/// A score of words as a share of the best one.
pub(crate) fn share(words: f32, top: f32) -> f32 {
    if top > 0.0 { words / top } else { 0.0 }
}

/// The `k` best, best first.
pub(crate) fn best(k: usize, all: impl Iterator<Item = Nearest>) -> Vec<Nearest> {
    let mut best: BinaryHeap<Nearest> = BinaryHeap::with_capacity(k + 1);
    for found in all {
        if best.len() < k || best.peek().is_some_and(|worst| found < *worst) {
            best.push(found);
            if best.len() > k {
                best.pop();
            }
        }
    }
    best.into_sorted_vec()
}

/// Better is less, so that a heap has the worst on top.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Nearest {
    pub(crate) score: f32,
    pub(crate) at: usize,
}

impl Eq for Nearest {}

impl Ord for Nearest {
    fn cmp(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then(self.at.cmp(&other.at))
    }
}

impl PartialOrd for Nearest {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Where a query lies as seen from the middle of all vectors. What these have in common, which is most of every one,
/// says nothing of any, and without it cosines of different collections are alike enough to be added to other scores.
pub(crate) struct Centred {
    middle: Vec<f32>,
    /// The query's vector less the middle of all vectors.
    query: Vec<f32>,
    /// The query's product with the middle; the lengths squared of the middle and of the query from there.
    inner: f32,
    middle_squared: f32,
    query_squared: f32,
}

impl Centred {
    /// Of `count` vectors with this sum.
    pub(crate) fn new(query: &[f32], sum: &[f64], count: usize) -> Self {
        assert_eq!(query.len(), sum.len(), "a query is as wide as the index");
        // The middle of one vector would be that vector.
        let middle: Vec<f32> = match count {
            0 | 1 => vec![0.0; sum.len()],
            _ => sum.iter().map(|x| (x / count as f64) as f32).collect(),
        };
        let query: Vec<f32> = query.iter().zip(&middle).map(|(q, m)| q - m).collect();
        let inner = dot(&query, &middle);
        Self { inner, middle_squared: dot(&middle, &middle), query_squared: dot(&query, &query), middle, query }
    }

    /// The query less the middle.
    pub(crate) fn query(&self) -> &[f32] {
        &self.query
    }

    /// The middle of all vectors.
    pub(crate) fn middle(&self) -> &[f32] {
        &self.middle
    }

    /// Between the query and a vector of length 1, both from the middle; 0 where one of them lies there.
    pub(crate) fn cosine(&self, vector: &[f32]) -> f32 {
        self.cosine_of(dot(&self.query, vector), dot(vector, &self.middle))
    }

    /// As [`Self::cosine`], of a vector's products with [`Self::query`] and [`Self::middle`].
    pub(crate) fn cosine_of(&self, with_query: f32, with_middle: f32) -> f32 {
        let squared = 1.0 - 2.0 * with_middle + self.middle_squared;
        let lengths = (squared.max(0.0) * self.query_squared).sqrt();
        if lengths <= MIDDLE * MIDDLE { 0.0 } else { ((with_query - self.inner) / lengths).clamp(-1.0, 1.0) }
    }
}

/// Eight sums at a time, which compilers make vectors of; always in the same order.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 8;
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_vectors_have_in_common_counts_for_nothing() {
        // Far along one direction, and apart in another.
        let vectors = [0.14f32, -0.14, 0.43].map(|angle| [angle.cos(), angle.sin()]);
        let sum = [0, 1].map(|i| vectors.iter().map(|v| f64::from(v[i])).sum::<f64>());
        let from = |v: &[f32; 2]| [0, 1].map(|i| f64::from(v[i]) - sum[i] / 3.0);
        for (v, q) in vectors.iter().flat_map(|v| vectors.iter().map(move |q| (v, q))) {
            let ([a, b], [c, d]) = (from(v), from(q));
            let want = (a * c + b * d) / (a.hypot(b) * c.hypot(d));
            let got = Centred::new(q, &sum, 3).cosine(v);
            assert!((f64::from(got) - want).abs() < 1e-4, "{v:?} {q:?}: {got} {want}");
        }
        assert!((Centred::new(&[0.6, 0.8], &[1.0, 0.0], 1).cosine(&[1.0, 0.0]) - 0.6).abs() < 1e-6, "a single one");
        assert_eq!(Centred::new(&[0.5, 0.0], &[1.0, 0.0], 2).cosine(&[1.0, 0.0]), 0.0, "the middle itself");
    }
}

//! Forgets what is old or rare.

use super::format::Image;
use super::ngrams::{Continuation, Entry, Ngrams};
use super::opened::Table;
use super::record::OrderImage;
use crate::engram::context;

/// What a table keeps. Counts themselves are never changed, so pruning twice at the same time is pruning once.
#[derive(Clone, Copy, Debug)]
pub struct PruneRules {
    /// The time that ages are measured from, seconds since 1970.
    pub now: u32,
    /// A count loses half its weight each time this many seconds pass without reinforcement; `None`: it keeps it.
    pub half_life_s: Option<u32>,
    /// Continuations not seen for longer than this are removed, and no longer count as occurrences of their context.
    pub age_s_max: Option<u32>,
    /// Continuations whose weighted count, rounded, is below this are not listed any more; they still count as
    /// occurrences of their context.
    pub min_count: u32,
}

/// The table without what the rules forget. The unigram prior, which has no times, stays. Long contexts are kept for
/// what their ends say beside them, so a table that has such is built anew instead: see [`Table::is_long`].
pub fn prune(table: &Table, rules: &PruneRules) -> Image {
    changed(table, |entry| rules.keep(entry))
}

/// The table with every count at its weight of now, rounded and at least 1, and without what is older than `age_s_max`
/// seconds. Unlike [`prune`] this changes counts, so it is for the image that is published and not for what that is
/// made of.
pub fn fade(table: &Table, now: u32, half_life_s: u32, age_s_max: u32) -> Image {
    let rules = PruneRules { now, half_life_s: Some(half_life_s), age_s_max: Some(age_s_max), min_count: 0 };
    changed(table, |entry| {
        let (mut total, mut list) = rules.keep(entry);
        for c in &mut list {
            let faded = (rules.weight(c).round() as u32).clamp(1, c.count);
            total -= u64::from(c.count - faded);
            c.count = faded;
        }
        (total, list)
    })
}

/// The table with other occurrences and continuations in each context; a context without continuations goes.
fn changed(table: &Table, keep: impl Fn(&Entry) -> (u64, Vec<Continuation>)) -> Image {
    assert!(!table.is_long(), "who asks has looked for long contexts");
    let orders = table.stats().iter().filter_map(|stats| {
        let mut image = OrderImage::new(stats.order);
        for entry in table.entries(stats.order) {
            let (total, mut list) = keep(&entry);
            let fits = image.push(context::hash(&entry.key), &entry.key, total, &mut list);
            assert!(fits, "a part of an order is no larger than the order");
        }
        image.finish()
    });
    Image {
        tokenizer: table.tokenizer(),
        vocab: table.vocab(),
        tokens: table.tokens(),
        prior: table.prior_counts(),
        orders: orders.collect(),
    }
}

impl PruneRules {
    /// What is left of a context: occurrences and continuations.
    fn keep(&self, entry: &Entry) -> (u64, Vec<Continuation>) {
        let young = |c: &Continuation| self.age_s_max.is_none_or(|max| self.age_s(c) <= max);
        let (young, old): (Vec<Continuation>, Vec<_>) = entry.list.iter().copied().partition(young);
        let forgotten: u64 = old.iter().map(|c| u64::from(c.count)).sum();
        let list = young.into_iter().filter(|c| self.weight(c).round() >= f64::from(self.min_count)).collect();
        (entry.total - forgotten, list)
    }

    fn age_s(&self, c: &Continuation) -> u32 {
        self.now.saturating_sub(c.time)
    }

    fn weight(&self, c: &Continuation) -> f64 {
        let halvings = self.half_life_s.map_or(0.0, |half| f64::from(self.age_s(c)) / f64::from(half.max(1)));
        f64::from(c.count) * (-halvings).exp2()
    }
}

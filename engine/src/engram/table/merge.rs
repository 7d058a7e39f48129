//! Several tables into one, as if it had been built from all their texts.

use super::format::{Image, TokenizerHash};
use super::ngrams::{Continuation, Entry, Ngrams};
use super::opened::Table;
use super::record::OrderImage;
use crate::engram::context;
use crate::engram::order::ORDER_MAX;
use std::collections::BTreeMap;
use std::iter::Peekable;

/// Why tables cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// There is nothing to merge.
    #[error("wanted at least one table, got none")]
    None,
    /// Their ids mean different things.
    #[error("table {index}: wanted tokenizer {want} with {want_vocab} tokens like table 0, got {got} with {got_vocab}")]
    Tokenizer {
        /// Which table, from 0.
        index: usize,
        /// Of the first table.
        want: TokenizerHash,
        /// Of the first table.
        want_vocab: u32,
        /// The tokenizer hash of this table.
        got: TokenizerHash,
        /// The vocabulary size of this table.
        got_vocab: u32,
    },
    /// What is left out of one table because a shorter context says it too is not left out of all.
    #[error(
        "table {index}: wanted one without contexts of more than {ORDER_MAX} tokens; build anew from all the texts"
    )]
    Long {
        /// Which table, from 0.
        index: usize,
    },
    /// An order's records are counted in 32 bits.
    #[error("order {order}: wanted at most 16 GiB of records, got more")]
    TooLarge {
        /// The context length that has too many.
        order: usize,
    },
}

/// Adds counts, saturating, and keeps the later times. Equal to building from all texts at once if the tables were
/// built with a minimum count of 1; with a higher one, what was too rare in each table alone stays away.
pub fn merge(tables: &[&Table]) -> Result<Image, MergeError> {
    let first = tables.first().ok_or(MergeError::None)?;
    for (index, table) in tables.iter().enumerate() {
        let (want, want_vocab, got, got_vocab) = (first.tokenizer(), first.vocab(), table.tokenizer(), table.vocab());
        if table.is_long() {
            return Err(MergeError::Long { index });
        }
        if (want, want_vocab) != (got, got_vocab) {
            return Err(MergeError::Tokenizer { index, want, want_vocab, got, got_vocab });
        }
    }
    let mut prior = vec![0u64; first.vocab() as usize];
    for table in tables {
        prior.iter_mut().zip(table.prior_counts()).for_each(|(sum, n)| *sum = sum.saturating_add(n));
    }
    // No table has more occurrences than 64 bits count; what is merged is one.
    let mut left = u64::MAX;
    for sum in &mut prior {
        *sum = left.min(*sum);
        left -= *sum;
    }
    let mut orders = Vec::new();
    for order in 1..=ORDER_MAX {
        orders.extend(merge_order(tables, order)?);
    }
    let tokens = tables.iter().fold(0u64, |sum, t| sum.saturating_add(t.tokens()));
    Ok(Image { tokenizer: first.tokenizer(), vocab: first.vocab(), tokens, prior, orders })
}

fn merge_order(tables: &[&Table], order: usize) -> Result<Option<OrderImage>, MergeError> {
    let mut sources: Vec<Peekable<_>> = tables.iter().map(|t| t.entries(order).map(hashed).peekable()).collect();
    let mut image = OrderImage::new(order);
    while let Some(next) = sources.iter_mut().filter_map(|s| s.peek().map(|(hash, e)| (*hash, e.key.clone()))).min() {
        let is_next = |(hash, e): &(u64, Entry)| *hash == next.0 && e.key == next.1;
        let same = sources.iter_mut().filter_map(|s| s.next_if(is_next));
        let (total, mut list) = add(same.map(|(_, entry)| entry));
        if !image.push(next.0, &next.1, total, &mut list) {
            return Err(MergeError::TooLarge { order });
        }
    }
    Ok(image.finish())
}

fn hashed(entry: Entry) -> (u64, Entry) {
    (context::hash(&entry.key), entry)
}

/// The continuations of one context in all tables.
fn add(entries: impl Iterator<Item = Entry>) -> (u64, Vec<Continuation>) {
    let mut total = 0u64;
    let mut sums: BTreeMap<u32, Continuation> = BTreeMap::new();
    for entry in entries {
        total = total.saturating_add(entry.total);
        for c in entry.list {
            let sum = sums.entry(c.token).or_insert(Continuation { count: 0, ..c });
            sum.count = sum.count.saturating_add(c.count);
            sum.time = sum.time.max(c.time);
        }
    }
    (total, sums.into_values().collect())
}

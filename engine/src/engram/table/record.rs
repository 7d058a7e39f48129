//! One order of a table as bytes: the records of its contexts, and the index that finds a record by its context's hash.
//! How the orders of a table lie in a file is in `format.rs`.
//!
//! Records are sorted by (hash, key); the index is an open-addressed table of the records in that order. Both follow
//! from the contents alone, so equal contents make equal bytes, merging is one pass, and checking an index is one pass
//! too.

use super::ngrams::{Continuation, Continuations, Entry};
use crate::engram::context::scale;
use crate::engram::order::{MATCH_MAX, ORDER_MAX};
use crate::ids::TokenId;

/// What a file's records of one order look like.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordShape {
    pub(super) order: usize,
    /// Above the total stand lengths: see [`with_longer`].
    pub(super) says_longer: bool,
}

/// u32 n, u64 total, key, n (token, count) pairs, n times.
pub(super) struct Record<'a> {
    pub(super) total: u64,
    pub(super) longer: u32,
    key: &'a [u8],
    pub(super) pairs: &'a [u8],
    pub(super) times: &'a [u8],
}

impl<'a> Record<'a> {
    const HEAD: usize = 12;

    /// The record at the start of `bytes`; `None` if it does not fit.
    #[inline]
    pub(super) fn read(bytes: &'a [u8], shape: RecordShape) -> Option<Self> {
        let (n, total) = (u32_at(bytes, 0)? as usize, u64_at(bytes, 4)?);
        let bits = if shape.says_longer { TOTAL_BITS } else { u64::BITS };
        let (total, longer) = (total & u64::MAX >> (u64::BITS - bits), total.checked_shr(bits).unwrap_or(0) as u32);
        let (key, rest) = bytes.get(Self::HEAD..)?.split_at_checked(4 * shape.order)?;
        let (pairs, rest) = rest.split_at_checked(n.checked_mul(8)?)?;
        Some(Self { total, longer, key, pairs, times: rest.get(..4 * n)? })
    }

    pub(super) fn bytes(&self) -> usize {
        Self::HEAD + self.key.len() + self.pairs.len() + self.times.len()
    }

    #[inline]
    pub(super) fn has_key(&self, key: &[TokenId]) -> bool {
        self.key.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).eq(key.iter().copied())
    }

    pub(super) fn key(&self, order: usize) -> Vec<TokenId> {
        assert_eq!(self.key.len(), 4 * order);
        words(self.key).collect()
    }

    /// What followed the context, as whoever asks the table is told.
    #[inline]
    pub(super) fn continuations(&self) -> Continuations<'a> {
        Continuations::new(self.total, self.longer, self.pairs)
    }

    pub(super) fn list(&self) -> impl Iterator<Item = Continuation> {
        let pairs = self.continuations().iter();
        pairs.zip(words(self.times)).map(|((token, count), time)| Continuation { token, count, time })
    }

    pub(super) fn entry(&self, order: usize) -> Entry {
        Entry { key: self.key(order), total: self.total, list: self.list().collect() }
    }
}

pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b))
}

/// Index and records of one order in the making. Records come sorted by (hash, key).
#[derive(Clone, Debug)]
pub(super) struct OrderImage {
    pub(super) order: usize,
    pub(super) index: Vec<u8>,
    pub(super) records: Vec<u8>,
    pub(super) ngrams: u64,
    contexts: Vec<(u64, u32)>,
}

impl OrderImage {
    pub(super) fn new(order: usize) -> Self {
        Self { order, index: Vec::new(), records: Vec::new(), ngrams: 0, contexts: Vec::new() }
    }

    /// Adds a context, if any continuation is left of it; sorts `list`. `false` if the order has become larger than its
    /// index can say.
    #[must_use]
    pub(super) fn push(&mut self, hash: u64, key: &[TokenId], total: u64, list: &mut [Continuation]) -> bool {
        if list.is_empty() {
            return true;
        }
        let Some(at) = u32::try_from(self.records.len() / 4 + 1).ok().filter(|&at| at < u32::MAX) else { return false };
        list.sort_unstable_by_key(|c| (std::cmp::Reverse(c.count), c.token));
        self.contexts.push((hash, at));
        self.ngrams += list.len() as u64;
        let out = &mut self.records;
        out.extend((list.len() as u32).to_le_bytes());
        out.extend(total.to_le_bytes());
        key.iter().for_each(|id| out.extend(id.to_le_bytes()));
        list.iter().for_each(|c| out.extend((u64::from(c.count) << 32 | u64::from(c.token)).to_le_bytes()));
        list.iter().for_each(|c| out.extend(c.time.to_le_bytes()));
        true
    }

    /// Makes the index; `None` if there is no context.
    pub(super) fn finish(mut self) -> Option<Self> {
        let homes = homes(self.contexts.len() as u64);
        let mut slots: Vec<u64> = Vec::with_capacity(homes + 8);
        for (hash, at) in std::mem::take(&mut self.contexts) {
            slots.resize(slots.len().max(scale(hash, homes)), 0);
            slots.push(slot_word(hash, at));
        }
        // One empty slot behind the last home and the last record ends every probe.
        slots.resize(slots.len().max(homes) + 1, 0);
        self.index = slots.iter().flat_map(|word| word.to_le_bytes()).collect();
        (self.ngrams > 0).then_some(self)
    }
}

/// Lengths that long contexts may have.
const LONG_LENGTHS: usize = MATCH_MAX - ORDER_MAX;
/// Bits of a record's total that count, where the others say which longer contexts there are.
const TOTAL_BITS: u32 = u64::BITS - LONG_LENGTHS as u32;

/// The total of a context of [`ORDER_MAX`] tokens as its record has it: above it a bit for each length of longer
/// contexts that end with this one, [`ORDER_MAX`] + 1 first. So nobody looks for longer ones where there are none.
pub(super) fn with_longer(total: u64, longer: u32) -> u64 {
    assert!(total >> TOTAL_BITS == 0, "texts have less than 2^32 tokens");
    total | u64::from(longer) << TOTAL_BITS
}

/// Slots that hashes are scaled to: 0.7 of them are taken.
pub(super) fn homes(contexts: u64) -> usize {
    (contexts as usize * 10).div_ceil(7).max(1)
}

/// A slot of the index: the fingerprint of a context, and the place of its record.
pub(super) fn slot_word(hash: u64, at: u32) -> u64 {
    hash << 32 | u64::from(at)
}

#[inline]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

#[inline]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b))
}

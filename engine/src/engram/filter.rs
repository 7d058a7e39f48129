//! Tier 0: a cuckoo filter that says which tables may know a context without touching any of them. Where it says that one does not, it
//! is never wrong; a context that no table knows is taken for some table's about once in 10,000 times. Built whole from the tables it
//! speaks for, and rebuilt when they change.
//!
//! Fan et al., "Cuckoo Filter: Practically Better Than Bloom" (2014): 4 fingerprints of 16 bits a bucket, two buckets a context, each
//! fingerprint with the bits of the tables that know its context. The second bucket is found by subtraction instead of xor, so that the
//! number of buckets need not be a power of two.

use super::context::Context;
use super::pages::Pages;
use super::table::prefetch;

/// Contexts of all orders of some tables.
#[derive(Debug)]
pub struct Filter {
    /// Buckets of [`BUCKET_BYTES`], each within a cache line.
    memory: Pages,
    buckets: usize,
}

/// A set of tables, by the bits that they have in a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableBits(u16);

/// 4 places: a fingerprint each, 0 = empty, and the tables that know its context.
#[derive(Clone, Copy)]
struct Bucket {
    prints: u64,
    tables: u64,
}

const BUCKET_BYTES: usize = 16;
const _: () = assert!(64_usize.is_multiple_of(BUCKET_BYTES), "a bucket never lies in two cache lines");

/// Share of places that are filled when all goes as planned; above 0.95 insertion begins to fail.
const LOAD: f64 = 0.85;
/// Fingerprints moved for one insertion before the filter is made larger.
const MOVES_MAX: u32 = 500;
/// Insertions whose buckets are asked for before the first of them is made.
const AHEAD: usize = 32;
const LANES: u64 = 0x0001_0001_0001_0001;
const TOPS: u64 = 0x8000_8000_8000_8000;

impl TableBits {
    /// The bit of a filter's table number `index`, from 0. Tables beyond 16 share bits: whoever asks for one of them may then be sent to it
    /// for a context that only another one knows.
    pub fn of(index: usize) -> Self {
        Self(1 << (index % 16))
    }

    /// No table.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether some table is in both sets.
    #[inline]
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl Filter {
    /// Of the contexts with these hashes, each with a table that knows it; a context of several tables takes one place.
    pub(super) fn new<I: Iterator<Item = (u64, TableBits)>>(contexts: u64, hashes: impl Fn() -> I) -> Self {
        let mut buckets = (contexts as f64 / (4.0 * LOAD)) as usize + 2;
        loop {
            let mut filter = Self { memory: Pages::zeroed(BUCKET_BYTES * buckets), buckets };
            if filter.insert_all(hashes()) {
                return filter;
            }
            buckets += buckets / 8 + 1;
        }
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        BUCKET_BYTES * self.buckets
    }

    /// The tables that may know the last `order` ids: all that do, and rarely others.
    #[inline]
    pub fn may_know(&self, context: &Context, order: usize) -> TableBits {
        context.hash(order).map_or(TableBits::default(), |hash| self.tables(hash))
    }

    /// Asks memory for what [`Filter::may_know`] will read; worth it for a batch of contexts before the first is asked.
    #[inline]
    pub fn prefetch(&self, context: &Context, order: usize) {
        if let Some(hash) = context.hash(order) {
            self.prefetch_hash(hash);
        }
    }

    #[inline]
    fn prefetch_hash(&self, hash: u64) {
        let (print, first) = self.place(hash);
        prefetch(&self.memory, BUCKET_BYTES * first);
        prefetch(&self.memory, BUCKET_BYTES * self.other(print, first));
    }

    #[inline]
    fn tables(&self, hash: u64) -> TableBits {
        let (print, first) = self.place(hash);
        // Both buckets are read whatever the first says: a branch that nobody can predict costs more than a load.
        let (a, b) = (self.bucket(first), self.bucket(self.other(print, first)));
        let lanes = (a.tables & a.lanes_of(print)) | (b.tables & b.lanes_of(print));
        let halves = lanes | lanes >> 32;
        TableBits((halves | halves >> 16) as u16)
    }

    /// Fingerprint, never 0, and first bucket.
    #[inline]
    fn place(&self, hash: u64) -> (u16, usize) {
        let print = (hash as u16).max(1);
        (print, scale(hash, self.buckets))
    }

    /// The other bucket of a fingerprint: its own inverse, as a cuckoo needs it.
    #[inline]
    fn other(&self, print: u16, bucket: usize) -> usize {
        let sum = scale(u64::from(print).wrapping_mul(0x9E37_79B9_7F4A_7C15), self.buckets);
        if sum >= bucket { sum - bucket } else { sum + self.buckets - bucket }
    }

    /// `false` if some did not fit.
    fn insert_all(&mut self, mut hashes: impl Iterator<Item = (u64, TableBits)>) -> bool {
        let mut some = Vec::with_capacity(AHEAD);
        loop {
            some.extend(hashes.by_ref().take(AHEAD).inspect(|(hash, _)| self.prefetch_hash(*hash)));
            if some.is_empty() {
                return true;
            }
            if !some.drain(..).all(|(hash, tables)| self.insert(hash, tables)) {
                return false;
            }
        }
    }

    fn insert(&mut self, hash: u64, tables: TableBits) -> bool {
        let (mut print, mut bucket) = self.place(hash);
        let other = self.other(print, bucket);
        // Equal fingerprints in the same buckets cannot be told apart anyway, and repeats would fill them for ever.
        if self.join(print, tables, bucket) || self.join(print, tables, other) {
            return true;
        }
        if self.put(print, tables, bucket) || self.put(print, tables, other) {
            return true;
        }
        let mut tables = tables;
        for step in 0..MOVES_MAX {
            let mut full = self.bucket(bucket);
            (print, tables) = full.swap(step.wrapping_mul(0x9E37_79B1) >> 30, print, tables);
            self.set(bucket, full);
            bucket = self.other(print, bucket);
            if self.put(print, tables, bucket) {
                return true;
            }
        }
        false
    }

    /// Adds tables to a fingerprint, if the bucket has it.
    fn join(&mut self, print: u16, tables: TableBits, at: usize) -> bool {
        let bucket = self.bucket(at);
        let lanes = bucket.lanes_of(print);
        if lanes != 0 {
            self.set(at, Bucket { tables: bucket.tables | (lanes & (LANES * u64::from(tables.0))), ..bucket });
        }
        lanes != 0
    }

    /// Puts a fingerprint into a free place, if the bucket has one.
    fn put(&mut self, print: u16, tables: TableBits, at: usize) -> bool {
        let mut bucket = self.bucket(at);
        let free = (0..4).find(|lane| (bucket.prints >> (16 * lane)) as u16 == 0);
        free.map(|lane| bucket.swap(lane, print, tables)).is_some_and(|_| {
            self.set(at, bucket);
            true
        })
    }

    #[inline]
    fn bucket(&self, at: usize) -> Bucket {
        let words = self.memory.as_chunks::<BUCKET_BYTES>().0[at].as_chunks().0;
        Bucket { prints: u64::from_ne_bytes(words[0]), tables: u64::from_ne_bytes(words[1]) }
    }

    fn set(&mut self, at: usize, bucket: Bucket) {
        let words = self.memory.as_chunks_mut::<BUCKET_BYTES>().0[at].as_chunks_mut().0;
        (words[0], words[1]) = (bucket.prints.to_ne_bytes(), bucket.tables.to_ne_bytes());
    }
}

impl Bucket {
    /// All bits of the 16-bit lanes whose fingerprint is `print`.
    #[inline]
    fn lanes_of(self, print: u16) -> u64 {
        let x = self.prints ^ (LANES * u64::from(print));
        // The top bit of a lane stays clear only where nothing of it is set; no lane's sum reaches the next one.
        let tops = !(((x & !TOPS) + !TOPS) | x) & TOPS;
        (tops >> 15) * u64::from(u16::MAX)
    }

    /// Puts this into a lane; what was there.
    fn swap(&mut self, lane: u32, print: u16, tables: TableBits) -> (u16, TableBits) {
        let at = 16 * lane;
        let before = ((self.prints >> at) as u16, TableBits((self.tables >> at) as u16));
        self.prints ^= u64::from(before.0 ^ print) << at;
        self.tables ^= u64::from(before.1.0 ^ tables.0) << at;
        before
    }
}

/// `hash` from 0..2^64 to 0..`size`.
#[inline]
pub(super) fn scale(hash: u64, size: usize) -> usize {
    ((u128::from(hash) * size as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TableBits = TableBits(1);

    fn hash(i: u64) -> u64 {
        super::super::context::hash(&[i as u32, (i >> 32) as u32])
    }

    #[test]
    fn every_member_is_known_and_strangers_almost_never_are() {
        for members in [0, 1, 7, 1_000, 200_000] {
            let filter = Filter::new(members, || (0..members).map(|i| (hash(i), ONE)));
            assert!((0..members).all(|i| filter.tables(hash(i)).meets(ONE)), "a member of {members} is missing");
            let strangers = 200_000;
            let wrong = (members..members + strangers).filter(|&i| !filter.tables(hash(i)).is_empty()).count();
            // 8 places of 16 bits, 0.85 filled: 1e-4.
            assert!(wrong < 60, "{wrong} of {strangers} strangers pass a filter of {members}");
            assert!(filter.bytes() as u64 <= 5 * members + 48);
        }
    }

    #[test]
    fn a_context_has_the_bits_of_all_tables_that_know_it_and_almost_never_others() {
        let knows = |i: u64, table: usize| hash(i ^ 0xAB00 << table).is_multiple_of(3);
        let pairs = || (0..20).flat_map(|t| (0..100_000).filter(move |&i| knows(i, t)).map(move |i| (hash(i), TableBits::of(t))));
        let filter = Filter::new(100_000, pairs);
        let mut wrong = 0;
        for i in 0..100_000 {
            let want = (0..20).filter(|&t| knows(i, t)).fold(0, |bits, t| bits | TableBits::of(t).0);
            let got = filter.tables(hash(i)).0;
            assert_eq!(got & want, want, "context {i} lacks a table");
            wrong += usize::from(got != want);
        }
        // 7 other places of 16 bits.
        assert!(wrong < 30, "{wrong} of 100,000 have a bit too many");
    }

    #[test]
    fn repeated_contexts_take_one_place() {
        let filter = Filter::new(100, || (0..10_000).map(|i| (hash(i % 10), TableBits::of(i as usize % 7))));
        assert!((0..10).all(|i| filter.tables(hash(i)) == TableBits(0x7F)));
        assert_eq!(filter.bytes(), 31 * BUCKET_BYTES);
    }

    #[test]
    fn contexts_that_all_want_the_same_two_buckets_make_it_larger_until_they_fit() {
        let same_place = |i: u64| (i + 1) | (1 << 63);
        let filter = Filter::new(8, || (0..64).map(|i| (same_place(i), TableBits::of(i as usize))));
        assert!((0..64).all(|i| filter.tables(same_place(i)).meets(TableBits::of(i as usize))));
    }
}

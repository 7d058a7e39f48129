//! Tier 0: a cuckoo filter that answers "no table knows this context" without touching any table. Never wrong in that answer; wrong
//! in the other one about once in 10,000 times. Built whole from the tables it speaks for, and rebuilt when they change.
//!
//! Fan et al., "Cuckoo Filter: Practically Better Than Bloom" (2014): 4 fingerprints of 16 bits a bucket, two buckets a context. The
//! second one is found by subtraction instead of xor, so that the number of buckets need not be a power of two.

use super::context::Context;
use super::pages::Pages;
use super::table::prefetch;

/// Contexts of all orders of some tables.
#[derive(Debug)]
pub struct Filter {
    /// Buckets of [`BUCKET_BYTES`]: 4 fingerprints each, 0 = empty.
    memory: Pages,
    buckets: usize,
}

const BUCKET_BYTES: usize = 8;

/// Share of places that are filled when all goes as planned; above 0.95 insertion begins to fail.
const LOAD: f64 = 0.85;
/// Fingerprints moved for one insertion before the filter is made larger.
const MOVES_MAX: u32 = 500;
const LANES: u64 = 0x0001_0001_0001_0001;
const TOPS: u64 = 0x8000_8000_8000_8000;

impl Filter {
    /// Of the contexts with these hashes; repeated ones take one place.
    pub(super) fn new<I: Iterator<Item = u64>>(contexts: u64, hashes: impl Fn() -> I) -> Self {
        let mut buckets = (contexts as f64 / (4.0 * LOAD)) as usize + 2;
        loop {
            let mut filter = Self { memory: Pages::zeroed(BUCKET_BYTES * buckets), buckets };
            if hashes().all(|hash| filter.insert(hash)) {
                return filter;
            }
            buckets += buckets / 8 + 1;
        }
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        BUCKET_BYTES * self.buckets
    }

    /// `false` only if no table knows the last `order` ids.
    #[inline]
    pub fn may_know(&self, context: &Context, order: usize) -> bool {
        context.hash(order).is_some_and(|hash| self.holds(hash))
    }

    /// Asks memory for what [`Filter::may_know`] will read; worth it for a batch of contexts before the first is asked.
    #[inline]
    pub fn prefetch(&self, context: &Context, order: usize) {
        if let Some(hash) = context.hash(order) {
            let (print, first) = self.place(hash);
            prefetch(&self.memory, BUCKET_BYTES * first);
            prefetch(&self.memory, BUCKET_BYTES * self.other(print, first));
        }
    }

    #[inline]
    fn holds(&self, hash: u64) -> bool {
        let (print, first) = self.place(hash);
        // Both buckets are read whatever the first says: a branch that nobody can predict costs more than a load.
        bucket_holds(self.bucket(first), print) | bucket_holds(self.bucket(self.other(print, first)), print)
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

    fn insert(&mut self, hash: u64) -> bool {
        let (mut print, mut bucket) = self.place(hash);
        // Equal fingerprints in the same buckets cannot be told apart anyway, and repeats would fill them for ever.
        if self.holds(hash) || self.put(print, bucket) || self.put(print, self.other(print, bucket)) {
            return true;
        }
        for step in 0..MOVES_MAX {
            let lane = (step.wrapping_mul(0x9E37_79B1) >> 30) * 16;
            let word = self.bucket(bucket);
            let evicted = (word >> lane) as u16;
            self.set(bucket, word ^ u64::from(evicted ^ print) << lane);
            print = evicted;
            bucket = self.other(print, bucket);
            if self.put(print, bucket) {
                return true;
            }
        }
        false
    }

    fn put(&mut self, print: u16, bucket: usize) -> bool {
        let word = self.bucket(bucket);
        let free = (0..64).step_by(16).find(|lane| (word >> lane) as u16 == 0);
        free.map(|lane| self.set(bucket, word | u64::from(print) << lane)).is_some()
    }

    #[inline]
    fn bucket(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.memory.as_chunks().0[at])
    }

    fn set(&mut self, at: usize, word: u64) {
        self.memory.as_chunks_mut().0[at] = word.to_ne_bytes();
    }
}

/// Whether one of the four 16-bit lanes is `print`: the lane that is zero after xor borrows from its top bit.
#[inline]
fn bucket_holds(bucket: u64, print: u16) -> bool {
    let x = bucket ^ (LANES * u64::from(print));
    x.wrapping_sub(LANES) & !x & TOPS != 0
}

/// `hash` from 0..2^64 to 0..`size`.
#[inline]
pub(super) fn scale(hash: u64, size: usize) -> usize {
    ((u128::from(hash) * size as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(i: u64) -> u64 {
        super::super::context::hash(&[i as u32, (i >> 32) as u32])
    }

    #[test]
    fn every_member_is_known_and_strangers_almost_never_are() {
        for members in [0, 1, 7, 1_000, 200_000] {
            let filter = Filter::new(members, || (0..members).map(hash));
            assert!((0..members).all(|i| filter.holds(hash(i))), "a member of {members} is missing");
            let strangers = 200_000;
            let wrong = (members..members + strangers).filter(|&i| filter.holds(hash(i))).count();
            // 8 places of 16 bits, 0.85 filled: 1e-4.
            assert!(wrong < 60, "{wrong} of {strangers} strangers pass a filter of {members}");
            assert!(filter.bytes() as u64 <= 3 * members + 16);
        }
    }

    #[test]
    fn repeated_contexts_take_one_place() {
        let filter = Filter::new(100, || (0..10_000).map(|i| hash(i % 10)));
        assert!((0..10).all(|i| filter.holds(hash(i))));
        assert_eq!(filter.bytes(), 31 * 8);
    }

    #[test]
    fn contexts_that_all_want_the_same_two_buckets_make_it_larger_until_they_fit() {
        let same_place = |i: u64| (i + 1) | (1 << 63);
        let filter = Filter::new(8, || (0..64).map(same_place));
        assert!((0..64).all(|i| filter.holds(same_place(i))));
    }
}

//! The last ids of a sequence, with the hash of every suffix.

use super::order::{MATCH_MAX, ORDER_MAX};
use crate::ids::TokenId;

/// Up to [`MATCH_MAX`] last ids of a sequence. All tables of a batch share the hashes of its ends up to [`ORDER_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Newest last; the first `MATCH_MAX - len` are unused.
    ids: [TokenId; MATCH_MAX],
    /// Of the last 1, 2, .. ids.
    hashes: [u64; ORDER_MAX],
    len: usize,
}

impl Context {
    /// From a sequence's ids so far, newest last; only the last [`MATCH_MAX`] are looked at.
    pub fn new(ids: &[TokenId]) -> Self {
        let len = ids.len().min(MATCH_MAX);
        let mut context = Self { ids: [0; MATCH_MAX], hashes: [0; ORDER_MAX], len };
        context.ids[MATCH_MAX - len..].copy_from_slice(&ids[ids.len() - len..]);
        context.hash_all();
        context
    }

    fn hash_all(&mut self) {
        let (mut hash, ids) = (SEED, self.ids);
        for (place, &id) in self.hashes.iter_mut().zip(ids.iter().rev()).take(self.len) {
            hash = extend(hash, id);
            *place = hash;
        }
    }

    /// Takes the sequence's next id.
    pub(super) fn push(&mut self, id: TokenId) {
        self.ids.copy_within(1.., 0);
        self.ids[MATCH_MAX - 1] = id;
        self.len = MATCH_MAX.min(self.len + 1);
        self.hash_all();
    }

    /// The last ids, newest last.
    pub fn ids(&self) -> &[TokenId] {
        &self.ids[MATCH_MAX - self.len..]
    }

    /// How many ids there are to look back at: the highest order that can be asked for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// A sequence without ids has no context of any order.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The last `order` ids; `None` if there are fewer.
    pub fn key(&self, order: usize) -> Option<&[TokenId]> {
        (1..=self.len).contains(&order).then(|| &self.ids[MATCH_MAX - order..])
    }

    /// The hash of [`Context::key`].
    #[inline]
    pub(super) fn hash(&self, order: usize) -> Option<u64> {
        if !(1..=self.len).contains(&order) {
            return None;
        }
        self.hashes.get(order - 1).copied().or_else(|| Some(self.long_hash(order)))
    }

    /// Of more than [`ORDER_MAX`] ids, of which few are asked for.
    fn long_hash(&self, order: usize) -> u64 {
        let older = self.ids[MATCH_MAX - order..MATCH_MAX - ORDER_MAX].iter().rev();
        older.fold(self.hashes[ORDER_MAX - 1], |hash, &id| extend(hash, id))
    }
}

const SEED: u64 = 0x2545_F491_4F6C_DD1D;

/// The hash of a context, newest id last. Part of the file format: records are sorted by it.
pub(super) fn hash(key: &[TokenId]) -> u64 {
    key.iter().rev().fold(SEED, |hash, &id| extend(hash, id))
}

/// Where a hash falls among `size` places: from 0..2^64 to 0..`size`.
#[inline]
pub(super) fn scale(hash: u64, size: usize) -> usize {
    ((u128::from(hash) * size as u128) >> 64) as usize
}

/// The hash of a context that reaches one id further back. From new to old, so that one pass yields the hashes of all
/// orders.
#[inline]
fn extend(hash: u64, id: TokenId) -> u64 {
    let x = (hash ^ (u64::from(id) + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^ (x >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suffix_has_the_hash_of_its_own_ids() {
        let ids: Vec<TokenId> = (10..50).collect();
        let context = Context::new(&ids);
        for order in 1..=MATCH_MAX {
            let key = context.key(order).unwrap();
            assert_eq!(key, &ids[40 - order..]);
            assert_eq!(context.hash(order), Some(hash(key)));
        }
        assert_eq!((context.key(0), context.key(MATCH_MAX + 1)), (None, None));
        assert_eq!((context.hash(0), context.hash(MATCH_MAX + 1)), (None, None));
    }

    #[test]
    fn a_context_that_took_its_ids_one_by_one_is_that_of_all_of_them() {
        let mut context = Context::new(&[]);
        for end in 1..=40 {
            context.push(end);
            assert_eq!(context, Context::new(&(1..=end).collect::<Vec<_>>()));
        }
    }

    #[test]
    fn a_young_sequence_has_only_the_orders_it_can_fill() {
        let context = Context::new(&[7, 8]);
        assert_eq!((context.len(), context.key(2), context.key(3)), (2, Some(&[7, 8][..]), None));
        assert!(Context::new(&[]).is_empty());
    }
}

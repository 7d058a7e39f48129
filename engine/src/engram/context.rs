//! The last ids of a sequence, with the hash of every suffix.

use super::ORDER_MAX;
use crate::ids::TokenId;

/// Up to [`ORDER_MAX`] last ids of a sequence. All tables of a batch share the hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Newest last; the first `ORDER_MAX - len` are unused.
    ids: [TokenId; ORDER_MAX],
    /// Of the last 1, 2, .. ids.
    hashes: [u64; ORDER_MAX],
    len: usize,
}

impl Context {
    /// From a sequence's ids so far, newest last; only the last [`ORDER_MAX`] are looked at.
    pub fn new(ids: &[TokenId]) -> Self {
        let len = ids.len().min(ORDER_MAX);
        let mut context = Self { ids: [0; ORDER_MAX], hashes: [0; ORDER_MAX], len };
        context.ids[ORDER_MAX - len..].copy_from_slice(&ids[ids.len() - len..]);
        context.hash_all();
        context
    }

    fn hash_all(&mut self) {
        let mut hash = SEED;
        for (place, &id) in self.hashes.iter_mut().zip(self.ids.iter().rev()).take(self.len) {
            hash = extend(hash, id);
            *place = hash;
        }
    }

    /// Takes the sequence's next id.
    pub(super) fn push(&mut self, id: TokenId) {
        self.ids.copy_within(1.., 0);
        self.ids[ORDER_MAX - 1] = id;
        self.len = ORDER_MAX.min(self.len + 1);
        self.hash_all();
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
        (1..=self.len).contains(&order).then(|| &self.ids[ORDER_MAX - order..])
    }

    /// The hash of [`Context::key`].
    #[inline]
    pub(super) fn hash(&self, order: usize) -> Option<u64> {
        self.hashes[..self.len].get(order.wrapping_sub(1)).copied()
    }
}

const SEED: u64 = 0x2545_F491_4F6C_DD1D;

/// The hash of a context, newest id last. Part of the file format: records are sorted by it.
pub(super) fn hash(key: &[TokenId]) -> u64 {
    key.iter().rev().fold(SEED, |hash, &id| extend(hash, id))
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
        let ids: Vec<TokenId> = (10..30).collect();
        let context = Context::new(&ids);
        for order in 1..=ORDER_MAX {
            let key = context.key(order).unwrap();
            assert_eq!(key, &ids[20 - order..]);
            assert_eq!(context.hash(order), Some(hash(key)));
        }
        assert_eq!((context.key(0), context.key(ORDER_MAX + 1)), (None, None));
        assert_eq!((context.hash(0), context.hash(ORDER_MAX + 1)), (None, None));
    }

    #[test]
    fn a_context_that_took_its_ids_one_by_one_is_that_of_all_of_them() {
        let mut context = Context::new(&[]);
        for end in 1..=20 {
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

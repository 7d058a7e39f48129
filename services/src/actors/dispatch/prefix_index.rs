//! The prompts that replicas keep in their prefix caches, by units: what a dispatcher goes by. It hears of changes a
//! moment after they were made, and a prompt that leaves a kept one in the middle of it counts as kept up to there,
//! although an entry may lie only further on. So it may be wrong, and then a prompt is computed where it could have
//! been spared.

use crate::limits;
use chimere_engine::CHUNK_TOKENS;
use chimere_engine::scheduler::{CacheTier, PrefixChange, Request, unit_hash};
use dashmap::DashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Replicas that the index has room for.
const REPLICAS_MAX: usize = limits::REPLICAS_MAX as usize;

/// Bits of a word of the index that a replica takes, one for each tier.
const TIERS: usize = 2;

const _: () = assert!(REPLICAS_MAX * TIERS <= u64::BITS as usize, "a word has a bit for each");

/// Units of prompts by their hashes, each with the replicas that keep it.
#[derive(Debug, Default)]
pub(super) struct PrefixIndex {
    units: DashMap<u64, u64, BuildHasherDefault<HashOfHash>>,
}

impl PrefixIndex {
    /// The cache of a replica has changed. Returns the changes of all caches together: a unit is gone when none has it.
    pub(super) fn note(&self, replica: usize, changes: Vec<PrefixChange>) -> Vec<PrefixChange> {
        let together = changes.into_iter().filter_map(|change| match change {
            PrefixChange::Stored { tier, ref units, .. } => {
                units.iter().for_each(|unit| *self.units.entry(unit.hash).or_default() |= bit(replica, tier));
                Some(change)
            }
            PrefixChange::Removed { tier, mut units } => {
                units.retain(|hash| self.clear(*hash, replica, tier));
                (!units.is_empty()).then_some(PrefixChange::Removed { tier, units })
            }
        });
        together.collect()
    }

    /// A replica keeps a unit no longer in a tier. True if none does.
    fn clear(&self, hash: u64, replica: usize, tier: CacheTier) -> bool {
        let mut by_none = true;
        self.units.remove_if_mut(&hash, |_, kept| {
            *kept &= !bit(replica, tier);
            by_none = (0..REPLICAS_MAX).all(|other| *kept & bit(other, tier) == 0);
            *kept == 0
        });
        by_none
    }

    /// A replica keeps nothing any more.
    pub(super) fn forget(&self, replica: usize) {
        let bits = [CacheTier::Device, CacheTier::Host].map(|tier| bit(replica, tier));
        self.units.retain(|_, kept| {
            *kept &= !(bits[0] | bits[1]);
            *kept != 0
        });
    }

    /// Tokens of a request's prompt that each of so many replicas keeps. The walk ends where none keeps any more of it.
    pub(super) fn kept(&self, request: &Request, replicas: usize) -> Vec<u32> {
        let mut kept = vec![0; replicas];
        let Some(scope) = request.spec.cache_scope() else { return kept };
        let mut set = |bits: u64, tokens: u32| {
            let each = kept.iter_mut().enumerate().filter(|(replica, _)| bits & bit(*replica, CacheTier::Device) != 0);
            each.for_each(|(_, kept)| *kept = tokens);
        };
        let (mut before, mut on, mut tokens) = (None, u64::MAX, 0);
        for unit in request.prompt.chunks_exact(CHUNK_TOKENS as usize) {
            let hash = unit_hash(scope, before, unit);
            let with = on & self.units.get(&hash).map_or(0, |bits| whole(*bits));
            if with != on {
                // These keep the units before this one.
                set(on & !with, tokens);
                on = with;
            }
            if on == 0 {
                return kept;
            }
            tokens += CHUNK_TOKENS;
            before = Some(hash);
        }
        set(on, tokens);
        kept
    }
}

/// Takes a unit's hash as it is: it was made by a hasher.
#[derive(Clone, Copy, Debug, Default)]
struct HashOfHash(u64);

impl Hasher for HashOfHash {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The bit of a replica's tier.
fn bit(replica: usize, tier: CacheTier) -> u64 {
    1 << (TIERS * replica + usize::from(tier == CacheTier::Host))
}

/// The bits of the device's tier, set for the replicas that keep the unit in any tier.
fn whole(bits: u64) -> u64 {
    const DEVICES: u64 = u64::MAX / 3;
    (bits | bits >> 1) & DEVICES
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::ids::{CacheScope, RequestId, TokenId};
    use chimere_engine::scheduler::{Spec, StoredUnit};

    fn prompt(tokens: std::ops::Range<TokenId>) -> Request {
        let spec = Spec { cache: Some(CacheScope(7)), ..Spec::greedy(1) };
        Request::new(RequestId(0), tokens.collect::<Vec<_>>(), spec)
    }

    /// The units of a prompt, as a cache would tell of them.
    fn units(request: &Request) -> Vec<StoredUnit> {
        let (scope, mut before) = (request.spec.cache_scope().unwrap(), None);
        let chunks = request.prompt.chunks_exact(CHUNK_TOKENS as usize);
        let stored = chunks.map(|unit| {
            let hash = unit_hash(scope, before, unit);
            before = Some(hash);
            StoredUnit { hash, tokens: unit.into() }
        });
        stored.collect()
    }

    #[test]
    fn each_replica_keeps_what_it_stored_in_some_tier_and_has_not_removed_from_both() {
        let (index, long) = (PrefixIndex::default(), prompt(0..256));
        let all = units(&long);
        let stored = |tier, n: usize| PrefixChange::Stored { tier, parent: None, units: all[..n].to_vec() };
        index.note(0, vec![stored(CacheTier::Device, 2)]);
        index.note(2, vec![stored(CacheTier::Device, 4), stored(CacheTier::Host, 3)]);
        assert_eq!(index.kept(&long, 3), [128, 0, 256]);
        assert_eq!(index.kept(&prompt(0..100), 3), [64, 0, 64], "whole units only");
        assert_eq!(index.kept(&prompt(1..257), 3), [0, 0, 0]);
        let hashes: Vec<_> = all.iter().map(|unit| unit.hash).collect();
        let removed = PrefixChange::Removed { tier: CacheTier::Device, units: hashes.clone() };
        let together = PrefixChange::Removed { tier: CacheTier::Device, units: hashes[2..].to_vec() };
        assert_eq!(index.note(2, vec![removed]), [together], "another one has the first two");
        assert_eq!(index.kept(&long, 3), [128, 0, 192], "the host keeps three units");
        index.forget(2);
        assert_eq!(index.kept(&long, 3), [128, 0, 0]);
        index.forget(0);
        assert!(index.units.is_empty());
    }

    #[test]
    fn the_last_replica_that_has_room_is_told_from_the_first() {
        let (index, request) = (PrefixIndex::default(), prompt(0..64));
        let last = REPLICAS_MAX - 1;
        index.note(last, vec![PrefixChange::Stored { tier: CacheTier::Host, parent: None, units: units(&request) }]);
        let kept = index.kept(&request, REPLICAS_MAX);
        assert_eq!((kept[0], kept[last], kept.iter().sum::<u32>()), (0, 64, 64));
    }
}

//! State slots: one a live sequence, for its recurrent state. Free ones can be lent to idle work, as pages can
//! ([`super::pages`]).

use crate::ids::{SeqId, SlotId};
use std::collections::BTreeMap;

/// All state slots of the device. A slot is free or has exactly one owner.
#[derive(Debug)]
pub(crate) struct Slots {
    taken: Vec<bool>,
    /// Last freed, first claimed.
    free: Vec<SlotId>,
    /// Free slots that a sequence of idle work uses until they are claimed.
    lent: BTreeMap<SeqId, SlotId>,
}

impl Slots {
    /// A pool of `count` free slots.
    pub(crate) fn new(count: u32) -> Self {
        let free = (0..count).rev().map(SlotId).collect();
        Self { taken: vec![false; count as usize], free, lent: BTreeMap::new() }
    }

    /// Takes a free slot, that of the youngest borrower where all free ones are lent.
    pub(crate) fn claim(&mut self) -> Option<SlotId> {
        let slot = self.free.pop().or_else(|| self.lent.pop_last().map(|(_, slot)| slot))?;
        self.taken[slot.0 as usize] = true;
        Some(slot)
    }

    /// Gives a slot back.
    pub(crate) fn release(&mut self, slot: SlotId) {
        let taken = &mut self.taken[slot.0 as usize];
        assert!(*taken, "slot {slot} is released twice");
        *taken = false;
        self.free.push(slot);
    }

    /// Lends a free slot that is not lent yet to a sequence that has none. Nobody else loses one for it.
    pub(crate) fn lend(&mut self, borrower: SeqId) -> Option<SlotId> {
        let slot = self.free.pop()?;
        assert_eq!(self.lent.insert(borrower, slot), None, "sequence {borrower} borrows a second slot");
        Some(slot)
    }

    /// Slots that could be lent now.
    #[cfg(test)]
    pub(crate) fn lendable(&self) -> u32 {
        self.free.len() as u32
    }

    /// The slot that a sequence has borrowed and not lost.
    pub(crate) fn lent_to(&self, borrower: SeqId) -> Option<SlotId> {
        self.lent.get(&borrower).copied()
    }

    /// A borrower returns its slot, if it still has it.
    pub(crate) fn return_lent(&mut self, borrower: SeqId) {
        self.free.extend(self.lent.remove(&borrower));
    }

    /// Number of slots without an owner, those that are lent among them.
    pub(crate) fn free(&self) -> u32 {
        (self.free.len() + self.lent.len()) as u32
    }

    /// Number of slots, free and taken.
    pub(crate) fn total(&self) -> u32 {
        self.taken.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_owner_at_a_time() {
        let mut slots = Slots::new(2);
        let (a, b) = (slots.claim().unwrap(), slots.claim().unwrap());
        assert_ne!(a, b);
        assert_eq!((slots.claim(), slots.free(), slots.total()), (None, 0, 2));
        slots.release(a);
        assert_eq!(slots.claim(), Some(a));
    }

    #[test]
    fn a_lent_slot_is_free_and_the_youngest_borrower_loses_its_slot_to_a_claim() {
        let mut slots = Slots::new(3);
        let (old, young) = (SeqId(1), SeqId(2));
        let (first, second) = (slots.lend(old), slots.lend(young));
        assert_eq!((slots.free(), slots.lendable()), (3, 1));
        slots.claim().unwrap();
        assert_eq!((slots.lent_to(old), slots.lent_to(young), slots.lend(SeqId(3))), (first, second, None));
        assert_eq!(slots.claim(), second);
        assert_eq!((slots.lent_to(old), slots.lent_to(young), slots.free()), (first, None, 1));
        slots.return_lent(old);
        slots.return_lent(young);
        assert_eq!((slots.free(), slots.lendable()), (1, 1), "who has lost it has none to return");
    }

    #[test]
    #[should_panic(expected = "released twice")]
    fn a_slot_released_twice_is_a_bug() {
        let mut slots = Slots::new(1);
        let slot = slots.claim().unwrap();
        slots.release(slot);
        slots.release(slot);
    }
}

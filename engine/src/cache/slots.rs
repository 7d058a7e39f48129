//! State slots: one a live sequence, for its recurrent state.

use crate::ids::SlotId;

/// All state slots of the device. A slot is free or has exactly one owner.
#[derive(Debug)]
pub(crate) struct Slots {
    taken: Vec<bool>,
    /// Last freed, first claimed.
    free: Vec<SlotId>,
}

impl Slots {
    /// A pool of `count` free slots.
    pub(crate) fn new(count: u32) -> Self {
        Self { taken: vec![false; count as usize], free: (0..count).rev().map(SlotId).collect() }
    }

    /// Takes a free slot.
    pub(crate) fn claim(&mut self) -> Option<SlotId> {
        let slot = self.free.pop()?;
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

    /// Number of slots without an owner.
    pub(crate) fn free(&self) -> u32 {
        self.free.len() as u32
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
    #[should_panic(expected = "released twice")]
    fn a_slot_released_twice_is_a_bug() {
        let mut slots = Slots::new(1);
        let slot = slots.claim().unwrap();
        slots.release(slot);
        slots.release(slot);
    }
}

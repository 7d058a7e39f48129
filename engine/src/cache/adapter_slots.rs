//! Slots of adapters: which adapter lies in which, and which one leaves for another. Adapters go by their numbers.
//!
//! An adapter with sequences that run is *wanted*. While there are slots for all that are wanted, none waits. Beyond
//! that the slots rotate: the adapter that has waited longest is next, once in [`ADAPTER_SWAP_US`] at most, and takes
//! the place of one that nothing wants, or else of the one that has had its slot longest. So with `n` adapters wanted
//! and `s` slots none waits for longer than `n - s` swaps, and each keeps its slot for `s` of them.

use crate::ids::{AdapterSlotId, Micros};
use std::collections::{BTreeMap, BTreeSet};

/// Microseconds between two swaps. A copy to a device takes some milliseconds, in which no row is computed; so little
/// of the time goes to copies however many adapters take turns.
pub(crate) const ADAPTER_SWAP_US: u64 = 50_000;

/// See the file's head.
#[derive(Debug)]
pub(crate) struct AdapterSlots {
    slots: Vec<Option<Resident>>,
    /// Adapters that are wanted and lie in no slot, with the time since then.
    waiting: BTreeMap<u64, Micros>,
    swapped: Option<Micros>,
    swaps: u64,
}

/// The adapter in a slot.
#[derive(Clone, Copy, Debug)]
struct Resident {
    number: u64,
    since: Micros,
    /// When rows of it were planned last.
    used: Micros,
}

impl AdapterSlots {
    /// So many empty slots.
    pub(crate) fn new(count: usize) -> Self {
        assert!(count <= usize::from(u16::MAX), "{count} slots for adapters have no numbers");
        Self { slots: vec![None; count], waiting: BTreeMap::new(), swapped: None, swaps: 0 }
    }

    /// Settles which adapters the next step's rows may have, of those that are wanted.
    pub(crate) fn settle(&mut self, wanted: &BTreeSet<u64>, now: Micros) {
        self.waiting.retain(|number, _| wanted.contains(number));
        for number in wanted {
            if !self.holds(*number) {
                self.waiting.entry(*number).or_insert(now);
            }
        }
        while let Some(free) = self.slots.iter().position(Option::is_none) {
            let Some(number) = self.first_waiting() else { return };
            self.put(free, number, now);
        }
        let may_swap = self.swapped.is_none_or(|at| now.since(at).0 >= ADAPTER_SWAP_US);
        if let Some(number) = self.first_waiting().filter(|_| may_swap) {
            self.swap_in(number, wanted, now);
        }
    }

    /// Gives an adapter a slot at once, for a step that would have no rows without.
    pub(crate) fn swap_in(&mut self, number: u64, wanted: &BTreeSet<u64>, now: Micros) {
        let leaves_first = |(_, slot): &(usize, &Option<Resident>)| {
            slot.map(|resident| {
                let wanted = wanted.contains(&resident.number);
                (wanted, if wanted { resident.since } else { resident.used })
            })
        };
        let Some((at, _)) = self.slots.iter().enumerate().min_by_key(leaves_first) else { return };
        let swaps = self.slots[at].is_some();
        self.put(at, number, now);
        if swaps {
            (self.swapped, self.swaps) = (Some(now), self.swaps + 1);
        }
    }

    /// Lets a sequence that starts in the middle of a plan have an empty slot for its adapter, if one is left;
    /// otherwise the adapter waits.
    pub(crate) fn take_empty(&mut self, number: u64, now: Micros) {
        if self.holds(number) {
            return;
        }
        match self.slots.iter().position(Option::is_none) {
            Some(at) => self.put(at, number, now),
            None => _ = self.waiting.entry(number).or_insert(now),
        }
    }

    fn put(&mut self, at: usize, number: u64, now: Micros) {
        self.waiting.remove(&number);
        self.slots[at] = Some(Resident { number, since: now, used: now });
    }

    fn first_waiting(&self) -> Option<u64> {
        self.waiting.iter().min_by_key(|(number, since)| (**since, **number)).map(|(number, _)| *number)
    }

    /// Does an adapter lie in a slot?
    pub(crate) fn holds(&self, number: u64) -> bool {
        self.slots.iter().flatten().any(|resident| resident.number == number)
    }

    /// The slot of an adapter whose rows are planned now.
    pub(crate) fn slot_of(&mut self, number: u64, now: Micros) -> AdapterSlotId {
        let of = |slot: &Option<Resident>| slot.is_some_and(|resident| resident.number == number);
        let at = self.slots.iter().position(of).expect("rows without a slot for their adapter are not planned");
        self.slots[at].as_mut().expect("it was found just now").used = now;
        AdapterSlotId(at as u16)
    }

    /// Adapters that are wanted and have no slot.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.len() as u32
    }

    /// Adapters that gave up their slot to another one, since the start.
    pub(crate) fn swaps(&self) -> u64 {
        self.swaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident(slots: &AdapterSlots) -> Vec<u64> {
        slots.slots.iter().flatten().map(|resident| resident.number).collect()
    }

    #[test]
    fn slots_go_to_those_that_wait_and_from_those_that_nothing_wants() {
        let mut slots = AdapterSlots::new(3);
        let at = |ms: u64| Micros(ms * 1_000);
        slots.settle(&[1, 2].into(), at(0));
        slots.take_empty(3, at(0));
        slots.take_empty(4, at(0));
        assert_eq!((resident(&slots), slots.slot_of(2, at(1))), (vec![1, 2, 3], AdapterSlotId(1)));
        slots.slot_of(3, at(2));
        // 2 and 3 are wanted by nothing any more; 2 was used before 3.
        slots.settle(&[1, 5].into(), at(3));
        assert_eq!((resident(&slots), slots.swaps()), (vec![1, 5, 3], 1));
        slots.settle(&[1, 5, 6].into(), at(52));
        assert!(!slots.holds(6), "two swaps lie as far apart as they must");
        slots.settle(&[1, 5, 6].into(), at(53));
        assert_eq!(resident(&slots), [1, 5, 6]);
    }

    #[test]
    fn nine_take_turns_in_eight_slots_and_none_waits_for_longer_than_a_swap() {
        let (mut slots, wanted) = (AdapterSlots::new(8), BTreeSet::from_iter(1..10));
        let mut waits = BTreeMap::<u64, u64>::new();
        for ms in 0..2_000 {
            slots.settle(&wanted, Micros(ms * 1_000));
            for number in &wanted {
                let waited = waits.entry(*number).or_default();
                *waited = if slots.holds(*number) { 0 } else { *waited + 1 };
                assert!(*waited <= 50, "{number} waits for {waited} ms");
            }
        }
        assert_eq!(slots.swaps(), 40);
    }

    #[test]
    fn what_is_wanted_no_more_stops_waiting() {
        let mut slots = AdapterSlots::new(1);
        let at = |ms: u64| Micros(ms * 1_000);
        slots.settle(&[1].into(), at(0));
        slots.settle(&[1, 2].into(), at(0));
        slots.settle(&[1, 2].into(), at(1));
        slots.settle(&[2].into(), at(2));
        slots.settle(&[2, 3].into(), at(60));
        assert!(slots.holds(3), "it has waited since 60 ms, and 2 has its slot since 0 ms");
        slots.settle(&[2, 3].into(), at(61));
        assert_eq!(slots.first_waiting(), Some(2));
    }
}

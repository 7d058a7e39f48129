//! Up to which position the recurrent state of each slot is stored.
//!
//! Decode rows store a state at some positions only, fewer where sequences are many ([`gdn_decode`]): a row between
//! leaves an update, which those behind it apply first; drafted rows leave updates only. Prompts find and leave states
//! that are whole.
//!
//! [`gdn_decode`]: chimere_kernels::cuda::gdn_decode

use super::leader::Lead;
use crate::ids::SlotId;
use crate::step::{StateCopy, StateStart, StepPlan};
use chimere_kernels::cuda::gdn_decode::{DraftRoom, STORE_EVERY, pending_word, store_every, stores};

const _: () = assert!(crate::CHUNK_TOKENS.is_multiple_of(STORE_EVERY as u32), "a chunk finds a state that is whole");

/// How far the stored recurrent state of each slot is behind its sequence.
pub(crate) struct StoredStates {
    slots: Vec<Stored>,
    /// A row whose position was not known when it was launched: that if no draft before it counts, how many stand
    /// behind it, after how many positions it stores, and what tells.
    open: Vec<Option<(u32, u32, usize, Lead)>>,
    /// After how many positions a row of this step stores.
    every: usize,
}

/// The stored recurrent state of one slot.
#[derive(Clone, Copy, Debug, Default)]
struct Stored {
    /// The state is that behind so many positions.
    whole: u32,
    /// The position that comes next if none of `drafts` counts.
    next: u32,
    /// How many drafted rows stood behind the last one.
    drafts: u32,
}

/// What a decode row finds of the positions before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lacking {
    /// How many updates it applies: those of the positions right before it.
    pub(crate) pending: i32,
    /// Of these how many were drafted rows of the step before.
    pub(crate) drafted: i32,
    /// Whether the row stores its state.
    pub(crate) stores: bool,
}

impl Lacking {
    /// As kernels take it, without the drafted ones.
    pub(crate) fn word(self) -> i32 {
        pending_word(self.pending as u32, self.stores)
    }

    /// Whether kernels that know nothing of drafts apply this.
    pub(crate) fn does_without_drafts(self) -> bool {
        DraftRoom::does_without(self.pending as usize, self.drafted as usize)
    }
}

impl StoredStates {
    /// Of slots that are empty.
    pub(crate) fn new(slots: u32) -> Self {
        let slots = slots as usize;
        Self { slots: vec![Stored::default(); slots], open: vec![None; slots], every: STORE_EVERY }
    }

    /// What a plan copies, clears and restores before its rows.
    pub(crate) fn begin(&mut self, plan: &StepPlan) {
        self.every = store_every(plan.pieces.len());
        for copy in &plan.copies {
            if let StateCopy::Slot { from, to } = copy {
                self.close(*from);
                self.open[to.0 as usize] = None;
                self.slots[to.0 as usize] = self.slots[from.0 as usize];
            }
        }
        for piece in &plan.pieces {
            match piece.state {
                StateStart::Clear | StateStart::Restore { .. } => self.whole(piece.slot, piece.start),
                StateStart::Continue => {}
            }
        }
    }

    /// These slots ran as prompts up to these positions, and so have states that are whole there.
    pub(crate) fn prompts_were_computed(&mut self, ends: impl Iterator<Item = (SlotId, u32)>) {
        ends.for_each(|(slot, end)| self.whole(slot, end));
    }

    fn whole(&mut self, slot: SlotId, position: u32) {
        self.open[slot.0 as usize] = None;
        self.slots[slot.0 as usize] = Stored { whole: position, next: position, drafts: 0 };
    }

    /// A row behind which so many drafts stand follows one whose drafts are not known yet: its position is this if none
    /// counts. Behind how many positions the slot's state is stored, and after how many the row stores it.
    pub(crate) fn follow(&mut self, slot: SlotId, position: u32, drafts: usize, lead: Lead) -> (u32, usize) {
        self.close(slot);
        let stored = &self.slots[slot.0 as usize];
        // As for any row: who begins anywhere has its state there.
        let whole = if stored.next == position { stored.whole } else { position };
        self.open[slot.0 as usize] = Some((position, drafts as u32, self.every, lead));
        (whole, self.every)
    }

    /// A slot's last row had a position that was not known: by now it is, unless nobody has waited for its step and so
    /// nobody goes on from it.
    fn close(&mut self, slot: SlotId) {
        let Some((position, drafts, every, lead)) = self.open[slot.0 as usize].take() else { return };
        let Some(settled) = lead.settled() else { return };
        let now = std::mem::replace(&mut self.every, every);
        self.row(slot, position + settled.accepted, drafts as usize);
        self.every = now;
    }

    /// A decode row that is not drafted stands at this position, with so many drafted ones behind it.
    pub(crate) fn row(&mut self, slot: SlotId, position: u32, drafts: usize) -> Lacking {
        self.close(slot);
        let stored = &mut self.slots[slot.0 as usize];
        if !(stored.next..=stored.next + stored.drafts).contains(&position) {
            // Benchmarks and tests begin anywhere, from a state that they take for the one there.
            *stored = Stored { whole: position, next: position, drafts: 0 };
        }
        let (pending, drafted) = (position - stored.whole, position - stored.next);
        let stores = stores(position, pending, self.every);
        if stores {
            stored.whole = position + 1;
        }
        (stored.next, stored.drafts) = (position + 1, drafts as u32);
        Lacking { pending: pending as i32, drafted: drafted as i32, stores }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::StepId;

    fn pending(stored: &mut StoredStates, slot: u32, positions: std::ops::Range<u32>) -> Vec<i32> {
        positions.map(|position| stored.row(SlotId(slot), position, 0).pending).collect()
    }

    /// Of steps of so many sequences.
    fn of(slots: u32, sequences: usize) -> StoredStates {
        StoredStates { every: store_every(sequences), ..StoredStates::new(slots) }
    }

    #[test]
    fn a_row_applies_what_those_since_the_last_store_or_prompt_left() {
        let mut stored = of(2, 2);
        stored.prompts_were_computed([(SlotId(1), 6)].into_iter());
        assert_eq!(pending(&mut stored, 1, 6..14), [0, 1, 0, 1, 2, 3, 0, 1]);
        assert_eq!(pending(&mut stored, 0, 0..5), [0, 1, 2, 3, 0], "a slot that was empty");
        stored.prompts_were_computed([(SlotId(1), 6)].into_iter());
        let copy = StateCopy::Slot { from: SlotId(1), to: SlotId(0) };
        stored.begin(&StepPlan { copies: vec![copy], ..StepPlan::new(StepId(1), Vec::new()) });
        assert_eq!(pending(&mut stored, 0, 6..8), [0, 1]);
    }

    #[test]
    fn among_many_sequences_a_state_is_stored_half_as_often() {
        let mut stored = of(1, 64);
        assert_eq!(pending(&mut stored, 0, 0..10), [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]);
        // Whoever is left with few has lacked enough, and stores.
        assert_eq!(pending(&mut stored, 0, 10..14), [2, 3, 4, 5]);
        stored.every = store_every(1);
        let row = stored.row(SlotId(0), 14, 0);
        assert_eq!((row.pending, row.stores, row.word()), (6, true, 6 | 1 << 16));
        assert_eq!(pending(&mut stored, 0, 15..17), [0, 0]);
    }

    #[test]
    fn drafted_rows_store_nothing_and_leave_what_counts_to_the_next_row() {
        let mut stored = of(1, 1);
        let mut row = |position, drafts| {
            let Lacking { pending, drafted, .. } = stored.row(SlotId(0), position, drafts);
            (pending, drafted)
        };
        // Of seven drafts six count, so positions 0 to 6 are pending, one of them the row's own.
        assert_eq!([row(0, 7), row(7, 7), row(8, 2)], [(0, 0), (7, 6), (0, 0)]);
        assert_eq!([row(11, 0), row(12, 0), row(13, 0)], [(3, 2), (0, 0), (1, 0)]);
        assert_eq!([row(9, 1), row(97, 0), row(98, 0)], [(0, 0), (0, 0), (1, 0)], "whoever jumps brings a state");
    }
}

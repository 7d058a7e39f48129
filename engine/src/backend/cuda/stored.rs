//! Up to which position the recurrent state of each slot is stored.
//!
//! Decode rows store a state at every [`STORE_EVERY`]-th position only ([`gdn_decode`]): a row between leaves an
//! update, which those behind it apply first. Prompts find and leave states that are whole. So what a row has to apply
//! follows from its position and from where the slot's last prompt ended, and from nothing that runs beside it.
//!
//! [`gdn_decode`]: chimere_kernels::cuda::gdn_decode

use crate::ids::SlotId;
use crate::step::{StateCopy, StateStart, StepPlan};
use chimere_kernels::cuda::gdn_decode::STORE_EVERY;

const _: () = assert!(crate::CHUNK_TOKENS.is_multiple_of(STORE_EVERY as u32), "a chunk finds a state that is whole");

/// By slot: behind so many positions decode rows go on from a state that was whole.
pub(super) struct StoredStates(Vec<u32>);

impl StoredStates {
    /// Of slots that are empty.
    pub(super) fn new(slots: u32) -> Self {
        Self(vec![0; slots as usize])
    }

    /// What a plan copies, clears and restores before its rows.
    pub(super) fn begin(&mut self, plan: &StepPlan) {
        for copy in &plan.copies {
            if let StateCopy::Slot { from, to } = copy {
                self.0[to.0 as usize] = self.0[from.0 as usize];
            }
        }
        for piece in &plan.pieces {
            match piece.state {
                StateStart::Clear | StateStart::Restore { .. } => self.0[piece.slot.0 as usize] = piece.start,
                StateStart::Continue => {}
            }
        }
    }

    /// These slots ran as prompts up to these positions, and so have states that are whole there.
    pub(super) fn prompts_were_computed(&mut self, ends: impl Iterator<Item = (SlotId, u32)>) {
        for (slot, end) in ends {
            self.0[slot.0 as usize] = end;
        }
    }

    /// How many updates a decode row at this position applies: those of the positions right before it.
    pub(super) fn pending(&self, slot: SlotId, position: u32) -> i32 {
        let since = position.saturating_sub(self.0[slot.0 as usize]);
        (position % STORE_EVERY as u32).min(since) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::StepId;

    fn pending(stored: &StoredStates, slot: u32, positions: std::ops::Range<u32>) -> Vec<i32> {
        positions.map(|position| stored.pending(SlotId(slot), position)).collect()
    }

    #[test]
    fn a_row_applies_what_those_since_the_last_store_or_prompt_left() {
        let mut stored = StoredStates::new(2);
        stored.prompts_were_computed([(SlotId(1), 6)].into_iter());
        assert_eq!(pending(&stored, 1, 6..14), [0, 1, 0, 1, 2, 3, 0, 1]);
        assert_eq!(pending(&stored, 0, 0..5), [0, 1, 2, 3, 0], "a slot that was empty");
        let copy = StateCopy::Slot { from: SlotId(1), to: SlotId(0) };
        stored.begin(&StepPlan { copies: vec![copy], ..StepPlan::new(StepId(1), Vec::new()) });
        assert_eq!(pending(&stored, 0, 6..8), [0, 1]);
    }
}

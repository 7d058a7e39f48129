//! Rows that the draft head has not read. Most steps ask for no guess, so what a decode pass without drafts leaves for
//! the head is its rows' hidden states and tokens, which slots keep by position ([`draft_head::RING`] of them), and
//! their keys and values wait until a guess is asked for or the place is needed: then many rows are read together.

use crate::backend::cuda::step::rows::Row;
use crate::backend::cuda::step::stored::Lacking;
use crate::ids::SlotId;
use crate::step::{StateCopy, StateStart, StepPlan};
use chimere_kernels::cuda::draft_head::{KEPT, RING};
use std::ops::Range;

/// Positions that wait, by slot. Rows that were read at once may be among them: reading one twice changes nothing.
pub(super) struct LateRows {
    slots: Vec<Range<i32>>,
}

impl LateRows {
    /// Of slots that are empty.
    pub(super) fn new(slots: u32) -> Self {
        Self { slots: vec![0..0; slots as usize] }
    }

    /// What a plan copies, clears and restores before its rows.
    pub(super) fn begin(&mut self, plan: &StepPlan) {
        for copy in &plan.copies {
            if let StateCopy::Slot { from, to } = copy {
                self.slots[to.0 as usize] = self.slots[from.0 as usize].clone();
            }
        }
        for piece in &plan.pieces {
            match piece.state {
                StateStart::Clear | StateStart::Restore { .. } => self.slots[piece.slot.0 as usize] = 0..0,
                StateStart::Continue => {}
            }
        }
    }

    /// The rows of a pass wait from now on.
    pub(super) fn wait(&mut self, rows: &[Row]) {
        for row in rows {
            let waits = self.slots[row.slot as usize].clone();
            let goes_on = !waits.is_empty() && (waits.end..waits.start + RING as i32).contains(&row.position);
            // Benchmarks and tests begin anywhere.
            let start = if goes_on { waits.start } else { row.position };
            self.slots[row.slot as usize] = start..row.position + 1;
        }
    }

    /// Would these rows take the place of the hidden state before one that waits?
    pub(super) fn is_due(&self, rows: &[Row]) -> bool {
        rows.iter().any(|row| {
            let waits = &self.slots[row.slot as usize];
            !waits.is_empty() && row.position + 1 - waits.start >= RING as i32
        })
    }

    /// What waits of these slots, which is to be read now.
    pub(super) fn take(&mut self, slots: impl Iterator<Item = SlotId>) -> Vec<Row> {
        let rows = slots.flat_map(|slot| {
            let waits = std::mem::take(&mut self.slots[slot.0 as usize]);
            waits.map(move |position| kept(slot, position))
        });
        rows.collect()
    }
}

/// A row of which the slot knows the rest.
fn kept(slot: SlotId, position: i32) -> Row {
    Row { token: KEPT, slot: slot.0 as i32, position, prompt_len: 0, lacking: Lacking::default(), cut: [0; 2] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::StepId;

    fn rows(slot: u32, positions: Range<i32>) -> Vec<Row> {
        positions.map(|position| Row { token: 5, ..kept(SlotId(slot), position) }).collect()
    }

    fn positions(late: &mut LateRows, slots: &[u32]) -> Vec<(i32, i32)> {
        let taken = late.take(slots.iter().copied().map(SlotId));
        assert!(taken.iter().all(|row| row.token == KEPT));
        taken.iter().map(|row| (row.slot, row.position)).collect()
    }

    #[test]
    fn rows_wait_until_somebody_asks_and_are_read_once() {
        let mut late = LateRows::new(3);
        [rows(1, 9..10), rows(2, 4..5), rows(1, 10..11)].iter().for_each(|pass| late.wait(pass));
        assert_eq!(positions(&mut late, &[1]), [(1, 9), (1, 10)]);
        assert_eq!(positions(&mut late, &[0, 1, 2]), [(2, 4)]);
    }

    #[test]
    fn no_row_takes_the_place_of_what_one_that_waits_is_to_read() {
        let (mut late, ring) = (LateRows::new(1), RING as i32);
        // The row at 9 is read with the hidden state of position 8.
        late.wait(&rows(0, 9..10));
        assert!(!late.is_due(&rows(0, 10..8 + ring)), "the last of them has another place than 8");
        assert!(late.is_due(&rows(0, 8 + ring..9 + ring)));
        // Drafted rows were read at once; who comes behind them waits with those before.
        late.wait(&rows(0, 15..16));
        assert_eq!(positions(&mut late, &[0]), (9..16).map(|position| (0, position)).collect::<Vec<_>>());
    }

    #[test]
    fn who_begins_elsewhere_waits_for_nothing_before() {
        let mut late = LateRows::new(2);
        late.wait(&rows(0, 9..12));
        late.wait(&rows(0, 3..4));
        assert_eq!(positions(&mut late, &[0]), [(0, 3)]);
        late.wait(&rows(0, 4..6));
        let copies = vec![StateCopy::Slot { from: SlotId(0), to: SlotId(1) }];
        late.begin(&StepPlan { copies, ..StepPlan::new(StepId(1), Vec::new()) });
        assert_eq!(positions(&mut late, &[1]), [(1, 4), (1, 5)]);
    }
}

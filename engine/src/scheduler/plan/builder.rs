//! A plan in the making, and what is left of its budget: in positions, and in the time that a step may take.

use super::guesses::HeadRequests;
use super::pause::{Paused, RowKinds};
use crate::CHUNK_TOKENS;
use crate::ids::{Micros, PageId, SlotId};
use crate::scheduler::Scheduler;
use crate::scheduler::launched::LaunchedPiece;
use crate::scheduler::policy::cost::{Pace, Recompute, StepShape};
use crate::scheduler::sequence::{NextRows, Rank};
use crate::scheduler::speculation::{ExpectedStepTime, Proposal};
use crate::step::{Piece, StateCopy};
use std::collections::BTreeMap;

/// A plan in the making.
pub(super) struct PlanBuilder<'a> {
    pub(super) now: Micros,
    pub(super) pace: &'a Pace,
    /// Budget that decode rows leave, in positions.
    pub(super) rest: u32,
    /// Budget that decode rows leave, in microseconds; `None` where nothing sets a target, or nobody decodes whom a
    /// long step would hold up.
    pub(super) rest_us: Option<f64>,
    /// A prompt piece or recomputed positions are in: no unit beyond the budget any more.
    pub(super) granted: bool,
    /// A prompt piece is in.
    pub(super) prompts: bool,
    /// Waiting sequences may still start.
    pub(super) starts: bool,
    pub(super) out: Paused,
    /// Sequences that wait for their state from the host.
    pub(super) loading: u32,
    /// They may be in it all the same.
    pub(super) waits_for_loads: bool,
    /// What is drafted behind decode rows.
    pub(super) drafts: BTreeMap<Rank, Proposal>,
    /// What the draft head is asked for behind decode rows.
    pub(super) asked: HeadRequests,
    /// What its decode rows should take.
    pub(super) expected: Option<ExpectedStepTime>,
    /// Decode rows that are paused.
    pub(super) rows_out: u64,
    pub(super) pieces: Vec<Piece>,
    pub(super) launched: Vec<LaunchedPiece>,
    pub(super) forks: Vec<Fork>,
    /// How many of the pieces, the last ones, are of idle work.
    pub(super) idle: usize,
}

impl PlanBuilder<'_> {
    pub(super) fn push(&mut self, (piece, launched): (Piece, LaunchedPiece)) {
        self.pieces.push(piece);
        self.launched.push(launched);
    }

    /// The pieces that are not of idle work.
    pub(super) fn others(&self) -> &[Piece] {
        &self.pieces[..self.pieces.len() - self.idle]
    }

    /// Prompt positions from `start` on that a sequence may be granted beside the decode rows.
    pub(super) fn room(&self, start: u32) -> u32 {
        let room = self.rest.min(self.positions_in_time(start));
        if self.granted { room } else { room.max(CHUNK_TOKENS) }
    }

    /// The most prompt positions from `start` on that the time left allows; none while nobody knows what they take.
    fn positions_in_time(&self, start: u32) -> u32 {
        let Some(left) = self.rest_us else { return u32::MAX };
        let fits = |len: u32| self.pace.cost.prompt_us(start, len, !self.prompts).is_some_and(|us| us <= left);
        // Every position costs more than none, so the last that fits is found by halving.
        let (mut fit, mut over) = (0, self.rest.saturating_add(1));
        while over - fit > 1 {
            let middle = fit + (over - fit) / 2;
            if fits(middle) { fit = middle } else { over = middle }
        }
        fit
    }

    /// Positions of the recurrent form, from `start` on, that a sequence may recompute.
    pub(super) fn recompute_room(&self, start: u32) -> u32 {
        let room = if self.granted { self.rest } else { self.rest.max(CHUNK_TOKENS) };
        let together = self.pace.recompute.map_or(1, |r| r.rows.get());
        let in_time = match (self.rest_us, self.recompute_us(start, together)) {
            (Some(left), Some(us)) if us > 0.0 => ((left.max(0.0) / us) as u32).saturating_mul(together),
            _ => u32::MAX,
        };
        let in_time = if self.granted { in_time } else { in_time.max(1) };
        room.min(in_time).min(self.pace.recompute.map_or(u32::MAX, Recompute::positions_max))
    }

    pub(super) fn recompute_us(&self, start: u32, positions: u32) -> Option<f64> {
        let passes = self.pace.recompute.map_or(0, |r| r.passes(positions));
        self.pace.cost.recurrent_us(passes, start, positions)
    }

    pub(super) fn grant(&mut self, positions: u32, us: Option<f64>) {
        self.rest = self.rest.saturating_sub(positions);
        self.rest_us = self.rest_us.map(|left| left - us.unwrap_or(left));
        self.granted = true;
    }
}

/// A choice that takes over its leader's state.
#[derive(Clone, Copy, Debug)]
pub(in crate::scheduler) struct Fork {
    pub(in crate::scheduler) rank: Rank,
    pub(in crate::scheduler) slots: (SlotId, SlotId),
    /// The prompt's last page, if it is part-filled.
    pub(in crate::scheduler) pages: Option<(PageId, PageId)>,
}

impl Fork {
    /// What the device copies before the rows of the step after the fork.
    pub(in crate::scheduler) fn copies(&self) -> impl Iterator<Item = StateCopy> + use<> {
        let (from, to) = self.slots;
        let page = self.pages.map(|(from, to)| StateCopy::Page { from, to });
        std::iter::once(StateCopy::Slot { from, to }).chain(page)
    }
}

impl Scheduler {
    /// An empty plan, from whose budget the decode rows that will be in it are taken already.
    pub(super) fn builder<'a>(&mut self, now: Micros, pace: &'a Pace, out: Paused) -> PlanBuilder<'a> {
        let drafts = self.allot(&out, pace);
        let asked = self.ask(&drafts, &out, pace);
        let expected = self.expected(&drafts, &asked, &out, pace);
        let decodes =
            self.running.iter().filter(|seq| seq.next() == NextRows::Output(1) && !out.keys.contains(&seq.key));
        let (guess_passes, guess_rows) = asked.shape();
        let begin = StepShape { passes: 1, guess_passes, guess_rows, ..StepShape::default() };
        let shape = decodes.fold(begin, |shape, seq| StepShape {
            rows: shape.rows + 1 + drafts.get(&seq.rank).map_or(0, |offer| offer.tokens.len() as u32),
            attended: shape.attended + u64::from(seq.computed) + 1,
            ..shape
        });
        let held_up = pace.target_us > 0 && shape.rows > 0;
        let beside = if out.kinds == RowKinds::Prompts { 0 } else { shape.rows };
        PlanBuilder {
            now,
            pace,
            rest: self.config.step_tokens.saturating_sub(beside).min(out.tokens),
            rest_us: held_up.then(|| pace.target_us as f64 - pace.cost.predict(&shape).unwrap_or(0.0)),
            granted: false,
            prompts: false,
            starts: out.kinds != RowKinds::Decodes,
            out,
            loading: 0,
            waits_for_loads: false,
            drafts,
            asked,
            expected,
            rows_out: 0,
            pieces: Vec::with_capacity(self.running.len() + 1),
            launched: Vec::with_capacity(self.running.len() + 1),
            forks: Vec::new(),
            idle: 0,
        }
    }
}

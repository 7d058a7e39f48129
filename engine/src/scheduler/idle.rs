//! Idle work: requests below every key, which use rows of steps and memory that nobody else wants.
//!
//! Its sequences stand apart from all others: neither the running ones nor the queue know of them, and their slots and
//! pages are lent ([`crate::cache`]), which still counts as free. So no decision about another request can depend on
//! idle work, but for how long a step takes, which [`super::policy::idle`] bounds. A sequence that loses its memory is
//! parked: it keeps its tokens, and computes its positions again once there is memory to borrow. Its rows of a step are
//! planned in `plan/idle.rs`.
//!
//! An idle request has one choice and no adapter. It drafts nothing, takes nothing from the prefix cache and leaves
//! nothing there, because each of these is shared.

use super::policy::idle::IdleBudget;
use super::queue::QueueCounts;
use super::sequence::{Rank, Sequence};
use super::{Rejected, Request, SchedulerConfig};
use crate::cache::{Pages, Slots};
use crate::ids::RequestId;
use std::collections::BTreeMap;

/// All idle work of a scheduler.
#[derive(Debug, Default)]
pub(super) struct IdleWork {
    /// Sequences with a slot, by rank.
    pub(super) running: Vec<Sequence>,
    /// Sequences without memory: new ones and parked ones.
    pub(super) waiting: BTreeMap<Rank, Sequence>,
    pub(super) budget: IdleBudget,
    pub(super) totals: IdleTotals,
}

/// What idle work did since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleTotals {
    /// Positions that were computed for it, recomputed ones included.
    pub rows: u64,
    /// Sequences that lost their memory to another request.
    pub parked: u64,
}

/// Idle work at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleStats {
    /// Requests with a slot, whose rows wait for room in a step at most.
    pub running: u32,
    /// Requests without memory.
    pub waiting: u32,
    /// Counters since the start.
    pub totals: IdleTotals,
}

impl IdleStats {
    /// The figures of two schedulers together.
    pub(super) fn plus(&self, other: &Self) -> Self {
        let totals =
            IdleTotals { rows: self.totals.rows + other.totals.rows, parked: self.totals.parked + other.totals.parked };
        Self { running: self.running + other.running, waiting: self.waiting + other.waiting, totals }
    }
}

impl IdleWork {
    /// May this request wait too? Idle work has bounds of its own, as large as those of all other requests.
    pub(super) fn check(&self, request: &Request, config: &SchedulerConfig) -> Result<(), Rejected> {
        let new = self.waiting.values().filter(|seq| seq.is_new());
        let waiting = new.fold(QueueCounts::default(), |mut counts, seq| {
            counts.join(seq);
            counts
        });
        if waiting.places >= config.queue_requests_max {
            return Err(Rejected::QueueFull { waiting: waiting.places, max: config.queue_requests_max });
        }
        waiting.check_tokens(request, config)
    }

    pub(super) fn push(&mut self, seq: Sequence) {
        self.waiting.insert(seq.rank, seq);
    }

    /// Number of live idle requests, each of which is a sequence.
    pub(super) fn len(&self) -> usize {
        self.running.len() + self.waiting.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.running.iter().chain(self.waiting.values())
    }

    pub(super) fn get_mut(&mut self, rank: Rank) -> Option<&mut Sequence> {
        match self.place_of(rank) {
            Some(at) => Some(&mut self.running[at]),
            None => self.waiting.get_mut(&rank),
        }
    }

    /// Ranks of a request's sequences.
    pub(super) fn ranks_of(&self, id: RequestId) -> Vec<Rank> {
        self.iter().filter(|seq| seq.request.id == id).map(|seq| seq.rank).collect()
    }

    /// Takes a sequence out and returns what it has borrowed.
    pub(super) fn remove(&mut self, rank: Rank, pages: &mut Pages, slots: &mut Slots) -> Option<Sequence> {
        let Some(at) = self.place_of(rank) else { return self.waiting.remove(&rank) };
        let mut seq = self.running.remove(at);
        seq.return_lent(pages, slots);
        Some(seq)
    }

    /// Takes all sequences out; they return what they have borrowed.
    pub(super) fn take_all(&mut self, pages: &mut Pages, slots: &mut Slots) -> Vec<Sequence> {
        self.running.iter_mut().for_each(|seq| seq.return_lent(pages, slots));
        self.running.drain(..).chain(std::mem::take(&mut self.waiting).into_values()).collect()
    }

    /// Parks the sequences that have lost memory since the last plan.
    pub(super) fn park_losers(&mut self, pages: &mut Pages, slots: &mut Slots) {
        let lost = |seq: &mut Sequence| !seq.has_what_it_borrowed(pages, slots);
        let losers: Vec<_> = self.running.extract_if(.., lost).collect();
        losers.into_iter().for_each(|seq| self.park(seq, pages, slots));
    }

    /// Parks the last one if others run beside it, so that those find pages. False if there are no others.
    pub(super) fn park_last(&mut self, pages: &mut Pages, slots: &mut Slots) -> bool {
        if self.running.len() < 2 {
            return false;
        }
        let seq = self.running.pop().expect("there are two at least");
        self.park(seq, pages, slots);
        true
    }

    fn park(&mut self, mut seq: Sequence, pages: &mut Pages, slots: &mut Slots) {
        seq.return_lent(pages, slots);
        (seq.preemptions, seq.resumes) = (seq.preemptions + 1, true);
        self.totals.parked += 1;
        self.waiting.insert(seq.rank, seq);
    }

    pub(super) fn stats(&self) -> IdleStats {
        let (running, waiting) = (self.running.len() as u32, self.waiting.len() as u32);
        IdleStats { running, waiting, totals: self.totals }
    }

    fn place_of(&self, rank: Rank) -> Option<usize> {
        self.running.iter().position(|seq| seq.rank == rank)
    }
}

impl Sequence {
    fn has_what_it_borrowed(&self, pages: &Pages, slots: &Slots) -> bool {
        let borrower = self.rank.seq;
        slots.lent_to(borrower) == self.slot && pages.lent_to(borrower) == self.pages
    }

    fn return_lent(&mut self, pages: &mut Pages, slots: &mut Slots) {
        pages.return_lent(self.rank.seq);
        slots.return_lent(self.rank.seq);
        self.pages.clear();
        (self.slot, self.computed) = (None, 0);
    }
}

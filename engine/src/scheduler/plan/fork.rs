//! Choices of one request that part at the prompt's end: the prompt is computed once, and each goes on with a copy of
//! its state.

use super::builder::{Fork, PlanBuilder};
use crate::PAGE_TOKENS;
use crate::scheduler::Scheduler;
use crate::scheduler::sequence::ChoiceRole;

impl Scheduler {
    /// Makes the followers of the leader at `at` sequences of their own at the prompt's end: they share the prompt's
    /// full pages and get a page for a copy of the part-filled one. Who finds none is preempted now and computes the
    /// prompt alone later. Returns how many forked.
    pub(super) fn fork(&mut self, at: usize, builder: &mut PlanBuilder<'_>) -> usize {
        if self.running[at].role != ChoiceRole::Leader {
            return 0;
        }
        let id = self.running[at].request.id;
        let cached = self.running[at].cached;
        for seq in self.running[at..].iter_mut().take_while(|seq| seq.request.id == id) {
            (seq.role, seq.cached) = (ChoiceRole::Alone, cached);
        }
        let mut forked = 0;
        while self.running.get(at + 1 + forked).is_some_and(|seq| seq.request.id == id) {
            if !self.fork_one(at, at + 1 + forked, builder) {
                self.preempt_from(at + 1 + forked);
                break;
            }
            forked += 1;
        }
        forked
    }

    fn fork_one(&mut self, leader: usize, follower: usize, builder: &mut PlanBuilder<'_>) -> bool {
        let (slot, computed) = (self.running[leader].held_slot(), self.running[leader].computed);
        if self.running[follower].output_max == 1 {
            // The prompt's last row samples its only token; it never has a row of its own.
            return true;
        }
        let full = (computed / PAGE_TOKENS) as usize;
        let part_filled = self.running[leader].pages.get(full).copied();
        while part_filled.is_some() && self.pages.available() == 0 {
            if !self.preempt_youngest(follower) {
                return false;
            }
        }
        let mut pages = self.running[leader].pages[..full].to_vec();
        for &page in &pages {
            self.pages.share(page);
        }
        let copy = part_filled.map(|from| (from, self.claim_page().expect("one is available")));
        pages.extend(copy.map(|(_, to)| to));
        let seq = &mut self.running[follower];
        seq.pages = pages;
        seq.computed = computed;
        builder.forks.push(Fork { rank: seq.rank, slots: (slot, seq.held_slot()), pages: copy });
        true
    }
}

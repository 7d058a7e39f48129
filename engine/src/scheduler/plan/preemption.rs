//! Memory for who goes first: slots and pages are taken from who comes last. What is preempted keeps its tokens and is
//! computed again.

use crate::ids::KeyId;
use crate::scheduler::Scheduler;
use crate::scheduler::sequence::{ChoiceRole, Sequence};

impl Scheduler {
    /// Frees slots for the first in the queue where its key has less than its share of them and others have more: the
    /// last of those that have most to give is preempted. Only if with that it can start; within a key nobody is thrown
    /// out for a slot.
    pub(super) fn make_way(&mut self) {
        let Some(head) = self.queue.first(&self.accounts).filter(|head| head.pending == 0) else { return };
        let (key, slots) = (head.key, head.slots_wanted());
        if slots <= self.slots.free() || self.accounts.active_count() < 2 {
            return;
        }
        let held = |key: KeyId, running: &[Sequence]| running.iter().filter(|seq| seq.key == key).count() as u32;
        if held(key, &self.running) + slots > self.accounts.share(key, self.slots.total()) || !self.pages_suffice(head)
        {
            return;
        }
        while slots > self.slots.free() {
            let above =
                |seq: &Sequence| held(seq.key, &self.running) > self.accounts.share(seq.key, self.slots.total());
            // Who would be ahead of the head in the queue would only take its place.
            let behind = |seq: &Sequence| (self.accounts.turn(seq.key), seq.key) > (self.accounts.turn(key), key);
            let victim =
                self.running.iter().rposition(|seq| behind(seq) && seq.role != ChoiceRole::Follower && above(seq));
            let Some(victim) = victim else { return };
            self.preempt_group(victim);
        }
    }

    /// Frees pages until the sequence at `at` can have `positions` computed. False if it would have to give way itself:
    /// then it keeps what it has and waits, until an older one ends or takes it away. The first of all never waits:
    /// alone it fits.
    pub(super) fn make_room(&mut self, at: usize, positions: u32) -> bool {
        let needed = self.running[at].pages_lacking(positions);
        while self.pages.available() < needed {
            if !self.preempt_youngest(at) {
                assert!(at > 0, "sequence {} was admitted and does not fit alone", self.running[at].rank.seq);
                return false;
            }
        }
        true
    }

    pub(super) fn claim_pages(&mut self, at: usize, positions: u32) {
        for _ in 0..self.running[at].pages_lacking(positions) {
            let page = self.claim_page().expect("make_room found enough");
            self.running[at].pages.push(page);
        }
    }

    /// Preempts the last by rank: the youngest of the lowest priority. A prompt that is computed for several choices
    /// goes as one. False if there is none behind `at`.
    pub(super) fn preempt_youngest(&mut self, at: usize) -> bool {
        let victim =
            self.running.iter().rposition(|seq| seq.role != ChoiceRole::Follower).expect("followers have a leader");
        if victim <= at {
            return false;
        }
        self.preempt_from(victim);
        true
    }

    /// Sends the sequences from `first` on back to the queue. Their tokens stay, also those in flight; the rest is
    /// recomputed.
    pub(super) fn preempt_from(&mut self, first: usize) {
        while self.running.len() > first {
            let seq = self.running.pop().expect("more than `first` are left");
            self.preempt(seq);
        }
    }

    /// Sends the sequence at `at`, with the followers that wait for its prompt, back to the queue.
    fn preempt_group(&mut self, at: usize) {
        let followers = self.running[at + 1..].iter().take_while(|seq| seq.role == ChoiceRole::Follower).count();
        for seq in self.running.drain(at..=at + followers).collect::<Vec<_>>() {
            self.preempt(seq);
        }
    }

    fn preempt(&mut self, mut seq: Sequence) {
        seq.preemptions += 1;
        seq.resumes = true;
        self.totals.preemptions += 1;
        let seq = self.release(seq);
        self.queue.push(seq);
    }
}

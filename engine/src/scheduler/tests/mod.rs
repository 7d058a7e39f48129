//! The scheduler against a device that checks what it is told to compute.

mod device;
mod property;
mod simulation;
mod trace;

use super::{Request, Scheduler};
use crate::cache::pages_for;
use crate::ids::TokenId;
use crate::sequence::Sequence;
use device::{end_of, next_token};

impl Scheduler {
    /// Counts everything again and compares.
    fn audit(&self) {
        let mut owners = vec![0; self.pages.total() as usize];
        let mut slots = vec![false; self.slots.total() as usize];
        for seq in &self.running {
            seq.pages.iter().for_each(|page| owners[page.0 as usize] += 1);
            let slot = &mut slots[seq.slot.expect("a running sequence has a slot").0 as usize];
            assert!(!std::mem::replace(slot, true), "slot {:?} has two owners", seq.slot);
            assert_eq!(seq.pages.len() as u32, pages_for(seq.computed), "{} holds what it computed", seq.rank.seq);
        }
        let (counted, free) = self.pages.audit();
        assert_eq!(counted, owners, "each page has as many owners as page tables name it");
        let mut free = free.to_vec();
        free.sort();
        let unowned = (0..).zip(&owners).filter(|(_, n)| **n == 0).map(|(page, _)| crate::ids::PageId(page));
        assert_eq!(free, unowned.collect::<Vec<_>>(), "a page is free or owned");
        assert_eq!(self.slots.total() - self.slots.free(), self.running.len() as u32, "a slot is free or owned");
        let place = |seq: &Sequence| (self.accounts.turn(seq.key), seq.key, seq.rank);
        assert!(
            self.running.is_sorted_by(|a, b| place(a) < place(b)),
            "running sequences are in the order of what keys were served"
        );
        for (id, live) in &self.live {
            let choices = self.all().filter(|seq| seq.request.id == *id).count();
            assert_eq!(choices as u32, live.unfinished, "request {id} has its unfinished choices");
        }
        assert!(self.all().all(|seq| self.live.contains_key(&seq.request.id)), "a sequence's request lives");
        assert!(self.queue.iter().all(|seq| seq.slot.is_none() && seq.pages.is_empty()), "what waits holds nothing");
    }

    fn all(&self) -> impl Iterator<Item = &Sequence> {
        self.running.iter().chain(self.queue.iter())
    }

    fn assert_all_is_free(&self) {
        self.audit();
        let stats = self.stats();
        assert!(self.is_idle() && self.forks.is_empty(), "nothing is left: {stats:?}");
        assert_eq!((stats.pages_used, stats.slots_used), (0, 0), "every page and slot is free");
        assert_eq!((stats.requests_waiting, stats.prompt_tokens_waiting), (0, 0), "nobody waits");
    }
}

/// What a choice generates when it runs alone, in one go, without a scheduler.
fn undisturbed(request: &Request, choice: u32, output_max: u32) -> Vec<TokenId> {
    let mut tokens = request.prompt.to_vec();
    let mut output = Vec::new();
    while (output.len() as u32) < output_max {
        let token = next_token(end_of(&tokens, request.prompt.len()), &request.sampling, choice, output.len() as u32);
        tokens.push(token);
        output.push(token);
        if request.end_ids.contains(&token) {
            break;
        }
    }
    output
}

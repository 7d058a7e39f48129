//! The scheduler against a device that checks what it is told to compute.

mod adapters;
mod device;
mod drafts;
mod gate;
mod idle;
mod not_finite;
mod pipeline;
mod property;
mod replicas;
mod scenes;
mod seam;
mod simulation;
mod trace;
mod transfers;
mod waits;

use super::sequence::Sequence;
use super::{Request, Scheduler};
use crate::cache::pages_for;
use crate::constraint::thinking::{Level, Thinking, Thought, ThoughtEnd};
use crate::ids::TokenId;
use device::{certainty_after, end_of, next_token};

impl Scheduler {
    /// Counts everything again and compares.
    fn audit(&self) {
        let mut owners = vec![0; self.pages.total() as usize];
        let mut slots = vec![false; self.slots.total() as usize];
        for seq in &self.running {
            seq.pages.iter().for_each(|page| owners[page.0 as usize] += 1);
            let slot = &mut slots[seq.slot.expect("a running sequence has a slot").0 as usize];
            assert!(!std::mem::replace(slot, true), "slot {:?} has two owners", seq.slot);
            let followed = seq.follow_up.map_or(0, |follow_up| follow_up.reach(seq));
            let reach = followed.max(seq.drafted + seq.guesses_due);
            assert_eq!(
                seq.pages.len() as u32,
                pages_for(seq.computed + reach),
                "{} holds what it computed",
                seq.rank.seq
            );
        }
        let (counted, kept, mut free) = self.pages.audit();
        assert_eq!(counted, owners, "each page has as many owners as page tables name it");
        self.audit_prefix(kept);
        free.sort();
        let unowned = (0..).zip(&owners).zip(kept).filter(|((_, n), kept)| **n == 0 && !**kept);
        let unowned = unowned.map(|((page, _), _)| crate::ids::PageId(page));
        assert_eq!(free, unowned.collect::<Vec<_>>(), "a page is free, kept or owned");
        let reclaimable = owners.iter().zip(kept).filter(|(n, kept)| **n == 0 && **kept).count();
        assert_eq!(self.pages.reclaimable() as usize, reclaimable);
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
        self.audit_idle();
    }

    /// Idle work borrows what it computed, or has lost all of its pages or its slot.
    fn audit_idle(&self) {
        for seq in &self.idle.running {
            let (slot, pages) = (self.slots.lent_to(seq.rank.seq), self.pages.lent_to(seq.rank.seq));
            assert!(slot.is_none_or(|slot| seq.slot == Some(slot)), "{} has the slot that it knows", seq.rank.seq);
            assert!(pages.is_empty() || seq.pages == pages, "{} has the pages that it knows", seq.rank.seq);
            assert_eq!(seq.pages.len() as u32, pages_for(seq.computed), "{} borrows what it computed", seq.rank.seq);
        }
        let lent: usize = self.idle.running.iter().map(|seq| self.pages.lent_to(seq.rank.seq).len()).sum();
        assert_eq!(self.pages.free() - self.pages.lendable(), lent as u32, "every page is lent to idle work that runs");
        let slots = self.idle.running.iter().filter(|seq| self.slots.lent_to(seq.rank.seq).is_some()).count();
        assert_eq!(
            self.slots.free() - self.slots.lendable(),
            slots as u32,
            "every slot is lent to idle work that runs"
        );
        let holds = |seq: &Sequence| seq.slot.is_some() || !seq.pages.is_empty();
        assert!(!self.idle.waiting.values().any(holds), "parked work holds nothing");
    }

    /// Every kept page is needed by an entry, every checkpoint has one place, every pin a sequence.
    fn audit_prefix(&self, kept: &[bool]) {
        let (mut pages, mut places, pins, mut blocks) = self.prefix.audit();
        pages.sort();
        let marked = (0..).zip(kept).filter(|(_, kept)| **kept).map(|(page, _)| crate::ids::PageId(page));
        assert_eq!(pages, marked.collect::<Vec<_>>(), "what is kept is needed");
        places.sort();
        let all = (0..self.config.prefix.checkpoints).map(crate::ids::CheckpointId);
        assert_eq!(places, all.collect::<Vec<_>>(), "a checkpoint is free or an entry's");
        blocks.sort();
        let all = (0..self.prefix.stats(&self.pages).host_blocks_total).map(crate::ids::HostBlockId);
        assert_eq!(blocks, all.collect::<Vec<_>>(), "a block of the host is free, a unit's or an entry's");
        assert_eq!(pins as usize, self.running.iter().filter(|seq| seq.restore.is_some()).count());
        assert!(self.queue.iter().all(|seq| seq.restore.is_none()), "what waits pins nothing");
    }

    fn all(&self) -> impl Iterator<Item = &Sequence> {
        self.running.iter().chain(self.queue.iter()).chain(self.idle.iter())
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
        let spec = &request.spec;
        let (forced, mut forbidden) =
            spec.thinking.as_ref().map_or_else(Default::default, |t| decided(t, request, &output));
        if (output.len() as u32) < spec.min_tokens {
            forbidden.extend_from_slice(&spec.end_ids);
        }
        let past = end_of(&tokens, request.prompt.len());
        let draw = || next_token(past, &spec.sampling, &forbidden, (choice, output.len() as u32));
        let token = forced.unwrap_or_else(draw);
        tokens.push(token);
        output.push(token);
        if spec.end_ids.contains(&token) {
            break;
        }
    }
    output
}

/// Where thinking begins, where it is closed and why, and whether words are held back, as far as these outputs tell.
struct Read {
    since: Option<u32>,
    closing: Option<(u32, ThoughtEnd)>,
    /// The model ended it with this output.
    ended: Option<u32>,
    holds: bool,
}

/// The rule for thinking, from the start each time: what outputs `0..seen.len()` say.
fn read(rules: &Thinking, request: &Request, seen: &[TokenId]) -> Read {
    let since = match rules.opens {
        None => Some(0),
        Some(opens) => seen.first().filter(|first| **first == opens).map(|_| 1),
    };
    let mut read = Read { since, closing: None, ended: None, holds: false };
    let Some(since) = since else { return read };
    let earliest = if since == 0 { 0 } else { 2 };
    read.closing = rules.tokens_max.map(|n| ((since + n).max(earliest), ThoughtEnd::Budget));
    for i in since..seen.len() as u32 {
        if read.closing.is_some_and(|(from, _)| from <= i) {
            break;
        }
        if rules.ends.contains(&seen[i as usize]) {
            read.ended = Some(i);
            break;
        }
        let Some(adaptive) = &rules.adaptive else { continue };
        let thought = i + 1 - since;
        let certain = |level: Level| thought >= adaptive.window && is_certain(request, seen, i, adaptive.window, level);
        let early = thought >= adaptive.stop_tokens_min && adaptive.stop.is_some_and(certain);
        read.holds = certain(adaptive.hold);
        if early && read.closing.is_none_or(|(from, _)| i + 2 < from) {
            read.closing = Some((i + 2, ThoughtEnd::Certain));
        }
    }
    read
}

/// Over the window that ends with output `i`, which was sampled after everything before it.
fn is_certain(request: &Request, seen: &[TokenId], i: u32, window: u32, level: Level) -> bool {
    let of = |j: u32| {
        let before = [&request.prompt[..], &seen[..j as usize]].concat();
        certainty_after(end_of(&before, request.prompt.len()))
    };
    let all: Vec<_> = (i + 1 - window..=i).map(of).collect();
    let mean = |f: fn(&crate::step::Certainty) -> f32| all.iter().map(f).sum::<f32>() / window as f32;
    mean(|c| c.entropy) <= level.entropy_max && mean(|c| c.top_prob) >= level.top_prob_min
}

/// The token that must follow these outputs, and which ones are held back otherwise.
fn decided(rules: &Thinking, request: &Request, output: &[TokenId]) -> (Option<TokenId>, Vec<TokenId>) {
    let j = output.len() as u32;
    let read = read(rules, request, &output[..output.len().saturating_sub(1)]);
    if read.ended.is_some() {
        return (None, Vec::new());
    }
    let forced = read
        .closing
        .filter(|(from, _)| *from <= j)
        .and_then(|(from, _)| rules.closing.get((j - from) as usize))
        .copied();
    let thinks = read.closing.is_none_or(|(from, _)| j < from);
    let held = rules.adaptive.as_ref().filter(|_| read.holds && thinks).map_or_else(Vec::new, |a| a.held.to_vec());
    (forced, held)
}

/// What is told of a whole choice's thinking.
fn thought_of(rules: &Thinking, request: &Request, output: &[TokenId]) -> Option<Thought> {
    let read = read(rules, request, output);
    let since = read.since?;
    match (read.ended, read.closing) {
        (Some(at), _) => Some(Thought { tokens: at - since, end: ThoughtEnd::Model }),
        (None, Some((from, end))) if from + rules.closing.len() as u32 <= output.len() as u32 => {
            Some(Thought { tokens: from - since, end })
        }
        _ => None,
    }
}

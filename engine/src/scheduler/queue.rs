//! Sequences that wait for slots and pages: requests that never ran, and what was preempted.
//!
//! Which one is next is decided here alone: the first by rank of the key that was served least.

use super::policy::fair::Accounts;
use super::sequence::{ChoiceRole, Rank, Sequence};
use super::{Rejected, Request, SchedulerConfig};
use crate::ids::{KeyId, RequestId, SeqId};
use std::collections::BTreeMap;

/// Owns what waits. Only requests that never ran and are not exempt count against the bounds: the others were
/// accepted long ago.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// A key is here while something of it waits.
    waiting: BTreeMap<KeyId, BTreeMap<Rank, Sequence>>,
    /// The number of sequences.
    sequences: u32,
    /// Tokens of prompts that are to be computed.
    prompt_tokens: u64,
    new: QueueCounts,
    new_by_key: BTreeMap<KeyId, QueueCounts>,
}

/// Requests that never ran.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueCounts {
    requests: u32,
    /// Those of them that are not exempt.
    pub(super) places: u32,
    /// Tokens of the prompts of these.
    prompt_tokens: u64,
}

impl QueueCounts {
    pub(super) fn join(&mut self, seq: &Sequence) {
        self.requests += 1;
        if !seq.exempt {
            self.places += 1;
            self.prompt_tokens += u64::from(seq.prompt_len());
        }
    }

    fn leave(&mut self, seq: &Sequence) {
        self.requests -= 1;
        if !seq.exempt {
            self.places -= 1;
            self.prompt_tokens -= u64::from(seq.prompt_len());
        }
    }

    /// Is there room for the prompt of one more request? Beside nothing any prompt may wait.
    pub(super) fn check_tokens(&self, request: &Request, config: &SchedulerConfig) -> Result<(), Rejected> {
        let (waiting, got, max) = (self.prompt_tokens, request.prompt.len() as u64, config.queue_prompt_tokens_max);
        if waiting > 0 && waiting + got > max {
            return Err(Rejected::QueueTokensFull { waiting, got, max });
        }
        Ok(())
    }
}

impl Queue {
    /// May this request wait too? An empty queue takes any prompt, so that no request is told to come back for ever.
    /// Where the queue is full of others' requests, a key that has less than its part of it may still come in, until
    /// the queue is full twice over.
    pub(crate) fn check(&self, request: &Request, key: KeyId, config: &SchedulerConfig) -> Result<(), Rejected> {
        let (waiting, max) = (self.new.places, config.queue_requests_max);
        let own = self.new_by_key.get(&key).map_or(0, |new| new.places);
        let others = self.new_by_key.iter().filter(|(other, new)| **other != key && new.places > 0).count();
        let keys = others as u32 + 1;
        let modest = keys > 1 && own < max / keys && waiting < max.saturating_mul(2);
        if waiting >= max && !modest {
            return Err(Rejected::QueueFull { waiting, max });
        }
        self.new.check_tokens(request, config)
    }

    pub(crate) fn push(&mut self, seq: Sequence) {
        assert!(seq.slot.is_none() && seq.pages.is_empty(), "what waits holds nothing");
        self.count(&seq, true);
        let before = self.waiting.entry(seq.key).or_default().insert(seq.rank, seq);
        assert!(before.is_none(), "ranks are unique");
    }

    /// The next to start. The followers of a leader come right behind it.
    pub(crate) fn first(&self, accounts: &Accounts) -> Option<&Sequence> {
        let next = self.waiting.iter().min_by_key(|(key, _)| (accounts.turn(**key), **key));
        next.and_then(|(_, own)| own.first_key_value()).map(|(_, seq)| seq)
    }

    /// The first by rank of a key.
    pub(crate) fn first_of(&self, key: KeyId) -> Option<&Sequence> {
        self.waiting.get(&key)?.first_key_value().map(|(_, seq)| seq)
    }

    pub(crate) fn pop_first_of(&mut self, key: KeyId) -> Option<Sequence> {
        let rank = self.first_of(key)?.rank;
        self.remove(rank)
    }

    pub(crate) fn get_mut(&mut self, rank: Rank) -> Option<&mut Sequence> {
        self.waiting.values_mut().find_map(|own| own.get_mut(&rank))
    }

    pub(crate) fn remove(&mut self, rank: Rank) -> Option<Sequence> {
        let (key, own) = self.waiting.iter_mut().find(|(_, own)| own.contains_key(&rank))?;
        let key = *key;
        let seq = own.remove(&rank)?;
        if own.is_empty() {
            self.waiting.remove(&key);
        }
        self.count(&seq, false);
        Some(seq)
    }

    /// Ranks of a request's sequences that wait here.
    pub(crate) fn ranks_of(&self, id: RequestId) -> Vec<Rank> {
        self.iter().filter(|seq| seq.request.id == id).map(|seq| seq.rank).collect()
    }

    pub(crate) fn find(&self, seq: SeqId) -> Option<&Sequence> {
        self.iter().find(|waiting| waiting.rank.seq == seq)
    }

    /// Takes out all that waits, key by key, each by rank.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Sequence> + use<> {
        std::mem::take(self).waiting.into_values().flat_map(BTreeMap::into_values)
    }

    /// Sequences that wait here, and the tokens of their prompts that are not computed, as far as that is known: one
    /// that ran before may find its own in the prefix cache.
    pub(crate) fn work(&self) -> (u32, u64) {
        (self.sequences, self.prompt_tokens)
    }

    /// Prompt tokens of requests that never ran and are not exempt.
    pub(crate) fn new_prompt_tokens(&self) -> u64 {
        self.new.prompt_tokens
    }

    /// Requests that never ran.
    pub(crate) fn new_requests(&self) -> u32 {
        self.new.requests
    }

    /// Requests that never ran, by key.
    pub(crate) fn new_by_key(&self) -> impl Iterator<Item = (KeyId, u32)> {
        self.new_by_key.iter().map(|(key, new)| (*key, new.requests))
    }

    /// What waits, key by key, each by rank.
    pub(crate) fn by_key(&self) -> impl Iterator<Item = (KeyId, impl Iterator<Item = &Sequence>)> {
        self.waiting.iter().map(|(key, own)| (*key, own.values()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.waiting.values().flat_map(|own| own.values())
    }

    fn count(&mut self, seq: &Sequence, joins: bool) {
        let prompt_tokens = u64::from(seq.prompt_to_compute());
        if joins {
            self.sequences += 1;
            self.prompt_tokens += prompt_tokens;
        } else {
            self.sequences -= 1;
            self.prompt_tokens -= prompt_tokens;
        }
        // A prompt is computed once for all choices, so it counts once.
        if !seq.is_new() || seq.role == ChoiceRole::Follower {
            return;
        }
        let own = self.new_by_key.entry(seq.key).or_default();
        if joins {
            own.join(seq);
            self.new.join(seq);
        } else {
            own.leave(seq);
            if own.requests == 0 {
                self.new_by_key.remove(&seq.key);
            }
            self.new.leave(seq);
        }
    }
}

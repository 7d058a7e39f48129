//! Sequences that wait for slots and pages: requests that never ran, and what was preempted.
//!
//! Which one is next is decided here alone, so that a fair order over API keys needs no change elsewhere. Today that is the rank.

use crate::ids::{RequestId, SeqId};
use crate::scheduler::{Rejected, Request, SchedulerConfig};
use crate::sequence::{Rank, Role, Sequence};
use std::collections::BTreeMap;

/// Owns what waits. Only requests that never ran count against the bounds: the others were accepted long ago.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeMap<Rank, Sequence>,
    new_requests: u32,
    new_prompt_tokens: u64,
}

impl Queue {
    /// May this request wait too? An empty queue takes any prompt, so that no request is told to come back for ever.
    pub(crate) fn check(&self, request: &Request, config: &SchedulerConfig) -> Result<(), Rejected> {
        if self.new_requests >= config.queue_requests_max {
            return Err(Rejected::QueueFull { waiting: self.new_requests, max: config.queue_requests_max });
        }
        let (waiting, got, max) = (self.new_prompt_tokens, request.prompt.len() as u64, config.queue_prompt_tokens_max);
        if waiting > 0 && waiting + got > max {
            return Err(Rejected::QueueTokensFull { waiting, got, max });
        }
        Ok(())
    }

    pub(crate) fn push(&mut self, seq: Sequence) {
        debug_assert!(seq.slot.is_none() && seq.pages.is_empty(), "what waits holds nothing");
        self.count(&seq, true);
        let before = self.waiting.insert(seq.rank, seq);
        assert!(before.is_none(), "ranks are unique");
    }

    /// The next to start. The followers of a leader come right behind it.
    pub(crate) fn first(&self) -> Option<&Sequence> {
        self.waiting.first_key_value().map(|(_, seq)| seq)
    }

    pub(crate) fn pop_first(&mut self) -> Option<Sequence> {
        let (_, seq) = self.waiting.pop_first()?;
        self.count(&seq, false);
        Some(seq)
    }

    pub(crate) fn get_mut(&mut self, rank: Rank) -> Option<&mut Sequence> {
        self.waiting.get_mut(&rank)
    }

    pub(crate) fn remove(&mut self, rank: Rank) -> Option<Sequence> {
        let seq = self.waiting.remove(&rank)?;
        self.count(&seq, false);
        Some(seq)
    }

    /// Ranks of a request's sequences that wait here.
    pub(crate) fn ranks_of(&self, id: RequestId) -> Vec<Rank> {
        self.waiting.values().filter(|seq| seq.request.id == id).map(|seq| seq.rank).collect()
    }

    pub(crate) fn find(&self, seq: SeqId) -> Option<&Sequence> {
        self.waiting.values().find(|waiting| waiting.rank.seq == seq)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Prompt tokens of requests that never ran.
    pub(crate) fn new_prompt_tokens(&self) -> u64 {
        self.new_prompt_tokens
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.waiting.values()
    }

    fn count(&mut self, seq: &Sequence, joins: bool) {
        // A prompt is computed once for all choices, so it counts once.
        if !seq.is_new() || seq.role == Role::Follower {
            return;
        }
        let tokens = u64::from(seq.prompt_len());
        if joins {
            self.new_requests += 1;
            self.new_prompt_tokens += tokens;
        } else {
            self.new_requests -= 1;
            self.new_prompt_tokens -= tokens;
        }
    }
}

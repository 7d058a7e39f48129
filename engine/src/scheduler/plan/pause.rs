//! Pauses: rows that a step leaves out so that the prompt of another key is computed sooner. A paused row is planned
//! in a later step; nothing else about it changes.
//!
//! There are two rules. A key that holds more than its share of the running sequences is paused while a key that was
//! served less, and holds no more than its share, has a prompt to compute. The prompt gets as many positions as its key
//! was served less, and a pause lasts [`PAUSE_US_MAX`] at most. And while several keys come and go, decode rows and
//! prompts go into steps of their own where that costs nothing: such steps are half as long, so a new request waits for
//! half as long.

use crate::ids::{KeyId, Micros};
use crate::scheduler::Scheduler;
use crate::scheduler::policy::cost::Pace;
use crate::scheduler::policy::fair::Accounts;
use crate::scheduler::sequence::{NextRows, Sequence, canonical_end};
use std::collections::BTreeMap;

/// Microseconds after which a paused key has a step again. No stream stands still for longer than this and two steps,
/// whatever the weights are and however many keys come at once.
pub(in crate::scheduler) const PAUSE_US_MAX: u64 = 250_000;

/// The pauses of one step.
#[derive(Debug)]
pub(in crate::scheduler) struct Paused {
    /// All rows of these keys.
    pub(in crate::scheduler) keys: Vec<KeyId>,
    /// Prompt positions that may be computed at their expense.
    pub(in crate::scheduler) tokens: u32,
    /// Rows of all keys.
    pub(in crate::scheduler) kinds: RowKinds,
}

/// Which rows a step takes where decode rows and prompts go apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::scheduler) enum RowKinds {
    #[default]
    Both,
    Prompts,
    Decodes,
}

impl Paused {
    /// A step in which every row runs.
    pub(in crate::scheduler) fn nobody() -> Self {
        Self { keys: Vec::new(), tokens: u32::MAX, kinds: RowKinds::Both }
    }

    pub(in crate::scheduler) fn is_nobody(&self) -> bool {
        self.keys.is_empty() && self.kinds == RowKinds::Both
    }

    /// The kind of rows that the step served: a step in which keys were paused for a prompt counts as the prompts'.
    pub(in crate::scheduler) fn took(&self) -> RowKinds {
        if self.kinds == RowKinds::Both && !self.keys.is_empty() { RowKinds::Prompts } else { self.kinds }
    }

    /// Whether the rows that a sequence of this key would compute next are paused.
    pub(in crate::scheduler) fn holds(&self, key: KeyId, next: NextRows) -> bool {
        let other = match next {
            NextRows::Nothing => false,
            NextRows::Prompt => self.kinds == RowKinds::Decodes,
            NextRows::Output(_) => self.kinds == RowKinds::Prompts,
        };
        other || self.keys.contains(&key)
    }
}

impl Scheduler {
    /// The pauses of the next step.
    pub(in crate::scheduler) fn paused(&self, now: Micros, pace: &Pace) -> Paused {
        if !self.accounts.several_lately(now) {
            return Paused::nobody();
        }
        let mut out = self.paused_for_a_prompt(now).unwrap_or_else(Paused::nobody);
        let runs = |seq: &&Sequence| !out.keys.contains(&seq.key);
        let decodes = self.running.iter().filter(runs).any(|seq| matches!(seq.next(), NextRows::Output(_)));
        let prompts = self.running.iter().filter(runs).any(|seq| seq.next() == NextRows::Prompt);
        let starts = self.head_that_may_start().filter(runs).is_some();
        if pace.apart && pace.target_us > 0 && decodes && (prompts || starts) {
            out.kinds = if self.last_kinds == RowKinds::Prompts { RowKinds::Decodes } else { RowKinds::Prompts };
        }
        out
    }

    /// The first in the queue, if slots and pages allow it to start.
    fn head_that_may_start(&self) -> Option<&Sequence> {
        let head = self.queue.first(&self.accounts)?;
        (head.pending == 0 && head.slots_wanted() <= self.slots.free() && self.pages_suffice(head)).then_some(head)
    }

    /// The keys that are paused for a prompt: that of the least served key with a prompt to compute.
    fn paused_for_a_prompt(&self, now: Micros) -> Option<Paused> {
        let turn = |seq: &Sequence| (self.accounts.turn(seq.key), seq.key);
        let running = self.running.iter().find(|seq| seq.next() == NextRows::Prompt);
        let head = self.head_that_may_start().filter(|head| running.is_none_or(|seq| turn(head) < turn(seq)));
        let first = head.or(running)?;
        let mut held = BTreeMap::from([(first.key, head.map_or(0, Sequence::slots_wanted))]);
        self.running.iter().for_each(|seq| *held.entry(seq.key).or_default() += 1);
        let all = held.values().sum();
        let above = |key: KeyId| held[&key] > self.accounts.share_rounded_up(key, all);
        if above(first.key) {
            return None;
        }
        let unit = canonical_end(first.computed, first.computed, first.prompt_len()) - first.computed;
        let others = held.keys().filter(|key| above(**key));
        let claims = others
            .map(|other| (*other, self.accounts.claim(first.key, *other, now)))
            .filter(|(_, claim)| *claim >= unit);
        let (keys, claims): (Vec<_>, Vec<_>) = claims.unzip();
        Some(Paused { tokens: claims.into_iter().min()?, keys, kinds: RowKinds::Both })
    }
}

impl Accounts {
    /// Prompt positions that `key` may compute at the expense of `other`: as many as it was served less, and none once
    /// `other` was paused for [`PAUSE_US_MAX`].
    fn claim(&self, key: KeyId, other: KeyId, now: Micros) -> u32 {
        if self.paused_since(other).is_some_and(|since| now.since(since).0 >= PAUSE_US_MAX) {
            return 0;
        }
        self.tokens_behind(key, other)
    }
}

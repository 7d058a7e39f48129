//! Figures of a scheduler, for metrics and for predicting how long a refused caller should wait.

use super::{Door, IdleStats, Scheduler};
use crate::cache::PrefixStats;
use crate::ids::KeyId;

/// What the first of those that wait lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitReason {
    /// Nothing, or nobody waits: it starts when its prompt's first unit finds room in a step.
    #[default]
    Budget,
    /// A free state slot.
    Slots,
    /// Free pages of the KV cache.
    Memory,
}

impl WaitReason {
    /// All reasons, for whoever reports each.
    pub const ALL: [Self; 3] = [Self::Budget, Self::Slots, Self::Memory];

    /// The reason in one word, as metrics report it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::Slots => "slots",
            Self::Memory => "memory",
        }
    }
}

/// A scheduler at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests with at least one running sequence.
    pub requests_running: u32,
    /// Live requests without a running sequence: new ones, and those preempted whole.
    pub requests_waiting: u32,
    /// Of these, requests that never ran.
    pub requests_new: u32,
    /// What the first of these lacks.
    pub waits_for: WaitReason,
    /// Prompt tokens of requests that never ran.
    pub prompt_tokens_waiting: u64,
    /// Sequences with a slot.
    pub sequences_running: u32,
    /// KV pages that a sequence has.
    pub pages_used: u32,
    /// KV pages that none has: those that only the prefix cache keeps too.
    pub pages_free: u32,
    /// State slots with an owner.
    pub slots_used: u32,
    /// State slots without an owner.
    pub slots_free: u32,
    /// Steps launched and not committed.
    pub steps_in_flight: u32,
    /// Since the start: sequences preempted because no page was left.
    pub preemptions_total: u64,
    /// Since the start: prompt tokens of requests that started.
    pub prompt_tokens_total: u64,
    /// Since the start: tokens generated and delivered.
    pub output_tokens_total: u64,
    /// Since the start: positions computed, recomputed and wasted ones included.
    pub rows_total: u64,
    /// Adapters whose sequences wait for a slot for it.
    pub adapters_waiting: u32,
    /// Since the start: adapters that gave up their slot to another one.
    pub adapter_swaps_total: u64,
    /// Idle work, which none of the above counts but for positions computed.
    pub idle: IdleStats,
    /// Nothing is admitted any more.
    pub draining: bool,
}

impl Stats {
    /// The figures of two schedulers together. What the first waiting request lacks is that of the one of which more
    /// requests wait; nothing is admitted any more where neither admits anything.
    pub fn plus(&self, other: &Self) -> Self {
        let fuller = if other.requests_new > self.requests_new { other } else { self };
        Self {
            requests_running: self.requests_running + other.requests_running,
            requests_waiting: self.requests_waiting + other.requests_waiting,
            requests_new: self.requests_new + other.requests_new,
            waits_for: fuller.waits_for,
            prompt_tokens_waiting: self.prompt_tokens_waiting + other.prompt_tokens_waiting,
            sequences_running: self.sequences_running + other.sequences_running,
            pages_used: self.pages_used + other.pages_used,
            pages_free: self.pages_free + other.pages_free,
            slots_used: self.slots_used + other.slots_used,
            slots_free: self.slots_free + other.slots_free,
            steps_in_flight: self.steps_in_flight + other.steps_in_flight,
            preemptions_total: self.preemptions_total + other.preemptions_total,
            prompt_tokens_total: self.prompt_tokens_total + other.prompt_tokens_total,
            output_tokens_total: self.output_tokens_total + other.output_tokens_total,
            rows_total: self.rows_total + other.rows_total,
            adapters_waiting: self.adapters_waiting + other.adapters_waiting,
            adapter_swaps_total: self.adapter_swaps_total + other.adapter_swaps_total,
            idle: self.idle.plus(&other.idle),
            draining: self.draining && other.draining,
        }
    }

    /// The counters alone, as of a scheduler whose engine is gone.
    pub fn totals(&self) -> Self {
        Self {
            preemptions_total: self.preemptions_total,
            prompt_tokens_total: self.prompt_tokens_total,
            output_tokens_total: self.output_tokens_total,
            rows_total: self.rows_total,
            adapter_swaps_total: self.adapter_swaps_total,
            idle: IdleStats { totals: self.idle.totals, ..IdleStats::default() },
            ..Self::default()
        }
    }
}

/// Counters of the scheduler since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) preemptions: u64,
    pub(super) prompt_tokens: u64,
    pub(super) output_tokens: u64,
    /// Without each choice's first.
    pub(super) later_tokens: u64,
    pub(super) rows: u64,
    pub(super) paused_rows: u64,
}

impl Scheduler {
    /// Since the start: decode rows that were paused for the prompt of another key, each once a step.
    pub fn paused_rows(&self) -> u64 {
        self.totals.paused_rows
    }

    /// The adapter of each sequence that has one, by name, and whether its rows may run.
    pub fn adapters_named(&self) -> impl Iterator<Item = (&str, bool)> {
        let some = self.config.adapter_slots > 0;
        let running = self.running.iter().map(|seq| (seq, !seq.lacks_adapter));
        // Where there is no slot, no request has one.
        let all = running.chain(self.queue.iter().map(|seq| (seq, false)));
        all.take_while(move |_| some)
            .filter_map(|(seq, runs)| Some((seq.request.spec.adapter.as_ref()?.adapter.name.as_str(), runs)))
    }

    /// What prompts left behind.
    pub fn prefix_stats(&self) -> PrefixStats {
        self.prefix.stats(&self.pages)
    }

    /// Requests that never ran, by key.
    pub fn waiting_by_key(&self) -> impl Iterator<Item = (KeyId, u32)> {
        self.queue.new_by_key()
    }

    /// Figures of this moment.
    pub fn stats(&self) -> Stats {
        // Choices of a request are neighbours by rank.
        let requests_running = self.running.chunk_by(|a, b| a.request.id == b.request.id).count() as u32;
        Stats {
            requests_running,
            requests_waiting: (self.live.len() - self.idle.len()) as u32 - requests_running,
            requests_new: self.queue.new_requests(),
            waits_for: self.waits_for(),
            prompt_tokens_waiting: self.queue.new_prompt_tokens(),
            sequences_running: self.running.len() as u32,
            pages_used: self.pages.total() - self.pages.available(),
            pages_free: self.pages.available(),
            slots_used: self.slots.total() - self.slots.free(),
            slots_free: self.slots.free(),
            steps_in_flight: self.in_flight.len() as u32,
            preemptions_total: self.totals.preemptions,
            prompt_tokens_total: self.totals.prompt_tokens,
            output_tokens_total: self.totals.output_tokens,
            rows_total: self.totals.rows,
            adapters_waiting: self.adapters.waiting(),
            adapter_swaps_total: self.adapters.swaps(),
            idle: self.idle.stats(),
            draining: self.door != Door::Open,
        }
    }
}

//! How much a scheduler has to do, for whoever divides requests among several. Cheap enough for every step: one pass
//! over the running sequences, and counts that are kept anyway.

use super::policy::cost::{Pace, StepShape};
use super::sequence::{ChoiceRole, NextRows};
use super::{Door, Scheduler};

/// One scheduler at one moment, as far as it decides where the next request should go.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplicaLoad {
    /// Tokens of admitted prompts that are not computed yet, waiting and running, without those that the prefix cache
    /// is known to spare.
    pub prompt_tokens: u64,
    /// Outputs of preempted and of migrated sequences that are to be computed again.
    pub recomputed_tokens: u64,
    /// Sequences without a slot.
    pub sequences_waiting: u32,
    /// Sequences with a slot.
    pub sequences_running: u32,
    /// State slots without an owner.
    pub slots_free: u32,
    /// KV pages that no sequence has.
    pub pages_free: u32,
    /// Expected time of a prompt token, microseconds, where prompts fill a step; 0 while it is not known.
    pub prompt_token_us: f64,
    /// Expected time of a step with the decode rows of now, microseconds; 0 while it is not known, and without any.
    pub step_us: f64,
    /// Expected time until a newcomer finds a slot, microseconds; 0 where one is free, and while it is not known.
    pub wait_us: f64,
    /// Nothing is admitted any more.
    pub closed: bool,
}

impl ReplicaLoad {
    /// Expected time to the first token of a newcomer of whose prompt so many tokens have to be computed here,
    /// microseconds: it waits for a slot, and its prompt for those before it. 0 while nothing is known, so such a
    /// replica is tried first.
    pub fn first_token_us(&self, prompt_tokens: u64) -> f64 {
        self.wait_us + (self.prompt_tokens + prompt_tokens) as f64 * self.prompt_token_us + self.step_us
    }
}

impl Scheduler {
    /// How much there is to do, with times as `pace` knows them.
    pub fn load(&self, pace: &Pace) -> ReplicaLoad {
        let (sequences_waiting, mut prompt_tokens) = self.queue.work();
        let (mut recomputed_tokens, mut shape) = (0, StepShape { passes: 1, ..StepShape::default() });
        for seq in self.running.iter().filter(|seq| seq.role != ChoiceRole::Follower) {
            prompt_tokens += u64::from(seq.prompt_to_compute());
            match seq.next() {
                NextRows::Output(ahead) if ahead > 1 => recomputed_tokens += u64::from(ahead - 1),
                NextRows::Output(_) => {
                    (shape.rows, shape.attended) = (shape.rows + 1, shape.attended + u64::from(seq.computed) + 1)
                }
                _ => {}
            }
        }
        let step_us = if shape.rows > 0 { pace.cost.predict(&shape).unwrap_or_default() } else { 0.0 };
        let (slots_free, sequences_running) = (self.slots.free(), self.running.len() as u32);
        let of_step = self.config.step_tokens;
        ReplicaLoad {
            prompt_tokens,
            recomputed_tokens,
            sequences_waiting,
            sequences_running,
            slots_free,
            pages_free: self.pages.available(),
            prompt_token_us: pace.cost.prompt_us(0, of_step, true).map_or(0.0, |us| us / f64::from(of_step)),
            step_us,
            wait_us: self.slot_wait_us(sequences_waiting, step_us),
            closed: self.door != Door::Open,
        }
    }

    /// Expected time until a slot is free beyond those that `waiting` sequences will take, microseconds. Outputs of the
    /// mean length end, one after another, as fast as they began (Little's law).
    fn slot_wait_us(&self, waiting: u32, step_us: f64) -> f64 {
        let ends = (waiting + 1).saturating_sub(self.slots.free());
        let running = self.running.len().max(1) as f64;
        f64::from(ends) * self.lengths.mean() * step_us / running
    }
}

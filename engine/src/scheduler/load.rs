//! How much a scheduler has to do, for whoever divides requests among several. Cheap enough for every step: one pass
//! over the running sequences, and counts that are kept anyway.

use super::Scheduler;
use super::policy::cost::{Pace, StepShape};
use super::sequence::{ChoiceRole, NextRows};

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
    /// Expected time of a prompt token, microseconds, where prompts fill a step; 0 while it is not known.
    pub prompt_token_us: f64,
    /// Expected time of a step with a row of each running sequence and of a newcomer, microseconds; 0 while it is not
    /// known.
    pub step_us: f64,
    /// Tokens of an output, in the mean of those that ended lately; 0 while none has.
    pub output_tokens: f64,
}

impl Scheduler {
    /// How much there is to do, with times as `pace` knows them.
    pub fn load(&self, pace: &Pace) -> ReplicaLoad {
        let (sequences_waiting, mut prompt_tokens) = self.queue.work();
        let (mut recomputed_tokens, mut attended) = (0, 0);
        for seq in &self.running {
            attended += u64::from(seq.len());
            if seq.role != ChoiceRole::Follower {
                prompt_tokens += u64::from(seq.prompt_to_compute());
            }
            if let NextRows::Output(ahead) = seq.next() {
                recomputed_tokens += u64::from(ahead.saturating_sub(1));
            }
        }
        let (slots_free, sequences_running) = (self.slots.free(), self.running.len() as u32);
        // The newcomer attends to as much as the others do in the mean.
        let attended = attended + attended / u64::from(sequences_running.max(1));
        let shape = StepShape { passes: 1, rows: sequences_running + 1, attended, ..StepShape::default() };
        let step_us = pace.cost.predict(&shape).unwrap_or_default();
        let of_step = self.config.step_tokens;
        ReplicaLoad {
            prompt_tokens,
            recomputed_tokens,
            sequences_waiting,
            sequences_running,
            slots_free,
            prompt_token_us: pace.cost.prompt_us(0, of_step, true).map_or(0.0, |us| us / f64::from(of_step)),
            step_us,
            output_tokens: self.lengths.mean(),
        }
    }
}

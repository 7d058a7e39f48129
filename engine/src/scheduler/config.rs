//! The bounds that a scheduler works within.

use crate::CHUNK_TOKENS;
use crate::cache::PrefixConfig;

/// Capacities and limits; all counts are positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// State slots, so also the most sequences that run at once.
    pub slots: u32,
    /// Number of KV pages.
    pub pages: u32,
    /// Positions one step should compute. Decode rows come first and all run; prompt pieces and recomputed positions
    /// share what they leave. One unit of [`CHUNK_TOKENS`] is granted even if less is left, so that a prompt always
    /// moves: [`Self::step_rows_max`] is the hard bound.
    pub step_tokens: u32,
    /// Positions a sequence may have, prompt and output together.
    pub context: u32,
    /// Requests that may wait.
    pub queue_requests_max: u32,
    /// Prompt tokens that may wait, all requests together. An empty queue takes a longer prompt.
    pub queue_prompt_tokens_max: u64,
    /// Launched steps that are not committed yet.
    pub steps_in_flight_max: u32,
    /// Different adapters that the rows of one step may have; 0 takes no request with one.
    pub adapter_slots: usize,
    /// What prompts leave behind for others.
    pub prefix: PrefixConfig,
}

impl SchedulerConfig {
    /// The most positions a step can have, for the backend's workspace.
    pub fn step_rows_max(&self) -> u32 {
        self.step_tokens.max(self.slots + CHUNK_TOKENS)
    }

    pub(super) fn assert_positive(&self) {
        let counts =
            [self.slots, self.pages, self.step_tokens, self.context, self.queue_requests_max, self.steps_in_flight_max];
        assert!(counts.iter().all(|&n| n > 0) && self.queue_prompt_tokens_max > 0, "every bound is positive: {self:?}");
    }
}

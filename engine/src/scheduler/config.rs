//! The bounds that a scheduler works within.

/// Capacities and limits; all counts are positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// State slots, so also the most sequences that run at once.
    pub slots: u32,
    /// KV pages.
    pub pages: u32,
    /// Positions one step may compute.
    pub step_tokens: u32,
    /// Positions a sequence may have, prompt and output together.
    pub context: u32,
    /// Requests that may wait.
    pub queue_requests_max: u32,
    /// Prompt tokens that may wait, all requests together.
    pub queue_prompt_tokens_max: u64,
    /// Launched steps that are not committed yet.
    pub steps_in_flight_max: u32,
}

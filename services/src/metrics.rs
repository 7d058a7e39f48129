//! Every metric's name, type, labels, unit and meaning, written once.

/// What a metric is, for `docs/metrics.md` and for Prometheus' HELP lines.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name as exported.
    pub name: &'static str,
    /// What it counts.
    pub kind: Kind,
    /// Label names.
    pub labels: &'static [&'static str],
    /// Meaning with unit.
    pub help: &'static str,
}

/// Prometheus' types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goes up.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Buckets.
    Histogram,
}

macro_rules! metrics {
    ($($ident:ident $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(#[doc = $help] pub const $ident: &str = $name;)*
        /// All of them.
        pub const ALL: &[Metric] = &[$(Metric { name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help }),*];
    };
}

metrics! {
    REQUESTS_RUNNING   Gauge     "chimere_requests_running" []             "Requests with at least one running sequence.";
    REQUESTS_WAITING   Gauge     "chimere_requests_waiting" []             "Requests waiting for a slot.";
    REQUESTS_TOTAL     Counter   "chimere_requests_total" ["outcome"]      "Requests ended, by outcome: stop, length, tool_calls, cancelled, failed.";
    PROMPT_TOKENS      Counter   "chimere_prompt_tokens_total" []          "Prompt tokens of requests that started.";
    GENERATED_TOKENS   Counter   "chimere_generated_tokens_total" []       "Tokens generated and delivered.";
    QUEUE_SECONDS      Histogram "chimere_queue_seconds" []                "Time from admission to the first step, in seconds.";
    TTFT_SECONDS       Histogram "chimere_ttft_seconds" []                 "Time from admission to the first token, in seconds.";
    ITL_SECONDS        Histogram "chimere_itl_seconds" []                  "Time between two tokens of a choice, in seconds.";
    E2E_SECONDS        Histogram "chimere_e2e_seconds" []                  "Time from admission to the end of a request, in seconds.";
    STEP_SECONDS       Histogram "chimere_step_seconds" ["kind"]           "Time of a step in seconds, by kind: decode, prefill, mixed.";
    BATCH_ROWS         Histogram "chimere_batch_rows" []                   "Positions computed in a step.";
    KV_PAGES           Gauge     "chimere_kv_pages" ["state"]              "KV pages, by state: used, free.";
    STATE_SLOTS        Gauge     "chimere_state_slots" ["state"]           "State slots, by state: used, free.";
    PREEMPTIONS        Counter   "chimere_preemptions_total" []            "Sequences preempted because no KV page was left.";
    REJECTED           Counter   "chimere_rejected_total" ["reason"]       "Requests refused, by reason.";
    MEMORY_BYTES       Gauge     "chimere_memory_bytes" ["use"]            "Bytes by use: weights, workspace, states, kv, process.";
    BUILD_INFO         Gauge     "chimere_build_info" ["version", "device", "model"] "Always 1; the labels say what runs.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_prefixed_and_carry_their_unit() {
        let names: HashSet<_> = ALL.iter().map(|m| m.name).collect();
        assert_eq!(names.len(), ALL.len());
        for m in ALL {
            assert!(m.name.starts_with("chimere_"), "{}", m.name);
            assert_eq!(m.kind == Kind::Counter, m.name.ends_with("_total"), "{}", m.name);
            assert!(m.help.ends_with('.'), "{}", m.name);
        }
    }
}

//! Every metric's name, type, labels, unit and meaning, written once, and the recorder that keeps them.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::sync::OnceLock;

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

/// Bucket bounds of times in seconds: 1 ms to two minutes, each about twice the one before.
const SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];
/// Bucket bounds of rows in a step: powers of two.
const ROWS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0];

/// Installs the recorder of this process, once, and describes every metric to it; later calls give the same handle.
pub fn install() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(start_recorder).clone()
}

/// Counters begin at 0, so that the first event is an increase to whoever watches.
fn start_counters() {
    for name in [PROMPT_TOKENS, GENERATED_TOKENS, PREEMPTIONS] {
        ::metrics::counter!(name).absolute(0);
    }
    for outcome in ["stop", "length", "tool_calls", "cancelled", "failed"] {
        ::metrics::counter!(REQUESTS_TOTAL, "outcome" => outcome).absolute(0);
    }
    for reason in ["queue_full", "queue_tokens_full", "prompt_too_long", "too_many_pages", "draining", "engine_lost", "key"] {
        ::metrics::counter!(REJECTED, "reason" => reason).absolute(0);
    }
}

fn start_recorder() -> PrometheusHandle {
    let mut builder = PrometheusBuilder::new();
    for metric in ALL.iter().filter(|m| m.kind == Kind::Histogram) {
        let bounds = if metric.name.ends_with("_seconds") { SECONDS } else { ROWS };
        builder = builder.set_buckets_for_metric(Matcher::Full(metric.name.into()), bounds).expect("bucket bounds are not empty");
    }
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    // Fails only when somebody else's recorder is installed, and then the metrics are theirs to show.
    ::metrics::set_global_recorder(recorder).ok();
    for metric in ALL {
        match metric.kind {
            Kind::Counter => ::metrics::describe_counter!(metric.name, metric.help),
            Kind::Gauge => ::metrics::describe_gauge!(metric.name, metric.help),
            Kind::Histogram => ::metrics::describe_histogram!(metric.name, metric.help),
        }
    }
    start_counters();
    handle
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

    #[test]
    fn what_is_recorded_comes_out_with_its_help_and_buckets() {
        let handle = install();
        ::metrics::counter!(REJECTED, "reason" => "a test").increment(2);
        ::metrics::histogram!(TTFT_SECONDS).record(0.018);
        let text = handle.render();
        assert!(text.contains("# HELP chimere_rejected_total Requests refused, by reason."), "{text}");
        assert!(text.contains("chimere_rejected_total{reason=\"a test\"} 2"), "{text}");
        assert!(text.contains("chimere_ttft_seconds_bucket{le=\"0.02\"}"), "{text}");
    }
}

//! What `/metrics` says, read as Prometheus reads it, from a program of its own: counts are exact there.

use crate::support::*;
use chimere::metrics::{ALL, MetricKind, OUTCOMES, REASONS};
use serde_json::{Value, json};
use std::collections::HashMap;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
/// Labels of every series under another engine's names.
const COMMON: &str = "model_name=\"golden\",engine=\"0\"";

/// Samples by name with labels, as written.
struct Exposition(HashMap<String, f64>);

impl Exposition {
    fn of(program: &Program) -> Self {
        let text = get(program.addr, "/metrics").text().to_owned();
        let samples =
            text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).map(|l| l.rsplit_once(' ').unwrap());
        Self(samples.map(|(series, value)| (series.to_owned(), value.parse().unwrap())).collect())
    }

    #[track_caller]
    fn get(&self, series: &str) -> f64 {
        *self.0.get(series).unwrap_or_else(|| panic!("no {series} in {:#?}", self.0.keys()))
    }

    /// A series of this service under another engine's name.
    #[track_caller]
    fn vllm(&self, name: &str) -> f64 {
        self.get(&format!("vllm:{name}{{{COMMON}}}"))
    }

    #[track_caller]
    fn rejected(&self, reason: &str) -> f64 {
        self.get(&format!("chimere_rejected_total{{reason=\"{reason}\"}}"))
    }
}

fn program() -> Program {
    Program::start(&["--model-name", "golden"])
}

#[test]
fn from_the_start_every_series_is_there_and_nothing_was_counted() {
    let at_start = Exposition::of(&program());
    for metric in ALL.iter().filter(|m| !m.name.starts_with("chimere_gpu_")) {
        let (name, what) = match metric.kind {
            MetricKind::Histogram(_) => (format!("{}_count", metric.name), "count"),
            MetricKind::Counter | MetricKind::Gauge => (metric.name.to_owned(), "value"),
        };
        let series: Vec<_> = at_start.0.iter().filter(|(s, _)| s.split('{').next() == Some(&name)).collect();
        assert!(!series.is_empty(), "{name} has no {what}");
        // The steps of the warm-up are steps; whatever tells of requests and tokens is 0.
        let of_steps = [
            "chimere_step_seconds",
            "chimere_step_rows_total",
            "chimere_batch_rows",
            "chimere_step_budget_ratio",
            "chimere_step_predicted_seconds",
            "chimere_step_prediction_ratio",
            "chimere_draft_choices_total",
        ];
        if metric.kind != MetricKind::Gauge && !of_steps.contains(&metric.name) {
            assert!(series.iter().all(|(_, value)| **value == 0.0), "{series:?}");
        }
        for label in metric.labels {
            assert!(series.iter().all(|(s, _)| s.contains(&format!("{label}=\""))), "{label} of {series:?}");
        }
    }
    for reason in REASONS {
        assert_eq!(at_start.rejected(reason), 0.0);
    }
    for outcome in OUTCOMES {
        assert_eq!(at_start.get(&format!("chimere_requests_total{{outcome=\"{outcome}\"}}")), 0.0);
    }
    for reason in ["stop", "length", "abort", "error"] {
        assert_eq!(at_start.get(&format!("vllm:request_success_total{{finished_reason=\"{reason}\",{COMMON}}}")), 0.0);
    }
    let pages = at_start.get("chimere_kv_pages{state=\"free\"}");
    assert_eq!(
        at_start.get(&format!("vllm:cache_config_info{{block_size=\"32\",num_gpu_blocks=\"{pages}\",{COMMON}}}")),
        1.0
    );
    assert_eq!(
        at_start.get(&format!(
            "vllm:lora_requests_info{{max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\",{COMMON}}}"
        )),
        0.0
    );
}

#[test]
fn requests_are_counted_once_under_both_names() {
    let program = program();
    let body = json!({"prompt": [1, 2, 3, 4, 5], "max_tokens": 7, "temperature": 0, "ignore_eos": true});
    for stream in [false, true] {
        let reply = post(program.addr, COMPLETIONS, &with(body.clone(), json!({"stream": stream})));
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    eventually("both are over", || Exposition::of(&program).get("chimere_requests_total{outcome=\"length\"}") == 2.0);
    let now = Exposition::of(&program);
    for (own, other, want) in [
        ("chimere_prompt_tokens_total", "prompt_tokens_total", 10.0),
        ("chimere_generated_tokens_total", "generation_tokens_total", 14.0),
        ("chimere_ttft_seconds_count", "time_to_first_token_seconds_count", 2.0),
        ("chimere_itl_seconds_count", "inter_token_latency_seconds_count", 12.0),
        ("chimere_e2e_seconds_count", "e2e_request_latency_seconds_count", 2.0),
        ("chimere_queue_seconds_count", "request_queue_time_seconds_count", 2.0),
        ("chimere_preemptions_total", "num_preemptions_total", 0.0),
    ] {
        assert_eq!((now.get(own), now.vllm(other)), (want, want), "{own}");
    }
    for name in ["prefill_time_seconds", "decode_time_seconds", "time_per_output_token_seconds"] {
        assert_eq!(now.vllm(&format!("request_{name}_count")), 2.0, "{name}");
    }
    assert_eq!((now.vllm("request_prompt_tokens_sum"), now.vllm("request_generation_tokens_sum")), (10.0, 14.0));
    assert_eq!(now.get(&format!("vllm:request_success_total{{finished_reason=\"length\",{COMMON}}}")), 2.0);
    assert_eq!(now.get(&format!("vllm:request_prompt_tokens_bucket{{{COMMON},le=\"5\"}}")), 2.0);
    assert_eq!(now.get(&format!("vllm:request_generation_tokens_bucket{{{COMMON},le=\"5\"}}")), 0.0);
}

#[test]
fn embeddings_are_requests_that_start_and_end() {
    let program = program();
    for input in [json!("one text"), json!(["several", "texts", "in one"])] {
        assert_eq!(post(program.addr, "/v1/embeddings", &json!({"input": input})).status, 200);
    }
    eventually("both are over", || Exposition::of(&program).get("chimere_requests_total{outcome=\"embedded\"}") == 2.0);
    assert_eq!(Exposition::of(&program).get("chimere_requests_started_total"), 2.0);
}

#[test]
fn gauges_show_what_runs_and_fall_back_to_nothing() {
    let program = program();
    let endless =
        json!({"prompt": "Once", "max_tokens": 100_000, "temperature": 0, "ignore_eos": true, "stream": true});
    let mut stream = Stream::open(program.addr, COMPLETIONS, &endless);
    stream.chunk();
    let busy = Exposition::of(&program);
    assert_eq!(busy.vllm("num_requests_running"), 1.0);
    // One of the four slots, which is more than its share of the pages.
    assert_eq!(busy.vllm("kv_cache_usage_perc"), 0.25);
    drop(stream);
    let abort = format!("vllm:request_success_total{{finished_reason=\"abort\",{COMMON}}}");
    eventually("it is cancelled", || Exposition::of(&program).get(&abort) == 1.0);
    // The scheduler hears of it on a thread of its own.
    eventually("nothing runs any more", || {
        let idle = Exposition::of(&program);
        (idle.vllm("num_requests_running"), idle.vllm("kv_cache_usage_perc")) == (0.0, 0.0)
    });
}

#[test]
fn every_refusal_is_counted_once_by_its_reason() {
    let program = program();
    let send = |path: &str, body: Value| post(program.addr, path, &body).status;
    assert_eq!(send(COMPLETIONS, json!({"prompt": "x", "temperature": "hot"})), 400);
    assert_eq!(send(CHAT, json!([])), 400);
    assert_eq!(send(CHAT, with(ask("x"), json!({"no_such_field": 1}))), 400);
    assert_eq!(send(CHAT, with(ask("x"), json!({"model": "other"}))), 404);
    assert_eq!(send("/nowhere", json!({})), 404);
    assert_eq!(get(program.addr, CHAT).status, 405);
    assert_eq!(send(COMPLETIONS, json!({"prompt": vec![1; 100_000]})), 400);
    let announced = request(program.addr, "POST", CHAT, &[], &vec![b' '; 9 << 20]);
    assert_eq!(announced.status, 413);
    let now = Exposition::of(&program);
    let counted: Vec<_> =
        REASONS.iter().map(|reason| (*reason, now.rejected(reason))).filter(|(_, n)| *n > 0.0).collect();
    assert_eq!(
        counted,
        [
            ("prompt_too_long", 1.0),
            ("invalid", 2.0),
            ("unsupported", 1.0),
            ("model_not_found", 1.0),
            ("unknown_path", 1.0),
            ("method_not_allowed", 1.0),
            ("body_too_large", 1.0)
        ]
    );
}

//! What vLLM's dashboards and the Kubernetes inference gateway read, under the names, labels and units that they know.
//! The handles are made once, when a service starts, so every series is there from then on and a token costs two
//! additions.

use super::*;
use crate::clock::unix_seconds;
use ::metrics::{Counter, Gauge, Histogram, Label};
use chimere_engine::PAGE_TOKENS;
use chimere_engine::scheduler::{SchedulerConfig, Stats};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::time::Duration;

/// The engine's number among those of one server, which is a label; there is one.
const ENGINE: &str = "0";

/// What a request that has all its tokens took.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompletedRequest {
    /// From admission to the end.
    pub total: Duration,
    /// From the first step to the first token.
    pub prefill: Duration,
    /// From the first token to the last.
    pub decode: Duration,
    /// Between two tokens of a choice, on average; zero where there was one token.
    pub itl_mean: Duration,
    /// Tokens of all its prompts.
    pub prompt_tokens: u32,
    /// Tokens of all its choices.
    pub completion_tokens: u32,
}

/// All series of one service.
pub struct Gateway {
    running: Gauge,
    waiting: Gauge,
    kv_usage: Gauge,
    prompt_tokens: Counter,
    generation_tokens: Counter,
    stop: Counter,
    length: Counter,
    abort: Counter,
    error: Counter,
    preemptions: Counter,
    cache_queries: Counter,
    cache_hits: Counter,
    drafts: Counter,
    draft_tokens: Counter,
    accepted: Counter,
    accepted_at: Vec<Counter>,
    ttft: Histogram,
    itl: Histogram,
    tpot: Histogram,
    e2e: Histogram,
    queue: Histogram,
    prefill: Histogram,
    decode: Histogram,
    request_prompt: Histogram,
    request_generation: Histogram,
    adapters: Mutex<AdaptersAtWork>,
}

/// Names of the adapters that requests have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdaptersAtWork {
    /// Those of sequences that run.
    pub running: BTreeSet<String>,
    /// Those of sequences that wait, for a slot of theirs or for their turn.
    pub waiting: BTreeSet<String>,
}

impl Gateway {
    /// Starts every series at 0. `model` is the name that clients ask for; the recorder must be installed.
    pub fn new(model: &str, config: &SchedulerConfig) -> Self {
        let all = |more: &[(&'static str, String)]| -> Vec<Label> {
            let common = [("model_name", model.to_owned()), ("engine", ENGINE.to_owned())];
            more.iter().cloned().chain(common).map(|(name, value)| Label::new(name, value)).collect()
        };
        let common = all(&[]);
        let gauge = |name: &'static str| ::metrics::gauge!(name, common.clone());
        let counter = |name: &'static str| ::metrics::counter!(name, common.clone());
        let histogram = |name: &'static str| ::metrics::histogram!(name, common.clone());
        let ended = |reason: &str| ::metrics::counter!(VLLM_SUCCESS, all(&[("finished_reason", reason.to_owned())]));
        let cache = all(&[("block_size", PAGE_TOKENS.to_string()), ("num_gpu_blocks", config.pages.to_string())]);
        ::metrics::gauge!(VLLM_CACHE_CONFIG, cache).set(1.0);
        let slots = config.adapter_slots.to_string();
        let no_adapters =
            [("max_lora", slots), ("running_lora_adapters", "".into()), ("waiting_lora_adapters", "".into())];
        ::metrics::gauge!(VLLM_LORA, all(&no_adapters)).set(0.0);
        Self {
            adapters: Mutex::default(),
            running: gauge(VLLM_RUNNING),
            waiting: gauge(VLLM_WAITING),
            kv_usage: gauge(VLLM_KV_USAGE),
            prompt_tokens: counter(VLLM_PROMPT_TOKENS),
            generation_tokens: counter(VLLM_GENERATION_TOKENS),
            stop: ended("stop"),
            length: ended("length"),
            abort: ended("abort"),
            error: ended("error"),
            preemptions: counter(VLLM_PREEMPTIONS),
            cache_queries: counter(VLLM_CACHE_QUERIES),
            cache_hits: counter(VLLM_CACHE_HITS),
            drafts: counter(VLLM_DRAFTS),
            draft_tokens: counter(VLLM_DRAFT_TOKENS),
            accepted: counter(VLLM_DRAFT_ACCEPTED),
            accepted_at: (0..DRAFT_POSITIONS.len())
                .map(|place| ::metrics::counter!(VLLM_DRAFT_POSITION, all(&[("position", place.to_string())])))
                .collect(),
            ttft: histogram(VLLM_TTFT),
            itl: histogram(VLLM_ITL),
            tpot: histogram(VLLM_TPOT),
            e2e: histogram(VLLM_E2E),
            queue: histogram(VLLM_QUEUE),
            prefill: histogram(VLLM_PREFILL),
            decode: histogram(VLLM_DECODE),
            request_prompt: histogram(VLLM_REQUEST_PROMPT),
            request_generation: histogram(VLLM_REQUEST_GENERATION),
        }
    }

    /// How the scheduler stands, and what was added to its counts.
    pub fn stands(&self, now: &Stats, preemptions: u64, prompt_tokens: u64) {
        self.running.set(f64::from(now.requests_running));
        self.waiting.set(f64::from(now.requests_waiting));
        self.kv_usage.set(usage(now));
        self.preemptions.increment(preemptions);
        self.prompt_tokens.increment(prompt_tokens);
    }

    /// Which adapters requests have now.
    pub fn has_adapters(&self, now: AdaptersAtWork) {
        *self.adapters.lock() = now;
    }

    /// Rendered metrics, in which the series of adapters says how things stand: as labels are names, a series for each
    /// state would stay for ever.
    pub fn with_adapters(&self, text: String) -> String {
        let AdaptersAtWork { running, waiting } = self.adapters.lock().clone();
        if running.is_empty() && waiting.is_empty() {
            return text;
        }
        let list = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(",");
        let series = [("running_lora_adapters", list(running)), ("waiting_lora_adapters", list(waiting))];
        let stated = |line: &str| {
            let line = line.strip_suffix(" 0").unwrap_or(line);
            let line = series.iter().fold(line.to_owned(), |line, (label, names)| {
                line.replace(&format!("{label}=\"\""), &format!("{label}=\"{names}\""))
            });
            format!("{line} {}", unix_seconds())
        };
        let lines = text.lines().map(|line| {
            let own = line.starts_with(VLLM_LORA) && line.ends_with(" 0");
            if own { stated(line) } else { line.to_owned() }
        });
        lines.collect::<Vec<_>>().join("\n") + "\n"
    }

    /// So many more prompt tokens were looked up in the prefix cache, and so many of them found.
    pub fn looked_up(&self, tokens: u64, found: u64) {
        self.cache_queries.increment(tokens);
        self.cache_hits.increment(found);
    }

    /// So many more rows had drafts behind them, so many tokens together.
    pub fn drafted(&self, rows: u64, tokens: u64) {
        self.drafts.increment(rows);
        self.draft_tokens.increment(tokens);
    }

    /// So many more drafts in this place, from 0, were what was sampled.
    pub fn accepted(&self, place: usize, tokens: u64) {
        self.accepted.increment(tokens);
        self.accepted_at[place].increment(tokens);
    }

    /// A request has waited this long for its first step.
    pub fn started(&self, queue: f64) {
        self.queue.record(queue);
    }

    /// One token more was generated and delivered.
    pub fn token(&self) {
        self.generation_tokens.increment(1);
    }

    /// The first token came, this many seconds after admission.
    pub fn first_token(&self, seconds: f64) {
        self.ttft.record(seconds);
    }

    /// Another token of a choice came, this many seconds after the one before.
    pub fn next_token(&self, seconds: f64) {
        self.itl.record(seconds);
    }

    /// A request has all its tokens.
    pub fn completed(&self, took: &CompletedRequest) {
        self.e2e.record(took.total.as_secs_f64());
        self.prefill.record(took.prefill.as_secs_f64());
        self.decode.record(took.decode.as_secs_f64());
        // A request of one token has no time between tokens; a 0 would pull the percentiles down.
        if took.itl_mean > Duration::ZERO {
            self.tpot.record(took.itl_mean.as_secs_f64());
        }
        self.request_prompt.record(f64::from(took.prompt_tokens));
        self.request_generation.record(f64::from(took.completion_tokens));
    }

    /// A request is over, with one of [`OUTCOMES`].
    pub fn ended(&self, outcome: &str) {
        match outcome {
            "stop" | "tool_calls" | "embedded" | "decided" => self.stop.increment(1),
            "length" => self.length.increment(1),
            "failed" | "deadline" => self.error.increment(1),
            _ => self.abort.increment(1),
        }
    }
}

/// Share of the scarcer of the two things that a sequence needs.
fn usage(now: &Stats) -> f64 {
    let share = |used: u32, free: u32| f64::from(used) / f64::from((used + free).max(1));
    share(now.pages_used, now.pages_free).max(share(now.slots_used, now.slots_free))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_as_full_as_the_fuller_of_pages_and_slots() {
        let stats = |pages_used, slots_used| Stats {
            pages_used,
            pages_free: 100 - pages_used,
            slots_used,
            slots_free: 4 - slots_used,
            ..Stats::default()
        };
        assert_eq!(usage(&stats(10, 3)), 0.75);
        assert_eq!(usage(&stats(90, 1)), 0.9);
        assert_eq!(usage(&Stats::default()), 0.0);
    }
}

//! Every metric's name, type, labels, unit and meaning, written once, and the recorder that keeps them.
//! [`docs::document`] makes `docs/reference/metrics.md` from this file; `gateway.rs` records under the names that other
//! engines' dashboards read.

pub mod docs;
pub mod gateway;
mod ignored;
pub mod keys;
pub mod learning;
pub mod panels;
pub mod replicas;

pub use ignored::{IGNORED, count_ignored};

use chimere_engine::drafts::{ByDraftCount, ByPlace, DraftKind};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::sync::OnceLock;

/// What a metric is, for `docs/reference/metrics.md` and for Prometheus' HELP lines.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name under which the metric is exported, with its prefix and unit.
    pub name: &'static str,
    /// Whether it is a counter, a gauge or a histogram.
    pub kind: MetricKind,
    /// Names of the labels, in the order in which their values are given.
    pub labels: &'static [&'static str],
    /// What one is one of.
    pub unit: &'static str,
    /// What it means, as `/metrics` says it.
    pub help: &'static str,
}

/// The types that Prometheus has for metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricKind {
    /// A number that only goes up.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Buckets with these upper bounds, and one above them.
    Histogram(&'static [f64]),
}

macro_rules! metrics {
    ($($ident:ident $kind:ident $(($bounds:ident))? $name:literal [$($label:literal),*] $unit:literal $help:literal;)*) => {
        $(#[doc = $help] pub const $ident: &str = $name;)*
        /// Every metric that is exported.
        pub const ALL: &[Metric] = &[
            $(Metric { name: $name, kind: MetricKind::$kind $(($bounds))?, labels: &[$($label),*], unit: $unit, help: $help }),*
        ];
    };
}

metrics! {
    REQUESTS_RUNNING   Gauge     "chimere_requests_running" [] "requests"            "Requests with at least one running sequence.";
    REQUESTS_WAITING   Gauge     "chimere_requests_waiting" [] "requests"            "Requests waiting for a slot.";
    REQUESTS_STARTED   Counter   "chimere_requests_started_total" [] "requests"      "Requests taken; each ends once in chimere_requests_total.";
    REQUESTS_TOTAL     Counter   "chimere_requests_total" ["outcome"] "requests"     "Requests ended, by outcome: stop, length, tool_calls, cancelled, failed, slow_client (it did not read its stream), deadline (it passed), embedded (it wanted no text), decided (it wanted no text either).";
    PROMPT_TOKENS      Counter   "chimere_prompt_tokens_total" [] "tokens"           "Prompt tokens of requests that started.";
    GENERATED_TOKENS   Counter   "chimere_generated_tokens_total" [] "tokens"        "Tokens generated and delivered.";
    THINKING_TOKENS    Counter   "chimere_thinking_tokens_total" [] "tokens"         "Generated tokens that belonged to reasoning, what closed it included.";
    THINKING_ENDED     Counter   "chimere_thinking_ended_total" ["reason"] "choices" "Thoughts of requests that bounded them, by why they ended: model, budget, certain; sure is an answer that effort auto found to need none.";
    MOE_ROWS           Counter   "chimere_moe_rows_total" [] "rows"                  "Rows of requests with `moe`, once a layer.";
    MOE_EXPERTS        Counter   "chimere_moe_experts_total" [] "experts"            "Experts that these rows were given to; over chimere_moe_rows_total it is their mean.";
    EXPERT_READS       Counter   "chimere_expert_reads_total" ["place"] "experts"    "Routed experts that passes over all layers read, each once a layer and pass, by where they lay: device, host. Where all lie on the device nobody counts.";
    EXPERT_HOST_BYTES  Counter   "chimere_expert_host_bytes_total" [] "bytes"        "Bytes of routed experts that were read in the host's memory.";
    EXPERT_SWAPS       Counter   "chimere_expert_promotions_total" [] "experts"      "Routed experts that came to the device's memory, each in the place of another.";
    TURN_ROUNDS Histogram(ROUNDS) "chimere_turn_rounds" [] "generations" "Generations of a turn that may make calls.";
    PIPELINES Gauge "chimere_pipelines" ["state"] "files"
        "Files of pipelines by state: served, refused (with a mistake; their last good version may be served).";
    PIPELINE_STEPS Counter "chimere_pipeline_steps_total" ["pipeline", "step", "outcome"] "steps"
        "Steps of pipelines that were done, by what came of them.";
    PIPELINE_STEP_SECONDS Histogram(SECONDS) "chimere_pipeline_step_seconds" ["pipeline", "step"] "seconds"
        "Time of a pipeline's step, in seconds.";
    TOOL_CALLS Counter "chimere_tool_calls_total" ["server", "tool", "outcome"] "calls"
        "Calls that the server ran itself, by the MCP server of the operator's file (none for its own functions), \
            by tool and by what came of them: answered, refused (not run), failed, asked (it waits for an \
            approval).";
    TOOL_SECONDS Histogram(SECONDS) "chimere_tool_seconds" ["server"] "seconds"
        "Time that a call of an MCP server's tool took, in seconds.";
    TOOLS_CHANGED Counter "chimere_tools_changed_total" ["server"] "tools"
        "Tools of MCP servers that are withheld because they changed since they were accepted.";
    TOOL_FILES_REFUSED Counter "chimere_tool_files_refused_total" [] "files"
        "Files of tools that had a mistake when they changed, so that the tools stayed as they were.";
    QUEUE_SECONDS      Histogram(SECONDS) "chimere_queue_seconds" [] "seconds"       "Time from admission to the first step, in seconds.";
    TTFT_SECONDS       Histogram(SECONDS) "chimere_ttft_seconds" [] "seconds"        "Time from admission to the first token, in seconds.";
    ITL_SECONDS        Histogram(SECONDS) "chimere_itl_seconds" [] "seconds"         "Time between two tokens of a choice, in seconds.";
    E2E_SECONDS        Histogram(SECONDS) "chimere_e2e_seconds" [] "seconds"         "Time from admission to the end of a request, in seconds.";
    STEP_SECONDS       Histogram(SECONDS) "chimere_step_seconds" ["kind"] "seconds"  "Time of a step in seconds, by kind: decode, prefill, mixed.";
    STEP_AGE           Gauge     "chimere_step_age_seconds" [] "seconds"             "Time for which the engine has shown no progress although there is work, in seconds, looked at four times a second; the watchdog declares the engine lost when it is too long.";
    ENGINE_LOST Gauge "chimere_engine_lost" [] "engines"
        "Engines that were lost. The process ends when none is left.";
    REPLICA_UP Gauge "chimere_replica_up" ["replica"] "0 or 1"
        "1 while a replica computes, 0 once its engine is lost; of services with several.";
    REPLICA_REQUESTS Gauge "chimere_replica_requests" ["replica", "state"] "requests"
        "Requests of a replica, by state: running, waiting; of services with several. Their sums are \
            chimere_requests_running and chimere_requests_waiting.";
    REPLICA_ROWS Counter "chimere_replica_rows_total" ["replica", "form"] "positions"
        "Positions that a replica computed, by form: prompt, decode; of services with several.";
    DISPATCHED Counter "chimere_dispatched_total" ["replica", "why"] "requests"
        "Requests given to a replica, by why it was chosen: prefix (it keeps more of the prompt), wait (others would \
            begin later), load (it has the fewest sequences), next (another one refused); of services with several.";
    MIGRATED Counter "chimere_migrated_requests_total" ["outcome"] "requests"
        "Requests of a lost replica, by outcome: moved to another one, failed because none took it.";
    BATCH_ROWS         Histogram(ROWS) "chimere_batch_rows" [] "positions"           "Positions computed in a step.";
    STEP_BUDGET        Histogram(BUDGET) "chimere_step_budget_ratio" ["of"] "ratio"  "Share of a step's budget that it used: of positions, and, where somebody decodes and a target is set, of time as it was predicted.";
    GRAPH_REPLAYS      Counter   "chimere_graph_replays_total" [] "graphs"           "Captured graphs that a GPU replayed, each a decode pass; 0 on a CPU.";
    STEP_ROWS          Counter   "chimere_step_rows_total" ["form"] "positions"      "Positions computed, by form: prompt (in chunks), decode (one by one).";
    DRAFTED            Counter   "chimere_drafted_tokens_total" ["source"] "tokens"  "Tokens drafted, by source: ngram, prediction, grammar, mtp. Each took a row of a step.";
    ACCEPTED           Counter   "chimere_accepted_tokens_total" ["source", "position"] "tokens" "Drafted tokens that were what was sampled, by source and by place behind the sequence's own token, from 1.";
    DRAFT_ROWS         Counter   "chimere_draft_choices_total" ["drafts"] "rows"     "Decode rows by how many drafts were put behind them, 0 to 7: what the gate chose.";
    DRAFT_LOST         Counter   "chimere_draft_sources_lost_total" [] "sources"     "Sources of drafts that panicked and were switched off.";
    CANCEL_SECONDS     Histogram(SHORT) "chimere_cancel_seconds" [] "seconds"      "Time from seeing that a client left to having its place free, in seconds.";
    WAITING_BY_KEY     Gauge     "chimere_waiting_by_key" ["key"] "requests"         "Requests that wait for their first step, by API key: a hash, none, or other for keys that came late.";
    WAITING_BY_REASON  Gauge     "chimere_waiting_by_reason" ["reason"] "requests"   "Requests that wait, by what the first of them lacks: slots, memory, budget; and those that were preempted.";
    PREDICTED_WAIT     Histogram(SECONDS) "chimere_predicted_wait_seconds" [] "seconds" "Time from admission to the first step as it was predicted for requests that had to wait, in seconds; chimere_queue_seconds is what it was.";
    WAIT_RATIO         Histogram(RATIOS) "chimere_wait_prediction_ratio" [] "ratio"  "Predicted over actual time to the first step, for requests that waited longer than 0.1 s.";
    REFUSED_WAIT       Histogram(SECONDS) "chimere_rejected_wait_seconds" [] "seconds" "Time until there should be room, as it was predicted when a request was refused, in seconds.";
    STEP_PREDICTED     Histogram(SECONDS) "chimere_step_predicted_seconds" ["kind"] "seconds" "Time of a step as it was predicted, in seconds, by kind.";
    STEP_RATIO         Histogram(RATIOS) "chimere_step_prediction_ratio" ["kind"] "ratio" "Predicted over actual time of a step, by kind.";
    DECODE_STALL       Histogram(SECONDS) "chimere_decode_stall_seconds" [] "seconds" "Time by which a step's prompts held up tokens that were decoded beside them or sat it out, in seconds.";
    KV_PAGES           Gauge     "chimere_kv_pages" ["state"] "pages"                "KV pages, by state: used, free.";
    STATE_SLOTS        Gauge     "chimere_state_slots" ["state"] "slots"             "State slots, by state: used, free.";
    ROWS_SAT_OUT       Counter   "chimere_rows_sat_out_total" [] "positions"         "Decode rows that sat out a step, so that prompts of another key, or of a step of their own, came sooner.";
    ADAPTER_SWAPS Counter "chimere_adapter_swaps_total" [] "swaps"
        "Adapters that gave up their slot on the device to another one.";
    ADAPTER_ROWS Counter "chimere_adapter_rows_total" ["adapter"] "rows"
        "Rows of steps that were computed with an adapter, by its name.";
    IDLE_REQUESTS Gauge "chimere_idle_requests" ["state"] "requests"
        "Requests of idle work, by state: running with a slot that nobody wants, waiting for one.";
    IDLE_ROWS Counter "chimere_idle_rows_total" [] "positions"
        "Positions computed for idle work, in steps of its own and in what others' steps had left.";
    IDLE_PARKED Counter "chimere_idle_parked_total" [] "sequences"
        "Sequences of idle work that gave up their memory to another request, to be computed again later.";
    PREEMPTIONS        Counter   "chimere_preemptions_total" [] "sequences"          "Sequences preempted because no KV page was left.";
    PREFIX_QUERIES     Counter   "chimere_prefix_queries_total" [] "requests"        "Prompts looked up in the prefix cache: those of requests that started and did not opt out.";
    PREFIX_HITS        Counter   "chimere_prefix_hits_total" [] "requests"           "Prompts that went on from an entry of the prefix cache.";
    PREFIX_QUERY_TOKENS Counter  "chimere_prefix_query_tokens_total" [] "tokens"     "Tokens of the prompts that were looked up in the prefix cache.";
    PREFIX_HIT_TOKENS  Counter   "chimere_prefix_hit_tokens_total" ["tier"] "tokens" "Prompt tokens that the prefix cache spared, by where their entry lay: device, or host, from where it was brought back.";
    PREFIX_KNOWN_TOKENS Counter  "chimere_prefix_known_tokens_total" [] "tokens"     "Tokens of looked-up prompts that were read before in the same scope, in whole units of 64: what an unbounded cache with an entry at every unit would have spared.";
    PREFIX_ENTRIES     Gauge     "chimere_prefix_entries" ["tier"] "entries"         "Entries of the prefix cache, a state and the KV pages before it, by where they lie: device, host; most lie on both.";
    PREFIX_PAGES       Gauge     "chimere_prefix_pages" [] "pages"                   "KV pages that entries of the prefix cache on the device need; running sequences may share them.";
    PREFIX_BYTES       Gauge     "chimere_prefix_bytes" ["tier"] "bytes"             "Bytes of the states and pages of entries of the prefix cache, by where they lie: device, host.";
    PREFIX_TAKEN       Counter   "chimere_prefix_taken_total" [] "entries"           "Entries that prompts left in the prefix cache.";
    PREFIX_EVICTIONS   Counter   "chimere_prefix_evictions_total" ["tier"] "entries" "Entries of the prefix cache given up because something else needed their room, by where: device, host. One that the device gives up may be on the host still.";
    PREFIX_SKIPPED     Counter   "chimere_prefix_skipped_total" [] "entries"         "Entries that were not made because somebody was about to go on from the entry of every place.";
    PREFIX_TRANSFER    Histogram(SECONDS) "chimere_prefix_transfer_seconds" ["direction"] "seconds" "Time that copying an entry of the prefix cache between the device and the host took, beside the steps: save, load.";
    KV_EVENTS Counter "chimere_kv_events_total" ["outcome"] "batches"
        "Batches of KV events, by outcome: sent to the thread that publishes them, lost because that had no room.";
    REJECTED           Counter   "chimere_rejected_total" ["reason"] "requests"      "Requests refused, by reason.";
    IGNORED_FIELDS     Counter   "chimere_ignored_fields_total" ["field"] "fields"   "Fields of requests that were taken without effect, by place and name; other for names that nobody here knows.";
    MEMORY_BYTES       Gauge     "chimere_memory_bytes" ["use"] "bytes"              "Bytes by use: weights, workspace, reserve (a GPU driver's own), states, checkpoints (of the prefix cache), kv, host (pinned for a GPU), process.";
    GPU_MEMORY_BYTES   Gauge     "chimere_gpu_memory_bytes" ["of"] "bytes"           "Bytes of the GPU's memory: total, used (by everybody), process (by this one, where NVML tells).";
    GPU_UTILIZATION    Gauge     "chimere_gpu_utilization_ratio" [] "0 to 1"         "Share of the last moments in which a kernel ran on the GPU, 0 to 1.";
    GPU_POWER_WATTS    Gauge     "chimere_gpu_power_watts" [] "watts"                "Power that the GPU draws, in watts.";
    GPU_TEMPERATURE    Gauge     "chimere_gpu_temperature_celsius" [] "degrees C"    "Temperature of the GPU, in degrees Celsius.";
    START_TIME         Gauge     "chimere_start_time_seconds" [] "seconds"           "When the service started, in seconds since 1970.";
    CERTIFICATE_EXPIRY Gauge     "chimere_tls_certificate_expiry_seconds" [] "seconds" "When the TLS certificate ends, in seconds since 1970; 0 without TLS.";
    ENGRAM_LOOKUPS     Counter   "chimere_engram_lookups_total" [] "positions"       "Positions that tables were asked about, each once for all its tables and orders.";
    ENGRAM_HITS        Counter   "chimere_engram_hits_total" [] "positions"          "Positions where a table knew what might follow.";
    ENGRAM_CHANGED_TOKENS Counter "chimere_engram_changed_tokens_total" [] "tokens"  "Tokens that tables made others than they would have been.";
    ENGRAM_LOOKUP_SECONDS Histogram(LOOKUP) "chimere_engram_lookup_seconds" [] "seconds" "Time to look up and weigh all rows of a step, in seconds.";
    ENGRAM_LATE        Counter   "chimere_engram_late_total" [] "steps"              "Steps whose forward was over before their edits were ready; the sampler waited for them.";
    ENGRAM_LATE_SECONDS Histogram(LOOKUP) "chimere_engram_late_seconds" [] "seconds" "How long samplers waited for late edits, in seconds.";
    ENGRAM_RESTARTS    Counter   "chimere_engram_restarts_total" [] "times"          "Times that the actor which looks tables up died and was started anew; the requests that used tables failed.";
    GRAMMAR_MASKS      Counter   "chimere_grammar_masks_total" [] "positions"        "Positions that a grammar was asked about: what of the vocabulary may come there.";
    GRAMMAR_MASK_SECONDS Histogram(LOOKUP) "chimere_grammar_mask_seconds" [] "seconds" "Time to ask the grammars of all rows of a step, in seconds.";
    GRAMMAR_RESTARTS   Counter   "chimere_grammar_restarts_total" [] "times"         "Times that the actor which follows grammars died and was started anew; the requests under a grammar failed.";
    ENGRAM_TABLES      Gauge     "chimere_engram_tables" [] "tables"                 "Tables that requests can name.";
    ENGRAM_TABLE_BYTES Gauge     "chimere_engram_table_bytes" [] "bytes"             "Bytes of the mapped tables and of their filter.";
    CONNECTIONS_REFUSED Counter  "chimere_connections_refused_total" [] "connections" "Connections ended as they came, because their address had its share of limits.connections, or of those to server.admin_port.";
    SOCKETS Gauge "chimere_sockets" [] "sockets" "WebSockets that are open, at work or between two requests.";
    CLIENT_FAULTS      Counter  "chimere_client_faults_total" ["fault"] "connections" "Connections ended through a fault of their clients: malformed (no HTTP), long_head, no_room (for its head), slow_head, slow_body, unread (its answer), handshake (of TLS), broken. The log has a line for each kind now and then.";
    NOT_FINITE         Counter   "chimere_not_finite_total" [] "requests"            "Requests that failed because the model's numbers for them were NaN or infinite: its weights or its activations overflow.";
    LOG_LOST           Counter   "chimere_log_lost_total" [] "lines"                 "Lines of the log that were not written: nobody reads it fast enough, or its disk is full.";
    TRACE_FAILURES     Counter   "chimere_trace_failures_total" [] "batches"         "Batches of spans that the collector of traces did not take.";
    EMBEDDING_INPUTS   Counter   "chimere_embedding_inputs_total" [] "texts"        "Texts that were embedded, those of collections and of searches too.";
    CITATIONS          Counter   "chimere_citations_total" ["verified"] "citations" "Marks of answers that name a numbered source, by whether that source was found to say so; the others get no citation.";
    ENCODER_TOKENS     Counter   "chimere_encoder_tokens_total" [] "tokens" "Tokens that the encoder read.";
    ENCODER_SECONDS Histogram(SECONDS) "chimere_encoder_seconds" [] "seconds" "Time of a request in the encoder.";
    MCP_CALLS Counter "chimere_mcp_calls_total" ["tool", "outcome"] "calls" "Calls over MCP, by tool and outcome.";
    MCP_CALL_SECONDS Histogram(SECONDS) "chimere_mcp_call_seconds" ["tool"] "seconds" "Time of a call over MCP.";
    OUTBOUND_REFUSED   Counter   "chimere_outbound_refused_total" ["why"] "requests"
        "Requests out of the process that made no connection, by what was wrong with their destination: scheme, \
            user, port, host (no name and no usual address), unlisted, address (not public), redirect.";
    DECISIONS          Counter   "chimere_decisions_total" ["type"] "decisions"     "Questions decided, by type: predicate, choice, score, rerank (a document), sufficient (the passages of an answer).";
    SEMANTIC_SEARCH_SECONDS Histogram(LOOKUP) "chimere_semantic_search_seconds" [] "seconds" "Time to find the nearest items of a collection once the text was embedded, in seconds.";
    RESPONSES_KEPT     Gauge     "chimere_responses_kept" [] "responses"             "Responses of all accounts that `/v1/responses` keeps.";
    RESPONSE_BYTES     Gauge     "chimere_response_bytes" [] "bytes"                 "Bytes of the kept responses, with the conversations before them.";
    RESPONSES_DROPPED  Counter   "chimere_responses_dropped_total" ["reason"] "responses" "Responses kept no longer that nobody deleted, or not at all, by reason: time (theirs is over), account (no room left for it), store (no room left for all), large (one alone), write (the disk failed or is behind).";
    FEEDBACK           Counter   "chimere_feedback_total" ["rating"] "answers" "Answers that were rated or corrected.";
    LEARNING_EXAMPLES  Gauge     "chimere_learning_examples" ["set"] "examples" "Examples to learn from, by set.";
    LEARNING_DROPPED   Counter   "chimere_learning_dropped_total" ["reason"] "examples" "Examples not kept.";
    LEARNING_RUNS Counter "chimere_learning_runs_total" ["learner", "outcome"] "runs"
        "Runs of each learner (facts), by outcome: nothing (new to learn), passed, needs_more (questions), \
            people (have to choose), refused, failed.";
    LEARNING_CHANGES Counter "chimere_learning_changes_total" ["change"] "versions"
        "Changes of what is served of what was learned: promoted, rolled_back, withdrawn \
            (somebody took back what it was made from).";
    GATE_LOWER Gauge "chimere_gate_lower_bound" ["role"] "points"
        "Lower bound of the difference that the last candidate made, in points of a family: \
            the least of the families of each role.";
    GATE_DIFFERENCE Gauge "chimere_gate_difference" ["family"] "points"
        "Difference that the last candidate made in each family of questions, in points of it.";
    LEARNING_WITHHELD Gauge "chimere_learning_withheld" ["learner"] "versions"
        "Whether a version is current that answers nobody, because it was made for another model: 0 or 1.";
    COLLECTIONS        Gauge     "chimere_collections" [] "collections"              "Collections of all keys.";
    COLLECTION_BYTES   Gauge     "chimere_collection_bytes" [] "bytes"               "Bytes of the texts and vectors of all collections, about.";
    INGEST_QUEUE       Gauge     "chimere_ingest_queue" [] "files"                   "Files of vector stores that wait to be read and cut.";
    STORE_FILES        Gauge     "chimere_store_files" ["state"] "files"             "Files of all vector stores by state: in_progress, completed, cancelled, failed.";
    STORE_INDEX_BYTES  Gauge     "chimere_store_index_bytes" [] "bytes"              "Bytes of memory that the words and vectors of all vector stores take, about.";
    STORE_VECTORS_WAITING Gauge  "chimere_store_vectors_waiting" [] "passages"       "Passages of vector stores that wait for their vectors; 0 without an encoder.";
    STORE_LEG_SECONDS Histogram(LOOKUP) "chimere_store_leg_seconds" ["leg"] "seconds" "Time to score all passages of a vector store for one query, by leg: words, vectors.";
    STORE_WORDS_ALONE  Counter   "chimere_store_words_alone_total" [] "searches"     "Searches of vector stores that went by words alone because the encoder gave no vector of the query.";
    STORE_SEARCH_SECONDS Histogram(LOOKUP) "chimere_store_search_seconds" [] "seconds" "Time to find the best passages of vector stores, in seconds.";
    BUILD_INFO         Gauge     "chimere_build_info" ["version", "device", "model"] "always 1" "Always 1; the labels say what runs.";

    VLLM_RUNNING       Gauge     "vllm:num_requests_running" ["model_name", "engine"] "requests" "Requests with at least one running sequence.";
    VLLM_WAITING       Gauge     "vllm:num_requests_waiting" ["model_name", "engine"] "requests" "Requests waiting for a slot.";
    VLLM_KV_USAGE      Gauge     "vllm:kv_cache_usage_perc" ["model_name", "engine"] "0 to 1" "Share in use of KV pages or of state slots, whichever is greater, 0 to 1.";
    VLLM_CACHE_CONFIG  Gauge     "vllm:cache_config_info" ["block_size", "num_gpu_blocks", "model_name", "engine"] "always 1" "Always 1; the labels are the tokens of a KV page and the number of pages, on a CPU too.";
    VLLM_OLD_KV_USAGE Gauge "vllm:gpu_cache_usage_perc" ["model_name", "engine"] "0 to 1"
        "The same as vllm:kv_cache_usage_perc, as it was called before.";
    VLLM_OLD_QUERIES Counter "vllm:gpu_prefix_cache_queries_total" ["model_name", "engine"] "tokens"
        "The same as vllm:prefix_cache_queries_total, as it was called before.";
    VLLM_OLD_HITS Counter "vllm:gpu_prefix_cache_hits_total" ["model_name", "engine"] "tokens"
        "The same as vllm:prefix_cache_hits_total, as it was called before.";
    VLLM_OLD_HIT_RATE Gauge "vllm:gpu_prefix_cache_hit_rate" ["model_name", "engine"] "0 to 1"
        "Share of looked-up prompt tokens that were found since the start, 0 to 1.";
    VLLM_LORA Gauge "vllm:lora_requests_info"
        ["max_lora", "running_lora_adapters", "waiting_lora_adapters", "model_name", "engine"] "Unix time"
        "When this was written, with the adapters whose requests run and those whose wait, by name; 0 while there are \
            none. max_lora is the number of slots.";
    VLLM_PROMPT_TOKENS Counter   "vllm:prompt_tokens_total" ["model_name", "engine"] "tokens" "Prompt tokens of requests that started.";
    VLLM_GENERATION_TOKENS Counter "vllm:generation_tokens_total" ["model_name", "engine"] "tokens" "Tokens generated and delivered.";
    VLLM_SUCCESS       Counter   "vllm:request_success_total" ["finished_reason", "model_name", "engine"] "requests" "Requests ended, by reason: stop (tool calls too), length, abort (the client left), error.";
    VLLM_PREEMPTIONS   Counter   "vllm:num_preemptions_total" ["model_name", "engine"] "sequences" "Sequences preempted because no KV page was left.";
    VLLM_CACHE_QUERIES Counter   "vllm:prefix_cache_queries_total" ["model_name", "engine"] "tokens" "Prompt tokens looked up in the prefix cache.";
    VLLM_CACHE_HITS    Counter   "vllm:prefix_cache_hits_total" ["model_name", "engine"] "tokens" "Prompt tokens found in the prefix cache.";
    VLLM_DRAFTS        Counter   "vllm:spec_decode_num_drafts_total" ["model_name", "engine"] "drafts" "Rows behind which tokens were drafted.";
    VLLM_DRAFT_TOKENS  Counter   "vllm:spec_decode_num_draft_tokens_total" ["model_name", "engine"] "tokens" "Tokens drafted.";
    VLLM_DRAFT_ACCEPTED Counter  "vllm:spec_decode_num_accepted_tokens_total" ["model_name", "engine"] "tokens" "Drafted tokens that were what was sampled.";
    VLLM_DRAFT_POSITION Counter  "vllm:spec_decode_num_accepted_tokens_per_pos_total" ["position", "model_name", "engine"] "tokens" "The same by place behind the row's own token, from 0.";
    VLLM_TTFT          Histogram(VLLM_FIRST_TOKEN) "vllm:time_to_first_token_seconds" ["model_name", "engine"] "seconds" "Time from admission to the first token, in seconds.";
    VLLM_ITL           Histogram(VLLM_TOKEN) "vllm:inter_token_latency_seconds" ["model_name", "engine"] "seconds" "Time between two tokens of a choice, in seconds.";
    VLLM_TPOT          Histogram(VLLM_TOKEN) "vllm:request_time_per_output_token_seconds" ["model_name", "engine"] "seconds" "Mean time between two tokens of a request that has ended, in seconds.";
    VLLM_E2E           Histogram(VLLM_REQUEST) "vllm:e2e_request_latency_seconds" ["model_name", "engine"] "seconds" "Time from admission to the end of a request, in seconds.";
    VLLM_QUEUE         Histogram(VLLM_REQUEST) "vllm:request_queue_time_seconds" ["model_name", "engine"] "seconds" "Time from admission to the first step, in seconds.";
    VLLM_PREFILL       Histogram(VLLM_REQUEST) "vllm:request_prefill_time_seconds" ["model_name", "engine"] "seconds" "Time from the first step to the first token of a request that has ended, in seconds.";
    VLLM_DECODE        Histogram(VLLM_REQUEST) "vllm:request_decode_time_seconds" ["model_name", "engine"] "seconds" "Time from the first token to the last of a request that has ended, in seconds.";
    VLLM_REQUEST_PROMPT Histogram(VLLM_TOKENS) "vllm:request_prompt_tokens" ["model_name", "engine"] "tokens" "Prompt tokens of a request that has ended.";
    VLLM_REQUEST_GENERATION Histogram(VLLM_TOKENS) "vllm:request_generation_tokens" ["model_name", "engine"] "tokens" "Tokens generated for a request that has ended.";
}

/// Bucket bounds of times in seconds: 1 ms to two minutes, each about twice the one before.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0,
];
/// Bucket bounds of what should take no time, in seconds: 10 us to a second.
const SHORT: &[f64] =
    &[0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];
/// Bucket bounds of ratios: a tenth to ten times.
const RATIOS: &[f64] = &[0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 2.0, 4.0, 10.0];
/// Bucket bounds of shares of a budget, a little beyond it too.
const BUDGET: &[f64] = &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0, 5.0];
/// Bucket bounds of lookups, in seconds: 5 us to a second.
const LOOKUP: &[f64] = &[5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 3e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.1, 1.0];
/// Bucket bounds of the generations of a turn.
const ROUNDS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
/// Bucket bounds of rows in a step: powers of two.
const ROWS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0];

/// vLLM's bounds of the time to the first token: panels ask for some of them by name.
const VLLM_FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
/// vLLM's bounds of the time between tokens, and finer ones below 10 ms, where its first bound lies.
const VLLM_TOKEN: &[f64] = &[
    0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// vLLM's bounds of the parts of a request's time.
const VLLM_REQUEST: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
/// vLLM's bounds of token counts, up to contexts that models of the family have.
const VLLM_TOKENS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 50000.0, 100000.0,
    200000.0, 500000.0, 1000000.0,
];

/// Values of [`REQUESTS_TOTAL`]'s label.
pub const OUTCOMES: &[&str] =
    &["stop", "length", "tool_calls", "cancelled", "failed", "slow_client", "deadline", "embedded", "decided"];
/// Values of [`DECISIONS`]' label.
pub const DECISION_TYPES: &[&str] = &["predicate", "choice", "score", "rerank", "sufficient"];
/// Values of [`STORE_LEG_SECONDS`]' label.
pub const STORE_LEGS: &[&str] = &["words", "vectors"];
/// Values of the label `outcome` of [`TOOL_CALLS`].
pub const TOOL_OUTCOMES: &[&str] = &["answered", "refused", "failed", "asked"];
/// Values of the label `why` of [`OUTBOUND_REFUSED`].
pub const REFUSALS: &[&str] = &["scheme", "user", "port", "host", "unlisted", "address", "redirect"];
/// Values of the label `tool` of [`MCP_CALLS`].
pub const MCP_TOOLS: &[&str] = &["search_documents", "read_passage", "decide"];
/// Values of the label `outcome` of [`MCP_CALLS`].
pub const MCP_OUTCOMES: &[&str] = &["ok", "failed", "timeout", "cancelled"];
/// Values of [`THINKING_ENDED`]'s label.
pub const THINKING_ENDS: &[&str] = &["model", "budget", "certain", "sure"];
/// Where an entry of the prefix cache can lie: beside the sequences that compute, and in the host's memory.
pub const DEVICE_TIER: &str = "device";
/// Label of an entry of the prefix cache that lies in the host's memory; the other tier is [`DEVICE_TIER`].
pub const HOST_TIER: &str = "host";
/// Values of [`PREFIX_TRANSFER`]'s label: to the host, and back.
pub const TRANSFERS: &[&str] = &["save", "load"];
/// Values of [`STEP_SECONDS`]'s label.
pub const STEP_KINDS: &[&str] = &["decode", "prefill", "mixed"];
/// Values of [`STEP_BUDGET`]'s label.
pub const BUDGETS: &[&str] = &["positions", "time"];
/// Values of [`STEP_ROWS`]'s label.
pub const ROW_FORMS: &[&str] = &["prompt", "decode"];
/// Values of the position in [`ACCEPTED`]'s labels.
pub const DRAFT_POSITIONS: ByPlace<&str> = ["1", "2", "3", "4", "5", "6", "7"];
/// Values of [`DRAFT_ROWS`]' label.
pub const DRAFT_NUMBERS: ByDraftCount<&str> = ["0", "1", "2", "3", "4", "5", "6", "7"];
/// Values of [`RESPONSES_DROPPED`]'s label.
pub const RESPONSE_DROPS: &[&str] = &["time", "account", "store", "large", "write"];
/// Values of [`REJECTED`]'s label: everything that the service says no to before a request runs.
pub const REASONS: &[&str] = &[
    "queue_full",
    "queue_tokens_full",
    "prompt_empty",
    "prompt_too_long",
    "too_many_choices",
    "too_many_pages",
    "grammar",
    "text_threads_busy",
    "draining",
    "engine_lost",
    "key_busy",
    "key_rate",
    "wait_too_long",
    "deadline_unreachable",
    "key",
    "admin",
    "host",
    "invalid",
    "unsupported",
    "model_not_found",
    "unknown_path",
    "method_not_allowed",
    "origin",
    "body_too_large",
    "bodies_full",
    "body_too_slow",
    "body_encoding",
];

/// Values of [`CLIENT_FAULTS`]'s label, as `http::edge::connections::faults` counts them.
pub const FAULTS: &[&str] =
    &["malformed", "long_head", "no_room", "slow_head", "slow_body", "unread", "handshake", "broken"];

/// Installs the recorder of this process, once, and describes every metric to it; later calls give the same handle.
pub fn install() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(start_recorder).clone()
}

/// Counts a request that was refused. A reason that [`REASONS`] lacks would have no series before its first event.
pub fn count_rejected(reason: &'static str) {
    debug_assert!(REASONS.contains(&reason), "{reason} is not among the reasons");
    ::metrics::counter!(REJECTED, "reason" => reason).increment(1);
}

fn start_drafts() {
    for kind in DraftKind::ALL {
        ::metrics::counter!(DRAFTED, "source" => kind.name()).absolute(0);
        for position in DRAFT_POSITIONS {
            ::metrics::counter!(ACCEPTED, "source" => kind.name(), "position" => position).absolute(0);
        }
    }
    for drafts in DRAFT_NUMBERS {
        ::metrics::counter!(DRAFT_ROWS, "drafts" => drafts).absolute(0);
    }
}

/// Counters begin at 0 and histograms empty, so that the first event is an increase to whoever watches.
fn start_series() {
    let engram = [ENGRAM_LOOKUPS, ENGRAM_HITS, ENGRAM_CHANGED_TOKENS, ENGRAM_LATE, ENGRAM_RESTARTS];
    let others = [
        GRAPH_REPLAYS,
        CONNECTIONS_REFUSED,
        NOT_FINITE,
        LOG_LOST,
        TRACE_FAILURES,
        REQUESTS_STARTED,
        PROMPT_TOKENS,
        GENERATED_TOKENS,
        THINKING_TOKENS,
        MOE_ROWS,
        MOE_EXPERTS,
        EXPERT_HOST_BYTES,
        EXPERT_SWAPS,
        PREEMPTIONS,
        IDLE_ROWS,
        IDLE_PARKED,
        ADAPTER_SWAPS,
        ROWS_SAT_OUT,
        EMBEDDING_INPUTS,
        ENCODER_TOKENS,
        STORE_WORDS_ALONE,
        PREFIX_QUERIES,
        PREFIX_HITS,
        PREFIX_QUERY_TOKENS,
        PREFIX_KNOWN_TOKENS,
        PREFIX_TAKEN,
        PREFIX_SKIPPED,
        GRAMMAR_MASKS,
        GRAMMAR_RESTARTS,
        DRAFT_LOST,
        TOOL_FILES_REFUSED,
    ];
    for name in others.into_iter().chain(engram) {
        ::metrics::counter!(name).absolute(0);
    }
    start_labelled_counters();
    start_drafts();
    start_histograms();
    for gauge in [CERTIFICATE_EXPIRY, STEP_AGE, ENGINE_LOST, SOCKETS] {
        ::metrics::gauge!(gauge).set(0.0);
    }
    ::metrics::gauge!(WAITING_BY_KEY, "key" => "none").set(0.0);
    for state in ["running", "waiting"] {
        ::metrics::gauge!(IDLE_REQUESTS, "state" => state).set(0.0);
    }
}

fn start_labelled_counters() {
    for outcome in ["moved", "failed"] {
        ::metrics::counter!(MIGRATED, "outcome" => outcome).absolute(0);
    }
    // Of services with several replicas, each of which has a number.
    ::metrics::counter!(REPLICA_ROWS, "replica" => "none", "form" => "none").absolute(0);
    ::metrics::counter!(DISPATCHED, "replica" => "none", "why" => "none").absolute(0);
    ::metrics::gauge!(REPLICA_UP, "replica" => "none").set(0.0);
    ::metrics::gauge!(REPLICA_REQUESTS, "replica" => "none", "state" => "none").set(0.0);
    for outcome in ["sent", "lost"] {
        ::metrics::counter!(KV_EVENTS, "outcome" => outcome).absolute(0);
    }
    ::metrics::counter!(ADAPTER_ROWS, "adapter" => "none").absolute(0);
    for outcome in OUTCOMES {
        ::metrics::counter!(REQUESTS_TOTAL, "outcome" => *outcome).absolute(0);
    }
    for tier in [DEVICE_TIER, HOST_TIER] {
        ::metrics::counter!(EXPERT_READS, "place" => tier).absolute(0);
        ::metrics::counter!(PREFIX_HIT_TOKENS, "tier" => tier).absolute(0);
        ::metrics::counter!(PREFIX_EVICTIONS, "tier" => tier).absolute(0);
    }
    // Names come from an operator's files, and the series are to be there without any.
    ::metrics::counter!(PIPELINE_STEPS, "pipeline" => "none", "step" => "none", "outcome" => "none").absolute(0);
    for kind in DECISION_TYPES {
        ::metrics::counter!(DECISIONS, "type" => *kind).absolute(0);
    }
    for outcome in TOOL_OUTCOMES {
        for tool in ["file_search", "web_search", "web_fetch"] {
            ::metrics::counter!(TOOL_CALLS, "server" => "none", "tool" => tool, "outcome" => *outcome).absolute(0);
        }
    }
    for tool in MCP_TOOLS {
        for outcome in MCP_OUTCOMES {
            ::metrics::counter!(MCP_CALLS, "tool" => *tool, "outcome" => *outcome).absolute(0);
        }
    }
    ::metrics::counter!(TOOLS_CHANGED, "server" => "none").absolute(0);
    for verified in ["true", "false"] {
        ::metrics::counter!(CITATIONS, "verified" => verified).absolute(0);
    }
    for why in REFUSALS {
        ::metrics::counter!(OUTBOUND_REFUSED, "why" => *why).absolute(0);
    }
    for end in THINKING_ENDS {
        ::metrics::counter!(THINKING_ENDED, "reason" => *end).absolute(0);
    }
    for field in IGNORED {
        ::metrics::counter!(IGNORED_FIELDS, "field" => *field).absolute(0);
    }
    for reason in RESPONSE_DROPS {
        ::metrics::counter!(RESPONSES_DROPPED, "reason" => *reason).absolute(0);
    }
    learning::start();
    for fault in FAULTS {
        ::metrics::counter!(CLIENT_FAULTS, "fault" => *fault).absolute(0);
    }
    for reason in REASONS {
        ::metrics::counter!(REJECTED, "reason" => *reason).absolute(0);
    }
    for form in ROW_FORMS {
        ::metrics::counter!(STEP_ROWS, "form" => *form).absolute(0);
    }
}

fn start_histograms() {
    // To ask for a histogram is to have it; the ones with labels of a service's own are started by that.
    for metric in ALL.iter().filter(|m| matches!(m.kind, MetricKind::Histogram(_)) && m.labels.is_empty()) {
        let _exists = ::metrics::histogram!(metric.name);
    }
    for budget in BUDGETS {
        let _exists = ::metrics::histogram!(STEP_BUDGET, "of" => *budget);
    }
    let _exists = ::metrics::histogram!(PIPELINE_STEP_SECONDS, "pipeline" => "none", "step" => "none");
    for leg in STORE_LEGS {
        let _exists = ::metrics::histogram!(STORE_LEG_SECONDS, "leg" => *leg);
    }
    for direction in TRANSFERS {
        let _exists = ::metrics::histogram!(PREFIX_TRANSFER, "direction" => *direction);
    }
    // Of no server, until the operator names some.
    let _exists = ::metrics::histogram!(TOOL_SECONDS, "server" => "none");
    for tool in MCP_TOOLS {
        let _exists = ::metrics::histogram!(MCP_CALL_SECONDS, "tool" => *tool);
    }
    for kind in STEP_KINDS {
        for name in [STEP_SECONDS, STEP_PREDICTED, STEP_RATIO] {
            let _exists = ::metrics::histogram!(name, "kind" => *kind);
        }
    }
}

fn start_recorder() -> PrometheusHandle {
    let mut builder = PrometheusBuilder::new();
    for metric in ALL {
        if let MetricKind::Histogram(bounds) = metric.kind {
            let name = Matcher::Full(metric.name.into());
            builder = builder.set_buckets_for_metric(name, bounds).expect("bucket bounds are not empty");
        }
    }
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    // Fails only when somebody else's recorder is installed, and then the metrics are theirs to show.
    ::metrics::set_global_recorder(recorder).ok();
    for metric in ALL {
        match metric.kind {
            MetricKind::Counter => ::metrics::describe_counter!(metric.name, metric.help),
            MetricKind::Gauge => ::metrics::describe_gauge!(metric.name, metric.help),
            MetricKind::Histogram(_) => ::metrics::describe_histogram!(metric.name, metric.help),
        }
    }
    start_series();
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
            let others = m.name.starts_with("vllm:");
            assert!(others || m.name.starts_with("chimere_"), "{}", m.name);
            assert_eq!(others, m.labels.ends_with(&["model_name", "engine"]), "{}", m.name);
            assert_eq!(m.kind == MetricKind::Counter, m.name.ends_with("_total"), "{}", m.name);
            assert_eq!(m.unit == "seconds", m.name.ends_with("_seconds"), "{}", m.name);
            assert!(m.help.ends_with('.'), "{}", m.name);
        }
    }

    #[test]
    fn bucket_bounds_rise() {
        for metric in ALL {
            if let MetricKind::Histogram(bounds) = metric.kind {
                assert!(bounds.is_sorted_by(|a, b| a < b), "{}", metric.name);
            }
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

    #[test]
    fn histograms_are_there_before_anything_was_recorded() {
        let text = install().render();
        assert!(text.contains("chimere_e2e_seconds_bucket{le=\"+Inf\"}"), "{text}");
        for kind in STEP_KINDS {
            assert!(text.contains(&format!("chimere_step_seconds_count{{kind=\"{kind}\"}}")), "{text}");
        }
    }
}

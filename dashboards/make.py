#!/usr/bin/env python3
"""Writes Grafana's dashboards from the tables below, so that a panel is a line here and a page of JSON there.

    python3 dashboards/make.py            # writes service.json, gpu.json and loadtest.json beside this file
    python3 dashboards/make.py --check    # fails where a file is not what this would write, or breaks schema.json

The check against schema.json needs `pip install jsonschema`.
"""
import argparse
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
SCHEMA_VERSION = 39          # of Grafana's dashboards; later versions of Grafana bring it up to their own
COLUMNS, ROW_HEIGHT, PANEL_HEIGHT = 24, 1, 8
PANELS_ABREAST = 3
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
JOB, WINDOW = '{job=~"$job"}', "[$__rate_interval]"
TEST = '{testid=~"$test"}'


def rate(counter, by=None, legend=None, job=JOB):
    """What a counter gains a second, in one line or one for each value of a label."""
    over = f"sum by ({by}) " if by else "sum"
    return f"{over}(rate({counter}{job}{WINDOW}))", legend or f"{{{{{by}}}}}"


def quantile(q, histogram, by=None, legend=None):
    labels = ", ".join(["le"] + ([by] if by else []))
    expr = f"histogram_quantile({q}, sum by ({labels}) (rate({histogram}_bucket{JOB}{WINDOW})))"
    return expr, legend or {0.5: "median"}.get(q, f"p{round(q * 100)}") + (f" {{{{{by}}}}}" if by else "")


def quantiles(histogram):
    return [quantile(q, histogram) for q in (0.5, 0.95, 0.99)]


def mean(histogram):
    return f"sum(rate({histogram}_sum{JOB}{WINDOW})) / sum(rate({histogram}_count{JOB}{WINDOW}))", "mean"


def total(gauge, legend, by=None, job=JOB):
    return (f"sum by ({by}) ({gauge}{job})" if by else f"sum({gauge}{job})"), legend


def used(gauge, legend):
    """Share of a gauge that has the states used and free."""
    return f'sum({gauge}{{job=~"$job",state="used"}}) / sum({gauge}{JOB})', legend


def panel(title, description, unit, *queries):
    return {"title": title, "description": description, "unit": unit, "queries": queries}


GENERATED = rate("chimere_generated_tokens_total", legend="generated")
TOKENS = panel("Tokens", "Tokens a second, prompted and generated.", "short",
               rate("chimere_prompt_tokens_total", legend="prompt"), GENERATED)
REQUESTS = panel("Requests", "Running and waiting for a slot.", "short",
                 total("chimere_requests_running", "running"), total("chimere_requests_waiting", "waiting"))
REFUSED = panel("Requests refused", "By reason; each refused request counts once.", "reqps", rate("chimere_rejected_total", "reason"))
STEP = panel("Time of a step", "By what the step mostly is.", "s", quantile(0.95, "chimere_step_seconds", "kind"))
SHARES = panel("KV pages and state slots", "Share in use; either one at 1 makes requests wait.", "percentunit",
               used("chimere_kv_pages", "KV pages"), used("chimere_state_slots", "state slots"))
BETWEEN = panel("Time between tokens", "Of one choice.", "s", *quantiles("chimere_itl_seconds"))
FIRST = panel("Time to the first token", "From admission.", "s", *quantiles("chimere_ttft_seconds"))
MEMORY = panel("Memory", "The plan by use, and the host memory of the process.", "bytes", total("chimere_memory_bytes", "{{use}}", "use"))

SERVICE = ("service", "Chimère: service", "One row a stage: admit, queue, plan, prefix cache, step, Engram, stream. The metrics are listed in docs/reference/metrics.md.", [
    ("Admit", [
        panel("Requests taken and ended", "Each that is taken ends once, with one of these outcomes.", "reqps",
              rate("chimere_requests_started_total", legend="taken"), rate("chimere_requests_total", "outcome")),
        REFUSED,
        TOKENS,
        panel("Fields without effect", "What clients send inside messages, tools and stream options that changes nothing, a second, by name.", "ops",
              rate("chimere_ignored_fields_total", "field")),
    ]),
    ("Queue", [
        REQUESTS,
        panel("Time in the queue", "From admission to the first step.", "s", *quantiles("chimere_queue_seconds")),
        panel("Time to let a client go", "From seeing that it left to having its place free.", "s", mean("chimere_cancel_seconds")),
        panel("Waiting by key", "Requests that never ran, by API key (a hash).", "short", total("chimere_waiting_by_key", "{{key}}", "key")),
        panel("Waiting for what", "What the first of those that wait lacks; preempted ones are counted apart.", "short",
              total("chimere_waiting_by_reason", "{{reason}}", "reason")),
        panel("Predicted waits", "Median of the predicted wait, of the actual one, and of what refused callers were told.", "s",
              quantile(0.5, "chimere_predicted_wait_seconds", legend="predicted"),
              quantile(0.5, "chimere_queue_seconds", legend="actual"),
              quantile(0.5, "chimere_rejected_wait_seconds", legend="refused")),
        panel("Predicted over actual wait", "1 is right, more is too long.", "short", *quantiles("chimere_wait_prediction_ratio")),
    ]),
    ("Plan", [
        panel("Positions in a step", "How well steps are filled.", "short", *quantiles("chimere_batch_rows")),
        panel("Budget of a step", "Share that was used, p95: of positions, and of the time between tokens that is kept.", "percentunit",
              quantile(0.95, "chimere_step_budget_ratio", "of")),
        SHARES,
        panel("Rows that sat out", "Decode rows a second that were left out of a step for the prompts of a key that was served less.", "ops",
              rate("chimere_rows_sat_out_total", legend="sat out")),
        panel("Adapters", "Rows a second with an adapter, by its name, and adapters that gave up their slot to another one.", "ops",
              rate("chimere_adapter_rows_total", "adapter"), rate("chimere_adapter_swaps_total", legend="swaps")),
        panel("Idle work", "Positions a second that were computed in what others left, and sequences that gave up their memory.", "ops",
              rate("chimere_idle_rows_total", legend="positions"), rate("chimere_idle_parked_total", legend="parked")),
        panel("Idle requests", "Requests of idle work: those with a slot that nobody wants, and those that wait for one.", "short",
              total("chimere_idle_requests", "{{state}}", "state")),
        panel("Preemptions", "Sequences put back because no KV page was left.", "ops",
              rate("chimere_preemptions_total", legend="preempted")),
    ]),
    ("Prefix cache", [
        panel("Prompt tokens looked up", "A second: all, those that were read before, and those that the cache spared.", "short",
              rate("chimere_prefix_query_tokens_total", legend="looked up"), rate("chimere_prefix_known_tokens_total", legend="read before"),
              rate("chimere_prefix_hit_tokens_total", legend="spared")),
        panel("Hit share", "Of the prompt tokens that were looked up, and of those among them that were read before.", "percentunit",
              (f"sum(rate(chimere_prefix_hit_tokens_total{JOB}{WINDOW})) / sum(rate(chimere_prefix_query_tokens_total{JOB}{WINDOW}))", "of all"),
              (f"sum(rate(chimere_prefix_hit_tokens_total{JOB}{WINDOW})) / sum(rate(chimere_prefix_known_tokens_total{JOB}{WINDOW}))",
               "of what was read before")),
        panel("Prompts looked up", "A second, and those that went on from an entry.", "ops",
              rate("chimere_prefix_queries_total", legend="looked up"), rate("chimere_prefix_hits_total", legend="went on from an entry")),
        panel("Entries come and go", "A second: left by prompts, given up for others by device or host, not made because all places were about to be used.", "ops",
              rate("chimere_prefix_taken_total", legend="taken"), rate("chimere_prefix_evictions_total", "tier", legend="given up by {{tier}}"),
              rate("chimere_prefix_skipped_total", legend="not made")),
        panel("KV events", "Batches a second for routers: sent to the publisher, and lost for want of room there.", "ops",
              rate("chimere_kv_events_total", "outcome")),
        panel("Entries and their pages", "States that are kept, by where they lie, and the KV pages that they need on the device.", "short",
              total("chimere_prefix_entries", "entries, {{tier}}", "tier"), total("chimere_prefix_pages", "pages")),
        panel("Bytes of entries", "States and pages, by where they lie.", "bytes", total("chimere_prefix_bytes", "{{tier}}", "tier")),
        panel("Copies between device and host", "Entries a second: to the host, and back for a prompt that begins with one.", "ops",
              rate("chimere_prefix_transfer_seconds_count", "direction")),
        panel("Time of a copy", "On average, beside the steps.", "s",
              (f"sum by (direction) (rate(chimere_prefix_transfer_seconds_sum{JOB}{WINDOW})) / sum by (direction) (rate(chimere_prefix_transfer_seconds_count{JOB}{WINDOW}))", "{{direction}}")),
    ]),
    ("Replicas", [
        panel("Replicas that compute", "Of a service with several; one whose engine is lost computes no more.", "short",
              (f"sum(chimere_replica_up{JOB})", "replicas")),
        panel("Requests of each replica", "Running and waiting.", "short",
              (f"sum by (replica, state) (chimere_replica_requests{JOB})", "{{replica}} {{state}}")),
        panel("Positions of each replica", "Computed a second.", "short", rate("chimere_replica_rows_total", "replica")),
        panel("Why a replica was chosen", "Requests a second: it keeps more of the prompt, others would begin later, it has the fewest sequences, another one refused.", "short",
              rate("chimere_dispatched_total", "why")),
        panel("Requests of lost replicas", "A second, by what became of them: another replica went on with them, or none did.", "short",
              rate("chimere_migrated_requests_total", "outcome")),
    ]),
    ("Step", [
        STEP,
        panel("Steps", "Steps a second, by what they mostly are.", "ops", rate("chimere_step_seconds_count", "kind")),
        panel("Time without progress", "For how long the engine has computed nothing although there is work, to a quarter of a second.", "s",
              (f"max(chimere_step_age_seconds{JOB})", "without progress")),
        panel("Engine lost", "Engines that were lost. The process ends when none is left.", "short",
              (f"max(chimere_engine_lost{JOB})", "lost")),
        panel("Requests without numbers", "That failed because the model's numbers for them were NaN or infinite, a second.", "short",
              rate("chimere_not_finite_total", legend="requests")),
        panel("Positions computed", "A second: prompt positions in chunks, the others one by one.", "short",
              rate("chimere_step_rows_total", "form")),
        panel("Predicted time of a step", "Median by kind, to be held against the time of a step.", "s",
              quantile(0.5, "chimere_step_predicted_seconds", "kind")),
        panel("Predicted over actual step", "Median by kind: 1 is right, more is too long.", "short",
              quantile(0.5, "chimere_step_prediction_ratio", "kind")),
        panel("Decoding held up by prompts", "By how much a step's prompts made others' tokens late.", "s",
              *quantiles("chimere_decode_stall_seconds")),
        panel("Drafts", "Tokens drafted and, of these, accepted, a second, by source.", "short",
              rate("chimere_drafted_tokens_total", "source", legend="drafted, {{source}}"),
              rate("chimere_accepted_tokens_total", "source", legend="accepted, {{source}}"),
              rate("chimere_draft_sources_lost_total", legend="sources lost")),
        panel("Drafts accepted by place", "A second, by place behind the row's own token.", "short",
              rate("chimere_accepted_tokens_total", "position")),
        panel("What the gate chose", "Decode rows a second, by how many drafts were put behind them.", "short",
              rate("chimere_draft_choices_total", "drafts")),
        panel("Graphs replayed", "A second, on a GPU: one for each pass of decoding.", "ops",
              rate("chimere_graph_replays_total", legend="replayed")),
        panel("Experts of a row", "Of requests with `moe`, on average.", "short",
              (f"sum(rate(chimere_moe_experts_total{JOB}{WINDOW})) / sum(rate(chimere_moe_rows_total{JOB}{WINDOW}))", "experts")),
        panel("Experts read", "A second and pass over a layer, by where they lay, where not all lie on the device.", "short",
              rate("chimere_expert_reads_total", "place")),
        panel("Experts over the bus", "A second, read in the host's memory.", "bytes",
              rate("chimere_expert_host_bytes_total", legend="read")),
        panel("Experts that changed places", "A second, each came to the device for another.", "short",
              rate("chimere_expert_promotions_total", legend="came")),
    ]),
    ("Engram", [
        panel("What tables did", "Positions that they were asked about and knew, and tokens that became others, a second.", "short",
              rate("chimere_engram_lookups_total", legend="lookups"), rate("chimere_engram_hits_total", legend="hits"),
              rate("chimere_engram_changed_tokens_total", legend="changed tokens")),
        panel("Time of lookups", "All rows of a step.", "s", quantile(0.5, "chimere_engram_lookup_seconds"),
              quantile(0.99, "chimere_engram_lookup_seconds")),
        panel("Edits that came late", "Steps a second whose sampler waited for them.", "ops",
              rate("chimere_engram_late_total", legend="late steps")),
        panel("Waiting for late edits", "Share of the time that samplers waited.", "percentunit",
              (f"sum(rate(chimere_engram_late_seconds_sum{JOB}{WINDOW}))", "waited")),
        panel("Grammars", "Positions a second that a grammar was asked about.", "short",
              rate("chimere_grammar_masks_total", legend="masks")),
        panel("Time of grammars", "All rows of a step.", "s", quantile(0.5, "chimere_grammar_mask_seconds"),
              quantile(0.99, "chimere_grammar_mask_seconds")),
        panel("Tables", "That requests can name, and deaths of the parts that look them up and that follow grammars.", "short",
              total("chimere_engram_tables", "tables"), total("chimere_engram_restarts_total", "restarts"),
              total("chimere_grammar_restarts_total", "restarts of grammars")),
        panel("Bytes of tables", "Mapped, with their filters.", "bytes", total("chimere_engram_table_bytes", "tables")),
        panel("Texts embedded", "A second, those of collections and searches too.", "short", rate("chimere_embedding_inputs_total", legend="texts")),
        panel("Tokens of the encoder", "A second.", "short", rate("chimere_encoder_tokens_total", legend="tokens")),
        panel("Time of the encoder", "All texts of a request.", "s", *quantiles("chimere_encoder_seconds")),
        panel("Decisions", "Questions a second, by type; of rankings each document.", "short", rate("chimere_decisions_total", "type")),
        panel("Tools over MCP", "Calls a second, by tool and outcome.", "short",
              ("sum by (tool, outcome) (rate(chimere_mcp_calls_total" + JOB + WINDOW + "))", "{{tool}} {{outcome}}")),
        panel("Destinations refused", "Requests out of the process that made no connection, by what was wrong.", "short",
              rate("chimere_outbound_refused_total", "why")),
        panel("Time of tools over MCP", "All tools.", "s", *quantiles("chimere_mcp_call_seconds")),
        panel("Time of searches", "Once the text was embedded.", "s", quantile(0.5, "chimere_semantic_search_seconds"),
              quantile(0.99, "chimere_semantic_search_seconds")),
        panel("Citations", "A second, and marks whose source does not say so.", "short", rate("chimere_citations_total", "verified")),
        panel("Rounds of turns", "Generations of a turn in which the server may run calls.", "short", mean("chimere_turn_rounds")),
        panel("Steps of pipelines", "A second, by what came of them.", "short", rate("chimere_pipeline_steps_total", "outcome")),
        panel("Time of a pipeline's step", "On average.", "s", mean("chimere_pipeline_step_seconds")),
        panel("Files of pipelines", "Those that are served, and those with a mistake.", "short", total("chimere_pipelines", "{{state}}", "state")),
        panel("Calls that the server runs", "A second, by what came of them.", "short", rate("chimere_tool_calls_total", "outcome")),
        panel("Time of tools that the server runs", "Of MCP servers, by server.", "s", quantile(0.95, "chimere_tool_seconds", "server")),
        panel("Tools withheld", "Tools that changed since they were accepted, and files of tools with a mistake.", "short",
              total("chimere_tools_changed_total", "changed tools"), total("chimere_tool_files_refused_total", "refused files")),
        panel("Collections", "Of all keys.", "short", total("chimere_collections", "collections")),
        panel("Files of vector stores", "By state, and those that wait to be read.", "short",
              ("sum by (state) (chimere_store_files" + JOB + ")", "{{state}}"), total("chimere_ingest_queue", "waiting")),
        panel("Time of searches in stores", "All stores of a search.", "s", quantile(0.5, "chimere_store_search_seconds"),
              quantile(0.95, "chimere_store_search_seconds")),
        panel("Legs of searches in stores", "All passages of a store for one query.", "s",
              quantile(0.95, "chimere_store_leg_seconds", "leg")),
        panel("Searches by words alone", "A second, for want of the query's vector.", "short",
              rate("chimere_store_words_alone_total", legend="by words")),
        panel("Passages without vectors", "Of all vector stores; the encoder reads them when nobody has a request.", "short",
              total("chimere_store_vectors_waiting", "waiting")),
        panel("Words and vectors of stores", "In memory, about.", "bytes", total("chimere_store_index_bytes", "stores")),
        panel("Bytes of collections", "Their texts and vectors.", "bytes", total("chimere_collection_bytes", "collections")),
    ]),
    ("Stream", [
        FIRST,
        BETWEEN,
        panel("Time of a request", "From admission to the end.", "s", *quantiles("chimere_e2e_seconds")),
        panel("Parts of a request, p95", "Prompt from the first step to the first token; output from there to the last.", "s",
              quantile(0.95, "vllm:request_prefill_time_seconds", legend="prompt"),
              quantile(0.95, "vllm:request_decode_time_seconds", legend="output")),
        panel("Mean time a token", "Of each request that ended.", "s", *quantiles("vllm:request_time_per_output_token_seconds")),
        panel("Lengths, p95", "Tokens of each request that ended.", "short",
              quantile(0.95, "vllm:request_prompt_tokens", legend="prompt"),
              quantile(0.95, "vllm:request_generation_tokens", legend="output")),
        panel("Kept responses", "Of all accounts.", "short", total("chimere_responses_kept", "responses")),
        panel("Bytes of kept responses", "With the conversations before them.", "bytes", total("chimere_response_bytes", "responses")),
        panel("Responses no longer kept", "A second, by reason; those that were deleted are not among them.", "ops",
              rate("chimere_responses_dropped_total", "reason")),
        panel("Feedback on answers", "A second, by rating; a correction without one counts as -1.", "ops", rate("chimere_feedback_total", "rating")),
        panel("Examples to learn from", "Kept by consent, by set: train trains, gate and vault judge.", "short",
              total("chimere_learning_examples", "{{set}}", by="set")),
        panel("Examples not kept", "A second, by reason: a secret in it, too many that wait for the disk, a disk that takes nothing.", "ops",
              rate("chimere_learning_dropped_total", "reason")),
        panel("Runs of the learner", "A second, by what came of them.", "ops", rate("chimere_learning_runs_total", "outcome")),
        panel("Changes of what was learned", "A second: versions that were served, taken back, or withdrawn with their examples.", "ops",
              rate("chimere_learning_changes_total", "change")),
        panel("Lower bound of a candidate", "The least of the target's families and of the others, in points, of the last run.", "short",
              total("chimere_gate_lower_bound", "{{role}}", by="role")),
        panel("Difference of a candidate", "That the last run's candidate made in each family of questions, in points.", "short",
              total("chimere_gate_difference", "{{family}}", by="family")),
        panel("Withheld", "1 where what was learned was made for another model than the one that is served, and answers nobody.", "short",
              total("chimere_learning_withheld", "{{learner}}", by="learner")),
    ]),
    ("Thinking", [
        panel("Thinking", "Tokens a second that belonged to reasoning.", "short", rate("chimere_thinking_tokens_total", legend="thinking")),
        panel("Why thinking ended", "Of requests that bounded it.", "ops", rate("chimere_thinking_ended_total", "reason")),
    ]),
    ("Process", [
        MEMORY,
        panel("Time since the start", "By version, device and model of each instance; a fall is a restart.", "s",
              (f"sum by (instance, version, device, model) ((time() - chimere_start_time_seconds{JOB}) "
               "* on (instance, job) group_left (version, device, model) chimere_build_info)",
               "{{instance}} {{version}} {{device}} {{model}}")),
        panel("Log and traces that were lost", "A second: lines that nobody read in time or the disk had no room for, and batches of spans.",
              "ops", rate("chimere_log_lost_total", legend="lines"), rate("chimere_trace_failures_total", legend="batches of spans")),
        panel("Connections refused", "A second, ended as they came because their address had its share.", "ops",
              rate("chimere_connections_refused_total", legend="connections")),
        panel("Connections ended through their clients", "A second, by fault: bytes that are no HTTP, heads and bodies that are too long or too slow, answers "
              "that nobody reads.", "ops", rate("chimere_client_faults_total", "fault")),
        panel("WebSockets", "Open ones, at work or between two requests.", "short", total("chimere_sockets", "open")),
        panel("Certificate", "Time until the TLS certificate ends; nothing without TLS.", "s",
              (f"(chimere_tls_certificate_expiry_seconds{JOB} > 0) - time()", "{{instance}}")),
    ]),
])

GPU_SAYS = "What the device does and what its memory holds. On a CPU the rows of memory and work are the ones that tell."
GPU = ("gpu", "Chimère: GPU and memory", GPU_SAYS, [
    ("Device", [
        panel("Utilisation", "Share of the last moments in which a kernel ran.", "percentunit",
              (f"chimere_gpu_utilization_ratio{JOB}", "{{instance}}")),
        panel("Power", "What the device draws.", "watt", (f"chimere_gpu_power_watts{JOB}", "{{instance}}")),
        panel("Temperature", "Of the chip.", "celsius", (f"chimere_gpu_temperature_celsius{JOB}", "{{instance}}")),
        panel("Energy of a token", "Power over tokens generated a second.", "joule",
              (f"sum(chimere_gpu_power_watts{JOB}) / (sum(rate(chimere_generated_tokens_total{JOB}{WINDOW})) > 0)", "generated")),
    ]),
    ("Memory", [
        panel("Memory of the device", "All of it, what all processes take, and what this one takes where NVML tells.", "bytes",
              total("chimere_gpu_memory_bytes", "{{of}}", "of")),
        panel("Margin", "Share of the device's memory that nobody took.", "percentunit",
              ('1 - sum(chimere_gpu_memory_bytes{job=~"$job",of="used"}) / sum(chimere_gpu_memory_bytes{job=~"$job",of="total"})', "free")),
        MEMORY,
        panel("KV pages", "Pages of 32 tokens, by state.", "short", total("chimere_kv_pages", "{{state}}", "state")),
        panel("State slots", "One a live sequence, by state.", "short", total("chimere_state_slots", "{{state}}", "state")),
        SHARES,
    ]),
    ("Work", [
        STEP,
        TOKENS,
        panel("Positions in a step", "How well steps are filled.", "short", *quantiles("chimere_batch_rows")),
    ]),
])

LOADTEST = ("loadtest", "Chimère: load test", "What k6 saw (loadtest/README.md says how it writes here) above what the service saw.", [
    ("Client", [
        panel("Virtual users", "Of k6.", "short", total("k6_vus", "users", job=TEST)),
        panel("Answers", "A second, by status.", "reqps", rate("k6_http_reqs_total", "status", job=TEST)),
        panel("Outcomes", "A second: answered, refused with a time to come back, failed.", "reqps",
              rate("k6_answered_total", legend="answered", job=TEST), rate("k6_refused_total", legend="refused", job=TEST)),
        panel("Time to the first token", "As `timings` of the replies have it.", "s",
              (f"max(k6_ttft_p50{TEST})", "median"), (f"max(k6_ttft_p95{TEST})", "p95")),
        panel("Time between tokens", "As `timings` of the replies have it: the p95 of each.", "s",
              (f"max(k6_itl_p50{TEST})", "median"), (f"max(k6_itl_p95{TEST})", "p95")),
        panel("Tokens received", "A second.", "short", rate("k6_output_tokens_total", legend="output", job=TEST)),
    ]),
    ("Service", [
        REQUESTS,
        REFUSED,
        TOKENS,
        FIRST,
        BETWEEN,
        SHARES,
    ]),
])


def variables(name):
    def query(variable, label, metric, of):
        return {"name": variable, "type": "query", "label": label, "datasource": SOURCE, "includeAll": True, "multi": True,
                "allValue": ".*", "query": {"query": f"label_values({metric}, {of})", "refId": variable},
                "current": {"text": "All", "value": "$__all"}, "refresh": 2}
    found = [{"name": "datasource", "type": "datasource", "label": "Prometheus", "query": "prometheus"},
             query("job", "Job", "chimere_build_info", "job")]
    return found + ([query("test", "Test", "k6_vus", "testid")] if name == "loadtest" else [])


def timeseries(number, what, x, y):
    width = COLUMNS // PANELS_ABREAST
    targets = [{"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
               for i, (expr, legend) in enumerate(what["queries"])]
    return {"id": number, "type": "timeseries", "title": what["title"], "description": what["description"], "datasource": SOURCE,
            "gridPos": {"x": x * width, "y": y, "w": width, "h": PANEL_HEIGHT},
            "fieldConfig": {"defaults": {"unit": what["unit"], "min": 0}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}, "targets": targets}


def layout(rows):
    placed, y = [], 0
    for title, panels in rows:
        placed.append({"id": len(placed) + 1, "type": "row", "title": title, "collapsed": False,
                       "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": ROW_HEIGHT}, "panels": []})
        y += ROW_HEIGHT
        for i, what in enumerate(panels):
            placed.append(timeseries(len(placed) + 1, what, i % PANELS_ABREAST, y + i // PANELS_ABREAST * PANEL_HEIGHT))
        y += -(-len(panels) // PANELS_ABREAST) * PANEL_HEIGHT
    return placed


def dashboard(name, title, description, rows):
    return {"uid": f"chimere-{name}", "title": title, "description": description, "schemaVersion": SCHEMA_VERSION, "version": 2,
            "tags": ["chimere"], "editable": True, "graphTooltip": 1, "refresh": "10s", "time": {"from": "now-30m", "to": "now"},
            "timezone": "browser", "templating": {"list": variables(name)}, "annotations": {"list": []}, "links": [],
            "panels": layout(rows)}


def problems(file, text):
    """What is wrong with a file as it lies there."""
    if not file.exists() or file.read_text() != text:
        yield f"{file.name} is stale: python3 dashboards/make.py writes it anew"
    import jsonschema
    schema = json.loads((HERE / "schema.json").read_text())
    for error in jsonschema.Draft202012Validator(schema).iter_errors(json.loads(text)):
        yield f"{file.name}: {error.json_path}: {error.message}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check, found = parser.parse_args().check, []
    for name, *rest in (SERVICE, GPU, LOADTEST):
        file, text = HERE / f"{name}.json", json.dumps(dashboard(name, *rest), indent=2, ensure_ascii=False) + "\n"
        if check:
            found += problems(file, text)
        else:
            file.write_text(text)
    print("\n".join(found) if found else "the dashboards are in order", file=sys.stderr if found else sys.stdout)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

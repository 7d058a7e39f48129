//! Fields of requests that are taken without effect, and how they are counted.

use super::IGNORED_FIELDS;

/// Counts a field that was taken without effect, under one of [`IGNORED`]. `place` is where it stands, without numbers
/// of entries:
/// `messages.content`.
pub fn count_ignored(place: &str, name: &str) {
    let field = if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
    let known = IGNORED.iter().find(|known| **known == field);
    ::metrics::counter!(IGNORED_FIELDS, "field" => known.copied().unwrap_or("other")).increment(1);
}

/// Values of [`IGNORED_FIELDS`]'s label: what known programs send inside messages, parts, tools and `stream_options`
/// that changes nothing here, and headers of gateways. Names that are not listed share one series, or any client could
/// make any number of them.
pub const IGNORED: &[&str] = &[
    "add_special_tokens",
    "early_stopping",
    "id_slot",
    "kv_transfer_params",
    "length_penalty",
    "min_keep",
    "mm_processor_kwargs",
    "n_discard",
    "n_keep",
    "request_id",
    "return_progress",
    "samplers",
    "store",
    "timings_per_token",
    "truncate_prompt_tokens",
    "container",
    "context_management",
    "mcp_servers",
    "messages.annotations",
    "messages.cache_control",
    "messages.id",
    "messages.provider_specific_fields",
    "messages.reasoning_details",
    "messages.thinking_blocks",
    "messages.content.annotations",
    "messages.content.cache_control",
    "messages.content.id",
    "messages.tool_calls.extra_content",
    "messages.tool_calls.provider_specific_fields",
    "messages.tool_calls.function.description",
    "stream_options.continuous_usage_stats",
    "output_config.task_budget",
    "system.cache_control",
    "thinking.display",
    "tools.cache_control",
    "tools.defer_loading",
    "tools.eager_input_streaming",
    "tools.strict",
    "tools.type",
    "tools.function.cache_control",
    "header.x-data-parallel-rank",
    "header.x-gateway-destination-endpoint",
    "header.x-gateway-inference-objective",
    "header.x-llm-d-inference-objective",
    "header.x-llm-d-slo-tpot-ms",
    "header.x-llm-d-slo-ttft-ms",
    "header.x-prefiller-host-port",
    "header.x-session-id",
    "header.x-session-token",
    "other",
];

//! Items of tools that the service runs: a server's tools, calls of them, calls that wait for an approval; and the
//! events that only such items have.

use crate::hosted::{SEPARATOR, ServerTool};
use crate::http::reply::parts::Part;
use crate::turn::ToolList;
use serde_json::{Value, json};
use std::sync::Arc;

/// A server's tools that the model may call.
pub(super) fn list(list: &ToolList, ended: bool) -> Value {
    let one = |tool: &Arc<ServerTool>| {
        let annotations = json!({"read_only": tool.reads_only()});
        json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema,
            "annotations": annotations})
    };
    let tools: Vec<Value> = list.tools.iter().filter(|_| ended).map(one).collect();
    json!({"type": "mcp_list_tools", "server_label": list.server, "tools": tools, "error": list.error})
}

/// A call that waits for an approval.
pub(super) fn approval_request(shown: &str, arguments: &str) -> Value {
    let (server, name) = shown.split_once(SEPARATOR).unwrap_or(("", shown));
    json!({"type": "mcp_approval_request", "server_label": server, "name": name, "arguments": arguments})
}

/// Names of the events with which a part of the service's own begins.
pub(super) fn begun(part: &Part) -> &'static [&'static str] {
    match part {
        Part::Search(_) => &["response.file_search_call.in_progress", "response.file_search_call.searching"],
        Part::Web(_) => &["response.web_search_call.in_progress", "response.web_search_call.searching"],
        Part::Tools(_) => &["response.mcp_list_tools.in_progress"],
        Part::Run(_) => &["response.mcp_call.in_progress"],
        Part::Thought(_) | Part::Text(_) | Part::Call(_) => &[],
    }
}

/// Name of the event with which it ends.
pub(super) fn ended(part: &Part) -> &'static str {
    match part {
        Part::Tools(list) if list.error.is_some() => "response.mcp_list_tools.failed",
        Part::Tools(_) => "response.mcp_list_tools.completed",
        Part::Run(run) if matches!(run.result, Some(Err(_))) => "response.mcp_call.failed",
        Part::Run(_) => "response.mcp_call.completed",
        Part::Web(_) => "response.web_search_call.completed",
        _ => "response.file_search_call.completed",
    }
}

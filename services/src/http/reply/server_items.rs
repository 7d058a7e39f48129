//! What the service did for an answer beside generating it, as items of OpenAI's Responses API. A chat that asks for
//! its steps is told the same.

use crate::actors::request::output::{FileSearch, Output, ToolRun, WebAction};
use crate::actors::request::report::PipelineStepReport;
use serde_json::{Value, json};

const RUNNING: &str = "in_progress";
const COMPLETED: &str = "completed";
const FAILED: &str = "failed";

/// A call of an MCP server's tool.
pub(in crate::http) fn mcp_call(run: &ToolRun) -> Value {
    let (output, error) = match &run.result {
        Some(Ok(output)) => (Some(output), None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    json!({"type": "mcp_call", "server_label": run.server, "name": run.tool, "arguments": run.arguments,
        "approval_request_id": run.approval, "output": output, "error": error})
}

/// A search of files; `results` are told if the client wants them.
pub(in crate::http) fn file_search_call(search: &FileSearch, results: Option<Vec<Value>>) -> Value {
    json!({"type": "file_search_call", "queries": search.queries, "results": results})
}

/// A search of the web, with the addresses that it found if `shows_urls`, or a page that was read.
pub(in crate::http) fn web_search_call(action: &WebAction, shows_urls: bool) -> Value {
    let action = match action {
        WebAction::Search { queries, pages, .. } => {
            let mut search = json!({"type": "search", "query": queries.first(), "queries": queries});
            if shows_urls {
                search["sources"] = pages.iter().map(|page| json!({"type": "url", "url": page.url})).collect();
            }
            search
        }
        WebAction::Open { url, .. } => json!({"type": "open_page", "url": url}),
    };
    json!({"type": "web_search_call", "action": action})
}

/// A step of a pipeline that was done.
pub(in crate::http) fn pipeline_step(step: &PipelineStepReport) -> Value {
    let ms = (step.took.as_secs_f64() * 1e5).round() / 100.0;
    json!({"step": step.name, "outcome": step.outcome, "ms": ms, "tokens": step.tokens})
}

/// What came of a call of a tool.
pub(in crate::http) fn run_status(run: &ToolRun) -> &'static str {
    match run.result {
        None => RUNNING,
        Some(Ok(_)) => COMPLETED,
        Some(Err(_)) => FAILED,
    }
}

/// What came of something on the web that has ended.
pub(in crate::http) fn web_status(action: &WebAction) -> &'static str {
    match action {
        WebAction::Search { failed: true, .. } | WebAction::Open { failed: true, .. } => FAILED,
        WebAction::Search { .. } | WebAction::Open { .. } => COMPLETED,
    }
}

/// A step that an output tells of: an item with its `status`. None, if it tells of something else.
pub(in crate::http) fn step(output: &Output) -> Option<Value> {
    let (mut item, status) = match output {
        Output::Searching { query } => {
            let search = FileSearch { queries: vec![query.clone()], results: Vec::new(), sufficiency: None };
            (file_search_call(&search, None), RUNNING)
        }
        Output::Searched(search) => (searched(search), COMPLETED),
        Output::Calling(run) | Output::Called(run) => (mcp_call(run), run_status(run)),
        Output::Browsing(action) => (web_search_call(action, false), RUNNING),
        Output::Browsed(action) => (web_search_call(action, true), web_status(action)),
        Output::PipelineStep(step) => {
            let mut item = pipeline_step(step);
            item["type"] = "pipeline_step".into();
            (item, COMPLETED)
        }
        _ => return None,
    };
    item["status"] = status.into();
    Some(item)
}

/// A search with the number of passages that it found, whose text the answer's citations bring.
fn searched(search: &FileSearch) -> Value {
    let mut item = file_search_call(search, None);
    item["passages"] = search.results.len().into();
    item
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_step_says_how_far_it_is() {
        let run = ToolRun {
            server: "files".into(),
            tool: "read".into(),
            arguments: "{}".into(),
            approval: None,
            result: None,
        };
        let ended = |result| step(&Output::Called(ToolRun { result: Some(result), ..run.clone() })).unwrap();
        assert_eq!(step(&Output::Calling(run.clone())).unwrap()["status"], "in_progress");
        let (good, bad) = (ended(Ok("four".into())), ended(Err("gone".into())));
        assert_eq!((&good["status"], &good["output"]), (&json!("completed"), &json!("four")));
        assert_eq!((&bad["status"], &bad["error"]), (&json!("failed"), &json!("gone")));
        let open = WebAction::Open { url: "https://a.example/".into(), read: None, failed: true };
        assert_eq!(step(&Output::Browsed(open)).unwrap()["status"], "failed");
        let report =
            PipelineStepReport { name: "plan".into(), outcome: "stop", took: Duration::from_micros(1234), tokens: 7 };
        let want = json!({"type": "pipeline_step", "step": "plan", "outcome": "stop", "ms": 1.23, "tokens": 7,
            "status": "completed"});
        assert_eq!(step(&Output::PipelineStep(report)).unwrap(), want);
        assert_eq!(step(&Output::Failed("x".into())), None);
    }
}

//! What the service did on the web for an answer, as blocks of a message: a use of its tool, and the result. A result
//! has nothing that a later turn needs.

use crate::actors::request::output::WebAction;
use crate::citations::NumberedSource;
use crate::http::body::turns::BETWEEN;
use crate::http::reply::parts::Part;
use crate::web::WebPage;
use serde_json::{Value, json};

/// The id of the use of a tool that is the part of this number in a message.
pub(super) fn use_id(message: &str, at: usize) -> String {
    format!("srvtoolu_{}{at:02}", message.trim_start_matches("msg_"))
}

/// The use of a tool, without what it was called with.
pub(super) fn tool_use(id: &str, action: &WebAction) -> Value {
    let name = match action {
        WebAction::Search { .. } => "web_search",
        WebAction::Open { .. } => "web_fetch",
    };
    json!({"type": "server_tool_use", "id": id, "name": name, "input": {}})
}

/// What the tool was called with.
pub(super) fn input(action: &WebAction) -> Value {
    match action {
        WebAction::Search { queries, .. } => json!({"query": queries.first(), "queries": queries}),
        WebAction::Open { url, .. } => json!({"url": url}),
    }
}

/// What came of it.
pub(super) fn result(id: &str, action: &WebAction) -> Value {
    let (kind, content) = match action {
        WebAction::Search { failed: true, .. } => ("web_search_tool_result", failed("web_search", "unavailable")),
        WebAction::Search { pages, .. } => ("web_search_tool_result", pages.iter().map(found).collect()),
        WebAction::Open { url, read: Some((title, passages)), failed: false } => {
            ("web_fetch_tool_result", fetched(url, title, passages))
        }
        WebAction::Open { .. } => ("web_fetch_tool_result", failed("web_fetch", "url_not_accessible")),
    };
    json!({"type": kind, "tool_use_id": id, "content": content})
}

fn failed(tool: &str, code: &str) -> Value {
    json!({"type": format!("{tool}_tool_result_error"), "error_code": code})
}

fn found(page: &WebPage) -> Value {
    json!({"type": "web_search_result", "url": page.url, "title": page.title, "page_age": null,
        "encrypted_content": ""})
}

/// Of a page the passages that the model read.
fn fetched(url: &str, title: &str, passages: &[NumberedSource]) -> Value {
    let texts: Vec<&str> = passages.iter().map(|passage| &*passage.text).collect();
    let source = json!({"type": "text", "media_type": "text/plain", "data": texts.join(BETWEEN)});
    let document = json!({"type": "document", "title": title, "source": source, "citations": {"enabled": true}});
    json!({"type": "web_fetch_result", "url": url, "retrieved_at": null, "content": document})
}

/// How many queries were searched for and pages read, if there was anything of that.
pub(super) fn requests(parts: &[Part]) -> Option<Value> {
    let actions = || parts.iter().filter_map(|part| if let Part::Web(action) = part { Some(action) } else { None });
    actions().next()?;
    let searched: usize = actions()
        .map(|action| match action {
            WebAction::Search { queries, failed: false, .. } => queries.len(),
            _ => 0,
        })
        .sum();
    let fetched = actions().filter(|action| matches!(action, WebAction::Open { failed: false, .. })).count();
    Some(json!({"web_search_requests": searched, "web_fetch_requests": fetched}))
}

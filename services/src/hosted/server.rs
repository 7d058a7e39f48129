//! One MCP server: its connection, which is opened when it is needed and again after it broke, its tools, and calls of
//! them. Whatever a server does, its answer is a text within bounds of time and size.

use super::connection::McpConnection;
use super::file::ServerEntry;
use crate::limits;
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, JsonObject, PaginatedRequestParams, Tool};
use rmcp::service::{Peer, RoleClient};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

/// Pages of a list of tools that are read.
const PAGES_MAX: usize = 16;

/// See the file's head.
pub struct McpServer {
    name: String,
    entry: ServerEntry,
    /// Where connections live, however long a request does.
    runtime: Handle,
    state: Mutex<ServerState>,
}

#[derive(Default)]
struct ServerState {
    connection: Option<McpConnection>,
    /// The tools as they were listed last, and when.
    listed: Option<(Instant, Arc<Vec<Tool>>)>,
    /// Connections that failed one after the other, why the last one did, and until when none is tried.
    failures: u32,
    failed: Option<(String, Instant)>,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolAnswer {
    /// What the model reads.
    pub text: String,
    /// The tool could not do it, or there is no answer of it.
    pub failed: bool,
    /// Bytes that the server sent, of which the text may be a part.
    pub bytes: usize,
    /// How long it took.
    pub took: Duration,
}

impl McpServer {
    pub(super) fn new(name: String, entry: ServerEntry, runtime: Handle) -> Self {
        Self { name, entry, runtime, state: Mutex::default() }
    }

    /// Its name in the operator's file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the operator says of it.
    pub fn entry(&self) -> &ServerEntry {
        &self.entry
    }

    /// Its tools in the order of their names, asked for anew if that was long ago.
    ///
    /// # Errors
    /// If it cannot be reached or gives no list, in words.
    pub(super) async fn tools(&self) -> Result<Arc<Vec<Tool>>, String> {
        let mut state = self.state.lock().await;
        let old = Duration::from_secs(limits::MCP_LIST_SECONDS);
        if let (Some((at, tools)), Some(connection)) = (&state.listed, &state.connection)
            && at.elapsed() < old
            && !connection.is_over()
        {
            return Ok(tools.clone());
        }
        let peer = self.connected(&mut state).await?;
        let within = Duration::from_secs(self.entry.seconds);
        let listed = tokio::time::timeout(within, list(&peer)).await;
        let listed = listed.unwrap_or_else(|_| Err(format!("no list of tools within {} s", self.entry.seconds)));
        match listed {
            Ok(mut tools) => {
                tools.sort_by(|a, b| a.name.cmp(&b.name));
                tools.dedup_by(|a, b| a.name == b.name);
                tools.truncate(limits::MCP_TOOLS_MAX);
                let tools = Arc::new(tools);
                (state.listed, state.failures) = (Some((Instant::now(), tools.clone())), 0);
                Ok(tools)
            }
            Err(why) => {
                self.fail(&mut state, &why);
                Err(why)
            }
        }
    }

    /// Has a tool run.
    pub async fn call(&self, tool: &str, arguments: JsonObject) -> ToolAnswer {
        let (begun, within) = (Instant::now(), Duration::from_secs(self.entry.seconds));
        let asked = async {
            let peer = self.connected(&mut *self.state.lock().await).await?;
            let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
            peer.call_tool(params).await.map_err(|e| e.to_string())
        };
        let result = tokio::time::timeout(within, asked).await;
        let result = result.unwrap_or_else(|_| Err(format!("no answer within {} s", self.entry.seconds)));
        let (text, failed) = match result {
            Ok(result) => (said(&result), result.is_error == Some(true)),
            Err(why) => (format!("Error: {} gave no answer: {}", self.name, shortened(&why)), true),
        };
        let bytes = text.len();
        ToolAnswer { text: cut(text, self.entry.result_bytes), failed, bytes, took: begun.elapsed() }
    }

    /// The way to a server that is connected, now if it was not.
    async fn connected(&self, state: &mut ServerState) -> Result<Peer<RoleClient>, String> {
        if let Some(connection) = state.connection.as_ref().filter(|connection| !connection.is_over()) {
            return Ok(connection.peer());
        }
        state.connection = None;
        if let Some((why, until)) = state.failed.as_ref().filter(|(_, until)| *until > Instant::now()) {
            let seconds = until.duration_since(Instant::now()).as_secs() + 1;
            return Err(format!("{why}; it is tried again in {seconds} s"));
        }
        let entry = self.entry.clone();
        let opened = self.runtime.spawn(async move { McpConnection::open(&entry).await }).await;
        match opened.unwrap_or_else(|_| Err("the service ends".into())) {
            Ok(connection) => {
                let peer = connection.peer();
                // One that dies again and again is not a server that is there.
                self.wait_longer(state, "its connection ended");
                state.connection = Some(connection);
                Ok(peer)
            }
            Err(why) => {
                self.fail(state, &why);
                Err(why)
            }
        }
    }

    fn fail(&self, state: &mut ServerState, why: &str) {
        tracing::warn!(server = self.name, why, "an MCP server cannot be used");
        state.connection = None;
        self.wait_longer(state, why);
    }

    /// Before the next attempt: 1, 2, 4 seconds and so on.
    fn wait_longer(&self, state: &mut ServerState, why: &str) {
        let seconds = 1_u64.checked_shl(state.failures).unwrap_or(u64::MAX).min(limits::MCP_RETRY_SECONDS_MAX);
        state.failures = state.failures.saturating_add(1);
        state.failed = Some((why.to_owned(), Instant::now() + Duration::from_secs(seconds)));
    }
}

async fn list(peer: &Peer<RoleClient>) -> Result<Vec<Tool>, String> {
    let (mut tools, mut cursor) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let page = peer.list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor))).await;
        let page = page.map_err(|e| e.to_string())?;
        tools.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() || tools.len() > limits::MCP_TOOLS_MAX {
            break;
        }
    }
    Ok(tools)
}

/// A result as text: of other content it says that there was some.
fn said(result: &CallToolResult) -> String {
    let part = |content: &ContentBlock| match content {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(_) => "[An image was left out here: this model reads text.]".to_owned(),
        ContentBlock::Audio(_) => "[A recording was left out here: this model reads text.]".to_owned(),
        other => serde_json::to_string(other).unwrap_or_default(),
    };
    let parts: Vec<String> = result.content.iter().map(part).collect();
    match &result.structured_content {
        Some(structured) if parts.is_empty() => structured.to_string(),
        _ => parts.join("\n"),
    }
}

/// As much of a text as the model reads, and a word about the rest.
pub(super) fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        let whole = text.len();
        text.truncate(text.floor_char_boundary(max));
        text.push_str(&format!("\n[Cut off here: the result has {whole} bytes.]"));
    }
    text
}

/// As much of an error as the model reads of it.
fn shortened(why: &str) -> String {
    why.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_text_and_what_is_none_is_named() {
        let result: CallToolResult = serde_json::from_str(
            r#"{"content": [{"type": "text", "text": "a"}, {"type": "image", "data": "", "mimeType": "image/png"}]}"#,
        )
        .unwrap();
        assert_eq!(said(&result), "a\n[An image was left out here: this model reads text.]");
        let result: CallToolResult = serde_json::from_str(r#"{"content": [], "structuredContent": {"n": 7}}"#).unwrap();
        assert_eq!(said(&result), r#"{"n":7}"#);
        assert_eq!(cut("äöü".into(), 3), "ä\n[Cut off here: the result has 6 bytes.]");
    }
}

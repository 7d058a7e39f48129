//! One MCP server: its connection, which is opened when it is needed and again after it broke, its tools, and calls of
//! them. Whatever a server does, its answer is a text within bounds of time and size.

use super::connection::McpConnection;
use super::file::{Reached, ServerEntry};
use super::requested_server::RequestedServer;
use crate::holder::ToolRights;
use crate::limits;
use chimere_engine::ids::KeyId;
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, InputRequiredResult};
use rmcp::model::{JsonObject, PaginatedRequestParams, Tool};
use rmcp::service::{Peer, RoleClient};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

/// Pages of a list of tools that are read.
const PAGES_MAX: usize = 16;
/// Name of all servers that requests name, where names are to be few.
const REQUESTED: &str = "request";

/// See the file's head.
pub struct McpServer {
    name: String,
    entry: ServerEntry,
    /// Where connections live, however long a request does.
    runtime: Handle,
    link: Mutex<ServerLink>,
    /// The tools as they were listed last, or why they were not, and until when that counts. Held while they are
    /// listed, so that one list serves all who wait for it, and calls wait for none.
    listed: Mutex<Option<(Instant, ListedOutcome)>>,
    /// How many calls of its tools are at work.
    calls: AtomicU32,
}

type ListedOutcome = Result<Arc<Vec<Tool>>, String>;

#[derive(Default)]
struct ServerLink {
    connection: Option<McpConnection>,
    /// Attempts one after the other from which no list of tools came.
    failures: u32,
    /// Why the last one gave none, and until when no other is made.
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
        let (link, listed) = (Mutex::default(), Mutex::default());
        Self { name, entry, runtime, link, listed, calls: AtomicU32::new(0) }
    }

    /// Its name in the operator's file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether an account may have its tools run, whose key's line allows this.
    pub(super) fn admits(&self, account: KeyId, rights: &ToolRights) -> bool {
        self.entry.keys.has(account) && rights.allow(&self.name)
    }

    /// The host that it stands on, if a request named it and no file.
    pub fn requested_at(&self) -> Option<&str> {
        match &self.entry.reached {
            Reached::Request { host, .. } => Some(host),
            Reached::Program { .. } | Reached::Url(_) => None,
        }
    }

    /// Its name where all names are the operator's.
    pub fn label(&self) -> &str {
        if self.requested_at().is_some() { REQUESTED } else { &self.name }
    }

    /// The address that a request named.
    pub(super) fn requested_url(&self) -> Option<&str> {
        match &self.entry.reached {
            Reached::Request { server, .. } => Some(&server.url),
            Reached::Program { .. } | Reached::Url(_) => None,
        }
    }

    /// A text of the server's, without what it was told of its caller alone.
    fn without_secret(&self, text: String) -> String {
        match &self.entry.reached {
            Reached::Request { server: RequestedServer { authorization: Some(secret), .. }, .. } => {
                secret.left_out_of(text)
            }
            _ => text,
        }
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
        let mut listed = self.listed.lock().await;
        let is_open = || async { self.link.lock().await.open().is_some() };
        match &*listed {
            Some((until, outcome)) if *until > Instant::now() && is_open().await => return outcome.clone(),
            _ => {}
        }
        let peer = self.connected(&mut *self.link.lock().await).await?;
        let within = Duration::from_secs(self.entry.seconds);
        let outcome = tokio::time::timeout(within, list(&peer)).await;
        let outcome = outcome.unwrap_or_else(|_| Err(format!("no list of tools within {} s", self.entry.seconds)));
        let outcome = outcome.map(Arc::new).map_err(|why| self.without_secret(why));
        let mut link = self.link.lock().await;
        let until = match &outcome {
            Ok(_) => {
                link.failures = 0;
                Instant::now() + Duration::from_secs(limits::MCP_LIST_SECONDS)
            }
            Err(why) => self.unlisted(&mut link, why),
        };
        *listed = Some((until, outcome.clone()));
        outcome
    }

    /// No list came, and until when none is asked for. The connection ends, unless a call is at work behind it.
    fn unlisted(&self, link: &mut ServerLink, why: &str) -> Instant {
        tracing::warn!(server = self.name, why, "an MCP server does not list its tools");
        if self.calls.load(Ordering::Relaxed) == 0 {
            link.connection = None;
        }
        link.retold(why)
    }

    /// Has a tool run.
    pub async fn call(&self, tool: &str, arguments: JsonObject) -> ToolAnswer {
        let (begun, within) = (Instant::now(), Duration::from_secs(self.entry.seconds));
        let _running = RunningCall::of(&self.calls);
        let asked = async {
            let peer = self.connected(&mut *self.link.lock().await).await?;
            finished(&peer, CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments)).await
        };
        let result = tokio::time::timeout(within, asked).await;
        let result = result.unwrap_or_else(|_| Err(format!("no answer within {} s", self.entry.seconds)));
        let result = result.map_err(|why| self.without_secret(why));
        let (text, failed) = match result {
            Ok(result) => (self.without_secret(said(&result)), result.is_error == Some(true)),
            Err(why) => (format!("Error: {} gave no answer: {}", self.name, shortened(&why)), true),
        };
        let bytes = text.len();
        ToolAnswer { text: cut(text, self.entry.result_bytes), failed, bytes, took: begun.elapsed() }
    }

    /// The way to a server that is connected, now if it was not.
    async fn connected(&self, link: &mut ServerLink) -> Result<Peer<RoleClient>, String> {
        if let Some(connection) = link.open() {
            return Ok(connection.peer());
        }
        link.connection = None;
        if let Some((why, until)) = link.failed.as_ref().filter(|(_, until)| *until > Instant::now()) {
            let seconds = until.duration_since(Instant::now()).as_secs() + 1;
            return Err(format!("{why}; it is tried again in {seconds} s"));
        }
        let entry = self.entry.clone();
        let opened = self.runtime.spawn(async move { McpConnection::open(&entry).await }).await;
        let opened = opened.unwrap_or_else(|_| Err("the service ends".into()));
        match opened.map_err(|why| self.without_secret(why)) {
            Ok(connection) => {
                let peer = connection.peer();
                // One that dies again and again is not a server that is there.
                link.wait_longer("its connection ended");
                link.connection = Some(connection);
                Ok(peer)
            }
            Err(why) => {
                tracing::warn!(server = self.name, why, "an MCP server cannot be reached");
                link.wait_longer(&why);
                Err(why)
            }
        }
    }
}

impl ServerLink {
    /// The connection, if it is open.
    fn open(&self) -> Option<&McpConnection> {
        self.connection.as_ref().filter(|connection| !connection.is_over())
    }

    /// An attempt was made. The next one is made after 1, 2, 4 seconds and so on.
    fn wait_longer(&mut self, why: &str) {
        self.failures = self.failures.saturating_add(1);
        self.retold(why);
    }

    /// Why the last attempt gave nothing, and until when no other is made.
    fn retold(&mut self, why: &str) -> Instant {
        let doublings = self.failures.saturating_sub(1);
        let seconds = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX).min(limits::MCP_RETRY_SECONDS_MAX);
        let until = Instant::now() + Duration::from_secs(seconds);
        self.failed = Some((why.to_owned(), until));
        until
    }
}

/// A call that runs, until it is dropped.
struct RunningCall<'a>(&'a AtomicU32);

impl<'a> RunningCall<'a> {
    fn of(calls: &'a AtomicU32) -> Self {
        calls.fetch_add(1, Ordering::Relaxed);
        Self(calls)
    }
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The result of a call. A server of 2026-07-28 may keep nothing of a call that it has begun: it says how far it is,
/// and is asked again with these words. It has no questions to its client, which has declared that it answers none.
async fn finished(peer: &Peer<RoleClient>, mut params: CallToolRequestParams) -> Result<CallToolResult, String> {
    for _ in 0..=limits::MCP_RESUMES_MAX {
        match peer.call_tool_once(params.clone()).await.map_err(|e| e.to_string())? {
            CallToolResponse::Complete(result) => return Ok(result),
            CallToolResponse::InputRequired(InputRequiredResult {
                input_requests: None,
                request_state: Some(state),
                ..
            }) => params = params.with_request_state(state),
            CallToolResponse::InputRequired(_) => {
                return Err("the tool asks its user something, and nobody is asked here".into());
            }
            _ => return Err("it gives a task and no result".into()),
        }
    }
    Err(format!("it does not finish within {} requests", limits::MCP_RESUMES_MAX + 1))
}

/// The tools of a server, in the order of their names.
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
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools.dedup_by(|a, b| a.name == b.name);
    tools.truncate(limits::MCP_TOOLS_MAX);
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

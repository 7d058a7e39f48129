//! The tools that agents call, from the name of one to its result. Each has a bounded time, and ends when its client
//! leaves.

mod decide;
pub(super) mod described;
mod read;
mod search;

use super::message::McpMessage;
use super::revision::Revision;
use crate::http::app::App;
use crate::http::body::fields::Fields;
use crate::http::wire::error::ApiError;
use crate::http::wire::reply::RequestName;
use crate::limits::MCP_CALL_SECONDS;
use crate::metrics::{self, count_rejected};
use actix_web::{HttpRequest, web};
use rmcp::model::{CallToolResult, ContentBlock, ErrorCode, ErrorData};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Characters of a tool's name that nobody knows which its answer shows.
const NAME_CHARS_SHOWN: usize = 64;

/// A tool by what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum McpTool {
    Search,
    Read,
    Decide,
}

impl McpTool {
    /// All of them, in the order in which they are listed.
    pub(super) const ALL: [Self; 3] = [Self::Search, Self::Read, Self::Decide];

    /// Its name, also in the metrics.
    pub(super) fn name(self) -> &'static str {
        metrics::MCP_TOOLS[self as usize]
    }

    fn of(params: &Value) -> Result<Self, ErrorData> {
        let wanted = Self::ALL.map(Self::name).join(", ");
        let invalid = |message: String| ErrorData::new(ErrorCode::INVALID_PARAMS, message, None);
        let name = params.as_str().ok_or_else(|| invalid(format!("`params.name` must be one of {wanted}")))?;
        Self::ALL.into_iter().find(|tool| tool.name() == name).ok_or_else(|| {
            let shown: String = name.chars().take(NAME_CHARS_SHOWN).collect();
            invalid(format!("Unknown tool: `params.name` must be one of {wanted}, got {shown:?}"))
        })
    }
}

/// What a tool has to say: for programs by a schema, and for models as text.
struct ToolOutput {
    structured: Value,
    text: String,
}

/// Calls a tool. Arguments that it does not take are the caller's to correct, so they too are a result that says so.
pub(super) async fn call(
    app: &web::Data<App>,
    request: &HttpRequest,
    mut message: McpMessage,
    revision: Revision,
) -> Result<CallToolResult, ErrorData> {
    let tool = McpTool::of(message.params.get("name").unwrap_or(&Value::Null))?;
    let arguments = message.params.remove("arguments").unwrap_or_else(|| Map::new().into());
    let arguments = Fields::nested("arguments".into(), arguments)
        .map_err(|error| ErrorData::new(ErrorCode::INVALID_PARAMS, error.message, None))?;
    let mut watch = CallWatch::begin(tool, RequestName::of(request));
    let within = Duration::from_secs(MCP_CALL_SECONDS);
    let done = match actix_rt::time::timeout(within, run(app, request, tool, arguments)).await {
        Ok(Ok(output)) => watch.ended("ok", succeeded(output)),
        Ok(Err(error)) => {
            error.rejected.into_iter().for_each(count_rejected);
            watch.ended("failed", failed(said(&error)))
        }
        Err(_) => {
            let why = format!("{} took longer than {MCP_CALL_SECONDS} seconds and was given up", tool.name());
            watch.ended("timeout", failed(why))
        }
    };
    Ok(match revision {
        Revision::Stateless => done,
        Revision::Handshake => without_type(done),
    })
}

async fn run(
    app: &web::Data<App>,
    request: &HttpRequest,
    tool: McpTool,
    arguments: Fields,
) -> Result<ToolOutput, ApiError> {
    match tool {
        McpTool::Search => search::search_documents(app, request, arguments).await,
        McpTool::Read => read::read_passage(app, request, arguments).await,
        McpTool::Decide => decide::decide_questions(app, request, arguments).await,
    }
}

fn succeeded(ToolOutput { structured, text }: ToolOutput) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(structured);
    result
}

fn failed(why: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(why)])
}

/// Results had no type before revision 2026-07-28.
fn without_type(mut result: CallToolResult) -> CallToolResult {
    result.result_type = None;
    result
}

/// An error in the words of the endpoints, with the time after which it is worth coming back.
fn said(error: &ApiError) -> String {
    let after = error.retry_after.map(|after| format!("; try again in {} s", after.as_secs_f64().ceil()));
    format!("{}{}", error.worded(), after.unwrap_or_default())
}

/// Counts a call when it ends, also where its client leaves.
struct CallWatch {
    tool: McpTool,
    request: Arc<str>,
    begin: Instant,
    outcome: &'static str,
}

impl CallWatch {
    fn begin(tool: McpTool, request: Arc<str>) -> Self {
        Self { tool, request, begin: Instant::now(), outcome: "cancelled" }
    }

    fn ended(&mut self, outcome: &'static str, result: CallToolResult) -> CallToolResult {
        self.outcome = outcome;
        result
    }
}

impl Drop for CallWatch {
    fn drop(&mut self) {
        let (tool, outcome, seconds) = (self.tool.name(), self.outcome, self.begin.elapsed().as_secs_f64());
        ::metrics::counter!(metrics::MCP_CALLS, "tool" => tool, "outcome" => outcome).increment(1);
        ::metrics::histogram!(metrics::MCP_CALL_SECONDS, "tool" => tool).record(seconds);
        tracing::info!(request = &*self.request, tool, outcome, seconds, "a tool was called over MCP");
    }
}

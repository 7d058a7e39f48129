//! A tool of an MCP server as its server tells of it, and whether the operator has accepted it.

use super::file::{Approval, shown_name};
use super::server::McpServer;
use crate::holder::digest;
use crate::limits;
use serde_json::{Value as Json, json};
use std::fmt;
use std::sync::Arc;

/// A tool that a model may call.
#[derive(Clone)]
pub struct ServerTool {
    /// The server that runs it.
    pub server: Arc<McpServer>,
    /// Its name on that server.
    pub name: String,
    /// The name that the model calls it by: `SERVER__NAME`.
    pub shown: String,
    /// The name that the audit has it by: with its host, where a request named the server.
    pub audited: String,
    /// Its purpose in the server's words.
    pub description: String,
    /// JSON schema of its arguments.
    pub schema: Json,
    /// Hash of name, description and schema.
    pub pin: String,
    /// What the operator has said of it.
    pub state: PinState,
}

/// Whether the operator has accepted a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinState {
    /// As it is now.
    Accepted,
    /// As it was before: its name, its description or its schema is another one now.
    Changed,
    /// In no form so far.
    New,
    /// It cannot be offered at all, for this reason.
    Unfit(String),
}

impl PinState {
    /// The word for it in replies.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Changed => "changed",
            Self::New => "new",
            Self::Unfit(_) => "unfit",
        }
    }
}

impl ServerTool {
    /// A tool as a server lists it, before anybody looked whether it is accepted.
    pub(super) fn new(server: Arc<McpServer>, name: String, description: String, schema: Json) -> Self {
        let shown = shown_name(server.name(), &name);
        let pin = pin_of(&name, &description, &schema, server.requested_url());
        let audited = server.requested_at().map_or_else(|| shown.clone(), |host| format!("{shown} at {host}"));
        let bytes = description.len() + schema.to_string().len();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let state = if name.is_empty() || !name.chars().all(plain) || shown.len() > limits::TOOL_NAME_BYTES_MAX {
            let max = limits::TOOL_NAME_BYTES_MAX;
            PinState::Unfit(format!("its name wants letters, digits, `_`, `-` or `.`, {max} with the server's"))
        } else if bytes > limits::MCP_TOOL_BYTES_MAX {
            let max = limits::MCP_TOOL_BYTES_MAX;
            PinState::Unfit(format!("its description and schema have {bytes} bytes, at most {max} are taken"))
        } else {
            PinState::New
        };
        Self { server, name, shown, audited, description, schema, pin, state }
    }

    /// A tool as its server lists it.
    pub(super) fn listed(server: &Arc<McpServer>, tool: &rmcp::model::Tool) -> Self {
        let description = tool.description.as_deref().unwrap_or_default().to_owned();
        Self::new(server.clone(), tool.name.to_string(), description, Json::Object((*tool.input_schema).clone()))
    }

    /// A tool of a server that a request named: nobody was asked about it, and each call of it is.
    pub(super) fn requested(server: &Arc<McpServer>, tool: &rmcp::model::Tool) -> Self {
        let tool = Self::listed(server, tool);
        let state = if tool.state == PinState::New { PinState::Accepted } else { tool.state };
        Self { state, ..tool }
    }

    /// The operator agrees that it changes nothing and sends nothing out of the LAN.
    pub fn reads_only(&self) -> bool {
        self.server.entry().read_only.contains(&self.name)
    }

    /// The operator wants each of its calls approved, whatever has been read.
    pub fn asks(&self) -> bool {
        match self.server.entry().approval {
            Approval::Always => true,
            Approval::Writes => !self.reads_only(),
            Approval::Never => false,
        }
    }
}

impl PartialEq for ServerTool {
    fn eq(&self, other: &Self) -> bool {
        self.shown == other.shown && self.pin == other.pin
    }
}

impl Eq for ServerTool {}

impl fmt::Debug for ServerTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerTool({}, {})", self.shown, self.state.name())
    }
}

/// A hash of all that a model is told of a tool, and of its server's address if a request named that.
fn pin_of(name: &str, description: &str, schema: &Json, url: Option<&str>) -> String {
    let mut all = json!([name, description, schema]);
    if let (Some(all), Some(url)) = (all.as_array_mut(), url) {
        all.push(url.into());
    }
    digest(&all.to_string())
}

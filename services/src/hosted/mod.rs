//! What the server runs for a model: tools of MCP servers that the operator names in a file. How they are reached,
//! which of them are accepted, and calls that wait for an approval; when a call runs is the turn's matter.

mod approvals;
mod connection;
mod events;
mod file;
mod http_client;
mod import;
mod pins;
mod requested;
mod requested_server;
mod server;
mod tool;
mod toolbox;

#[cfg(test)]
pub(crate) mod fakes;

pub use approvals::{Approvals, AskedCall, KnownCall, is_approval_id};
pub use file::{Approval, SEPARATOR, ServerEntry, ToolsFile, shown_name};
pub use import::imported;
pub use pins::{PinFile, Pins};
pub use requested::{NotRequested, RequestHosts};
pub use requested_server::{RequestedServer, Secret};
pub use server::{McpServer, ToolAnswer};
pub use tool::{PinState, ServerTool};
pub use toolbox::{ListedTools, Toolbox};

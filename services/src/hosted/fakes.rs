//! Tools without servers, for tests of who may run what.

use super::file::ToolsFile;
use super::server::McpServer;
use super::tool::ServerTool;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// A tool of the server that these lines name, which nobody can reach.
pub(crate) fn tool(lines: &str, name: &str) -> Arc<ServerTool> {
    let file = ToolsFile::parse(lines, Path::new("/")).unwrap();
    let (server, entry) = file.servers.into_iter().next().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let server = Arc::new(McpServer::new(server, entry, runtime.handle().clone()));
    Arc::new(ServerTool::new(server, name.into(), format!("does {name}"), json!({"type": "object"})))
}

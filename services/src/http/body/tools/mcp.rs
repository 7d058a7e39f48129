//! The tool `mcp`: a server of the operator's file, whose tools the service runs itself. A request names it, says
//! which of its tools may be called and which calls wait for an approval. It does not say where the server is, nor who
//! may use it.

use crate::http::body::fields::{Fields, at_most, missing, wrong_type};
use crate::http::wire::error::ApiError;
use crate::limits::{MCP_SERVERS_MAX, TOOLS_MAX};
use crate::text::template::written;
use crate::text::{Message, Role};
use crate::turn::options::{AskedCalls, McpRequest};
use serde_json::Value as Json;

/// The type of the tool.
pub(in crate::http) const MCP: &str = "mcp";

/// Whether a tool is a server.
pub(super) fn is_mcp(tool: &Json) -> bool {
    tool["type"] == MCP
}

/// The servers among a request's tools, which come with their places.
pub(super) fn servers(tools: Vec<(usize, Json)>) -> Result<Vec<McpRequest>, ApiError> {
    at_most("tools", tools.len(), MCP_SERVERS_MAX)?;
    let mut servers: Vec<McpRequest> = Vec::with_capacity(tools.len());
    for (i, tool) in tools {
        let server = one(&format!("tools[{i}]"), &tool)?;
        if servers.iter().any(|earlier| earlier.server == server.server) {
            let path = format!("tools[{i}].server_label");
            let message = format!("`{path}` is {:?}, which an earlier tool has", server.server);
            return Err(ApiError::invalid(&path, message));
        }
        servers.push(server);
    }
    Ok(servers)
}

fn one(path: &str, tool: &Json) -> Result<McpRequest, ApiError> {
    let mut fields = Fields::nested(path.to_owned(), written::plain(tool))?;
    fields.string("type")?;
    let label = fields.path("server_label");
    let server = fields.string("server_label")?.ok_or_else(|| missing(&label, "the name of a server"))?;
    for name in ["server_url", "connector_id", "tunnel_id"] {
        fields
            .refuse(name, "is not supported: the operator's file names the servers, and `server_label` one of them")?;
    }
    for name in ["authorization", "headers"] {
        fields.refuse(name, "is not supported: what a server wants to know stands in the operator's file")?;
    }
    let (allowed, read_only) = allowed(&mut fields)?;
    let asks = asked(&mut fields)?;
    // Words for models that load tools later, or about the server.
    fields.ignore_rest();
    Ok(McpRequest { field: path.to_owned(), server, allowed, read_only, asks })
}

/// Which tools may be called: names, or an object with names and whether they have to be read-only.
fn allowed(fields: &mut Fields) -> Result<(Option<Vec<String>>, bool), ApiError> {
    let path = fields.path("allowed_tools");
    match fields.any("allowed_tools") {
        None => Ok((None, false)),
        Some(Json::Array(list)) => Ok((Some(names(&path, list)?), false)),
        Some(object @ Json::Object(_)) => {
            let mut filter = Fields::nested(path, object)?;
            let read_only = filter.bool("read_only")?.unwrap_or(false);
            let (path, list) = (filter.path("tool_names"), filter.list("tool_names")?);
            filter.finish()?;
            Ok((list.map(|list| names(&path, list)).transpose()?, read_only))
        }
        Some(other) => Err(wrong_type(&path, "an array of names or an object", &other)),
    }
}

/// Which calls wait for an approval. This can add to what the operator wants, and take nothing from it.
fn asked(fields: &mut Fields) -> Result<AskedCalls, ApiError> {
    let (path, wanted) = (fields.path("require_approval"), "\"always\", \"never\" or an object");
    match fields.any("require_approval") {
        None => Ok(AskedCalls::None),
        Some(Json::String(word)) if word == "always" => Ok(AskedCalls::All),
        Some(Json::String(word)) if word == "never" => Ok(AskedCalls::None),
        Some(object @ Json::Object(_)) => {
            let mut filter = Fields::nested(path, object)?;
            let always = listed(&mut filter, "always")?;
            listed(&mut filter, "never")?;
            filter.finish()?;
            Ok(always.map_or(AskedCalls::None, AskedCalls::Of))
        }
        Some(other) => Err(wrong_type(&path, wanted, &other)),
    }
}

fn listed(filter: &mut Fields, name: &'static str) -> Result<Option<Vec<String>>, ApiError> {
    let Some(mut listed) = filter.fields(name)? else { return Ok(None) };
    let (path, list) = (listed.path("tool_names"), listed.list("tool_names")?.unwrap_or_default());
    listed.ignore_rest();
    names(&path, list).map(Some)
}

fn names(path: &str, list: Vec<Json>) -> Result<Vec<String>, ApiError> {
    at_most(path, list.len(), TOOLS_MAX)?;
    let name = |(i, value): (usize, Json)| match value {
        Json::String(name) => Ok(name),
        other => Err(wrong_type(&format!("{path}[{i}]"), "a string", &other)),
    };
    list.into_iter().enumerate().map(name).collect()
}

/// Refuses approvals in a request without a server whose calls could have been asked about.
pub(in crate::http::body) fn check_approvals(messages: &[Message], servers: &[McpRequest]) -> Result<(), ApiError> {
    let approves = |message: &Message| message.role == Role::Tool && message.content.is_none();
    if servers.is_empty() && messages.iter().any(approves) {
        let message = "`messages` approve a call, and `tools` name no server of type \"mcp\" that could run it";
        return Err(ApiError::invalid("messages", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(tool: Json) -> Result<McpRequest, ApiError> {
        servers(vec![(0, tool)]).map(|mut servers| servers.remove(0))
    }

    #[test]
    fn a_request_names_a_server_its_tools_and_more_calls_that_wait() {
        let plain = read(json!({"type": "mcp", "server_label": "files"})).unwrap();
        assert_eq!((plain.server.as_str(), &plain.allowed, &plain.asks), ("files", &None, &AskedCalls::None));
        let ask = |require: Json| {
            read(json!({"type": "mcp", "server_label": "a", "require_approval": require})).unwrap().asks
        };
        assert_eq!(ask(json!("always")), AskedCalls::All);
        assert_eq!(ask(json!("never")), AskedCalls::None);
        let some = json!({"always": {"tool_names": ["w"]}, "never": {"tool_names": ["r"]}});
        assert_eq!(ask(some), AskedCalls::Of(vec!["w".into()]));
        let filter = json!({"read_only": true, "tool_names": ["r"]});
        let filtered = read(json!({"type": "mcp", "server_label": "a", "allowed_tools": filter})).unwrap();
        assert_eq!((filtered.allowed, filtered.read_only), (Some(vec!["r".into()]), true));
    }

    #[test]
    fn no_request_says_where_a_server_is_or_what_it_is_told() {
        for (field, value) in [
            ("server_url", json!("http://169.254.169.254/")),
            ("connector_id", json!("connector_gmail")),
            ("authorization", json!("token")),
            ("headers", json!({"a": "b"})),
        ] {
            let error = read(json!({"type": "mcp", "server_label": "a", field: value})).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(&*format!("tools[0].{field}")));
        }
        let error = read(json!({"type": "mcp"})).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("tools[0].server_label"));
        let error = read(json!({"type": "mcp", "server_label": "a", "require_approval": "sometimes"})).unwrap_err();
        assert!(error.message.contains("\"always\", \"never\""), "{}", error.message);
    }
}

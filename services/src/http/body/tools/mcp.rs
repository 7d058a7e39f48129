//! The tool `mcp`: a server whose tools the service runs itself. A request names it, says which of its tools may be
//! called and which calls wait for an approval. Where the server is the operator's file says, or the request itself as
//! far as the operator lets it; who may use it no request says.

use crate::hosted::{RequestedServer, Secret};
use crate::http::body::fields::{Fields, at_most, missing, wrong_type};
use crate::http::wire::error::ApiError;
use crate::limits::{MCP_AUTHORIZATION_BYTES_MAX, MCP_SERVERS_MAX, MCP_URL_BYTES_MAX, TOOLS_MAX};
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
    for name in ["connector_id", "tunnel_id"] {
        fields
            .refuse(name, "is not supported: the operator's file names the servers, and `server_label` one of them")?;
    }
    let requested = requested(&mut fields)?;
    for name in ["authorization", "headers"] {
        fields.refuse(name, "is not supported: what a server wants to know stands in the operator's file")?;
    }
    let (allowed, read_only) = allowed(&mut fields)?;
    let (asks, waived) = asked(&mut fields)?;
    // Of models that load tools later, and words about the server. A restriction that is misspelt must not pass for
    // none.
    for name in ["defer_loading", "server_description"] {
        fields.any(name);
    }
    fields.finish()?;
    Ok(McpRequest { field: path.to_owned(), server, allowed, read_only, asks, waived, requested })
}

/// Where the server is and what it is told of the caller, if the request says it.
fn requested(fields: &mut Fields) -> Result<Option<RequestedServer>, ApiError> {
    let Some(url) = short(fields, "server_url", MCP_URL_BYTES_MAX)? else { return Ok(None) };
    let authorization = short(fields, "authorization", MCP_AUTHORIZATION_BYTES_MAX)?;
    let path = fields.path("authorization");
    if authorization.as_ref().is_some_and(|text| text.is_empty() || !text.chars().all(|c| matches!(c, ' '..='~'))) {
        let message = format!("`{path}` must be a token of printable ASCII characters");
        return Err(ApiError::invalid(&path, message));
    }
    Ok(Some(RequestedServer { url, authorization: authorization.as_deref().map(Secret::new) }))
}

/// A string of at most so many bytes, which no error shows.
fn short(fields: &mut Fields, name: &'static str, max: usize) -> Result<Option<String>, ApiError> {
    let path = fields.path(name);
    match fields.any(name) {
        None => Ok(None),
        Some(Json::String(text)) if text.len() <= max => Ok(Some(text)),
        Some(Json::String(text)) => {
            let message = format!("`{path}` may have {max} bytes, got {}", text.len());
            Err(ApiError::invalid(&path, message))
        }
        Some(_) => Err(ApiError::invalid(&path, format!("`{path}` must be a string"))),
    }
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

/// Which calls wait for an approval, and which need not. This can add to what the operator wants, and takes nothing
/// from it.
fn asked(fields: &mut Fields) -> Result<(AskedCalls, AskedCalls), ApiError> {
    let (path, wanted) = (fields.path("require_approval"), "\"always\", \"never\" or an object");
    match fields.any("require_approval") {
        None => Ok((AskedCalls::None, AskedCalls::None)),
        Some(Json::String(word)) if word == "always" => Ok((AskedCalls::All, AskedCalls::None)),
        Some(Json::String(word)) if word == "never" => Ok((AskedCalls::None, AskedCalls::All)),
        Some(object @ Json::Object(_)) => {
            let mut filter = Fields::nested(path, object)?;
            let calls = |names: Option<Vec<String>>| names.map_or(AskedCalls::None, AskedCalls::Of);
            let always = listed(&mut filter, "always", &[])?;
            // Reads that are waived wait for an approval where the operator wants that, which is the stricter.
            let never = listed(&mut filter, "never", &["read_only"])?;
            filter.finish()?;
            Ok((calls(always), calls(never)))
        }
        Some(other) => Err(wrong_type(&path, wanted, &other)),
    }
}

/// Names of the tools in a filter, whose fields `without_effect` may be there too.
fn listed(
    filter: &mut Fields,
    name: &'static str,
    without_effect: &[&'static str],
) -> Result<Option<Vec<String>>, ApiError> {
    let Some(mut listed) = filter.fields(name)? else { return Ok(None) };
    let (path, list) = (listed.path("tool_names"), listed.list("tool_names")?.unwrap_or_default());
    without_effect.iter().for_each(|name| drop(listed.any(name)));
    listed.finish()?;
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
    fn a_request_may_say_where_a_server_is_and_a_token_for_it_which_no_error_shows() {
        for (fields, field) in [
            (json!({"connector_id": "connector_gmail"}), "connector_id"),
            (json!({"authorization": "token"}), "authorization"),
            (json!({"headers": {"a": "b"}}), "headers"),
            (json!({"server_url": "https://a.test/", "headers": {"a": "b"}}), "headers"),
            (json!({"server_url": 7}), "server_url"),
            (json!({"server_url": "x".repeat(MCP_URL_BYTES_MAX + 1)}), "server_url"),
            (json!({"server_url": "https://a.test/", "authorization": ["token"]}), "authorization"),
            (json!({"server_url": "https://a.test/", "authorization": "token\r\nx: y"}), "authorization"),
            (json!({"server_url": "https://a.test/", "authorization": "token".repeat(2000)}), "authorization"),
        ] {
            let mut tool = json!({"type": "mcp", "server_label": "a"});
            tool.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let error = read(tool).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(&*format!("tools[0].{field}")), "{fields}");
            assert!(!error.message.contains("token\r"), "{}", error.message);
        }
        let tool = json!({"type": "mcp", "server_label": "a", "server_url": "https://a.test/mcp",
            "authorization": "token", "require_approval": {"never": {"tool_names": ["r"]}}});
        let McpRequest { requested, waived, .. } = read(tool).unwrap();
        assert_eq!(waived, AskedCalls::Of(vec!["r".into()]));
        assert_eq!(requested.as_ref().map(|server| server.url.as_str()), Some("https://a.test/mcp"));
        assert!(!format!("{requested:?}").contains("token"));
        let error = read(json!({"type": "mcp"})).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("tools[0].server_label"));
        let error = read(json!({"type": "mcp", "server_label": "a", "require_approval": "sometimes"})).unwrap_err();
        assert!(error.message.contains("\"always\", \"never\""), "{}", error.message);
    }

    #[test]
    fn a_restriction_that_is_misspelt_is_refused_and_words_about_a_server_are_not() {
        for (fields, field) in [
            (json!({"require_aproval": "always"}), "require_aproval"),
            (json!({"allowed_tool": ["r"]}), "allowed_tool"),
            (json!({"require_approval": {"always": {"tool_name": ["w"]}}}), "require_approval.always.tool_name"),
            (json!({"require_approval": {"always": {"read_only": true}}}), "require_approval.always.read_only"),
        ] {
            let mut tool = json!({"type": "mcp", "server_label": "a"});
            tool.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            assert_eq!(read(tool).unwrap_err().param.as_deref(), Some(&*format!("tools[0].{field}")), "{fields}");
        }
        let described = json!({"type": "mcp", "server_label": "a", "server_description": "Notes.",
            "defer_loading": true, "require_approval": {"never": {"read_only": true, "tool_names": ["r"]}}});
        assert_eq!(read(described).unwrap().waived, AskedCalls::Of(vec!["r".into()]));
    }
}

//! From the MCP servers that a request names to functions that its model may call: those that the operator has
//! accepted, that the request allows, and that its key may have run.

use crate::hosted::{ListedTools, McpServer, PinState, ServerTool};
use crate::limits::TOOLS_MAX;
use crate::text::RawJson;
use crate::turn::caller::TurnCaller;
use crate::turn::error::TurnError;
use crate::turn::hosted::{Hosted, ToolList};
use crate::turn::options::{AskedCalls, ChatRequest, McpRequest};
use crate::turn::services::TurnServices;
use futures_util::future::join_all;
use std::sync::Arc;

/// Adds the tools of the servers that a request names to what its model may call. A server that gives none is told of,
/// and the turn goes on without it.
///
/// # Errors
/// If the request names a server or a tool that there is not for its key, or two tools of one name.
pub async fn host_tools(
    services: &TurnServices,
    caller: &TurnCaller,
    chat: &mut ChatRequest,
) -> Result<Vec<ToolList>, TurnError> {
    let all = std::mem::take(&mut chat.mcp);
    let servers: Vec<_> = all.iter().map(|asked| server_of(services, caller, asked)).collect::<Result<_, _>>()?;
    let listed = join_all(servers.iter().map(|server| services.tools.list(server))).await;
    let mut lists = Vec::new();
    for (asked, listed) in all.into_iter().zip(listed) {
        let list = allowed(&asked, listed)?;
        for tool in &list.tools {
            host(chat, tool, &asked)?;
        }
        lists.push(list);
    }
    // Nobody can be made to call where there is nothing to call.
    chat.calls = chat.calls.take().filter(|calls| !calls.tools.is_empty());
    Ok(lists)
}

/// The server that a request names.
fn server_of(services: &TurnServices, caller: &TurnCaller, asked: &McpRequest) -> Result<Arc<McpServer>, TurnError> {
    if let Some(requested) = &asked.requested {
        return services.tools.requested(&caller.tools, &asked.server, requested).map_err(|(name, why)| {
            let field = format!("{}.{name}", asked.field);
            let message = format!("`{field}` {why}");
            TurnError::coded(field, message, "mcp_server_not_allowed")
        });
    }
    services.tools.server(caller.account, &caller.tools, &asked.server).ok_or_else(|| {
        let shown: String = asked.server.chars().take(64).collect();
        let field = format!("{}.server_label", asked.field);
        let message = format!("`{field}` is {shown:?}, which is no MCP server that this key may use");
        TurnError::coded(field, message, "mcp_server_not_found")
    })
}

/// The accepted tools of a server that the request allows.
fn allowed(asked: &McpRequest, listed: ListedTools) -> Result<ToolList, TurnError> {
    let ListedTools { tools, error } = listed;
    let asks = if let AskedCalls::Of(names) = &asked.asks { names.as_slice() } else { &[] };
    let named =
        [("allowed_tools", asked.allowed.as_deref().unwrap_or_default()), ("require_approval.always.tool_names", asks)];
    for (field, names) in named {
        let missing = |name: &&String| !tools.iter().any(|tool| tool.name == **name);
        if let (Some(name), None) = (names.iter().find(missing), &error) {
            let shown: String = name.chars().take(64).collect();
            let field = format!("{}.{field}", asked.field);
            let message = format!("`{field}` has {shown:?}, which {} does not offer", asked.server);
            return Err(TurnError::invalid(field, message));
        }
    }
    let wanted = |tool: &Arc<ServerTool>| {
        let named = asked.allowed.as_ref().is_none_or(|names| names.contains(&tool.name));
        named && tool.state == PinState::Accepted && (!asked.read_only || tool.reads_only())
    };
    let tools = tools.into_iter().filter(wanted).collect();
    Ok(ToolList { server: asked.server.clone(), tools, error })
}

fn host(chat: &mut ChatRequest, tool: &Arc<ServerTool>, asked: &McpRequest) -> Result<(), TurnError> {
    let all = chat.conversation.tools.len();
    if all >= TOOLS_MAX {
        let message = format!("`tools` are more than {TOOLS_MAX} with those of {}", asked.server);
        return Err(TurnError::coded("tools", message, "too_many_entries"));
    }
    let asks = asked.asks.have(&tool.name) || (asked.requested.is_some() && !asked.waived.have(&tool.name));
    let hosted = Hosted::Mcp { tool: tool.clone(), asks: asks || tool.asks() };
    let name = hosted.name();
    let tools = chat.tools.get_or_insert_default();
    if !tools.add(hosted.tool()) {
        let message = format!("`tools` has a function {name:?}, which is the name of a tool of {}", asked.server);
        return Err(TurnError::invalid("tools", message));
    }
    if let Some(calls) = &mut chat.calls {
        calls.tools.push(hosted.tool());
    }
    chat.conversation.tools.push(RawJson(hosted.declaration()));
    chat.hosted.push(hosted);
    Ok(())
}

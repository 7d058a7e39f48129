//! `GET /v1/tools`: the MCP servers that a key may use, their tools, what the operator has said of each, and whether
//! the web is offered beside them.

use crate::hosted::{ListedTools, McpServer, PinState, ServerTool};
use crate::http::app::App;
use crate::http::edge::keys::auth::Caller;
use crate::http::wire::routing::{only, read};
use crate::web::WebOffer;
use actix_web::{HttpRequest, HttpResponse, web};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::sync::Arc;

/// The list of tools.
pub(super) fn routes(config: &mut web::ServiceConfig) {
    config.service(only("/v1/tools", "GET", read().to(list)));
}

async fn list(app: web::Data<App>, request: HttpRequest) -> HttpResponse {
    let tools = &app.turns.tools;
    let caller = Caller::of(&request);
    let servers = tools.servers(caller.key, &caller.tools);
    let listed = join_all(servers.iter().map(|server| tools.list(server))).await;
    let data: Vec<Value> = servers.iter().zip(&listed).map(|(server, listed)| of_server(server, listed)).collect();
    let web_search = app.limits.web != WebOffer::default() && caller.tools.allow_web();
    HttpResponse::Ok().json(json!({"object": "list", "data": data, "web_search": web_search}))
}

fn of_server(server: &Arc<McpServer>, listed: &ListedTools) -> Value {
    let tools: Vec<Value> = listed.tools.iter().map(|tool| of_tool(tool)).collect();
    json!({"object": "mcp_server", "server_label": server.name(), "approval": server.entry().approval.name(),
        "error": listed.error, "tools": tools})
}

/// A tool; `asks` says that each of its calls waits for an approval, whatever a request or a turn adds to that.
fn of_tool(tool: &ServerTool) -> Value {
    let why = if let PinState::Unfit(why) = &tool.state { Some(why) } else { None };
    json!({"name": tool.name, "function": tool.shown, "description": tool.description, "input_schema": tool.schema,
        "state": tool.state.name(), "why": why, "read_only": tool.reads_only(), "asks": tool.asks()})
}

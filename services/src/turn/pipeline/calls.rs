//! Tools that a pipeline's steps run. Nobody is asked there, so only those are run that the operator says only read.

use super::asking::Asking;
use crate::hosted::{PinState, ServerTool, shown_name};
use crate::pipelines::ToolPlan;
use crate::turn::error::TurnError;
use crate::turn::rounds::ReadCall;
use std::sync::Arc;

/// The call that a plan wants, or in words why there is none: a server that cannot be reached and texts that make no
/// arguments are results too.
///
/// # Errors
/// If the caller's key may not use the server, or the tool is not one that a pipeline can have run.
pub(super) async fn call_of(
    asking: Asking<'_>,
    pipeline: &str,
    plan: ToolPlan,
) -> Result<Result<ReadCall, String>, TurnError> {
    let tool = tool_of(asking, pipeline, &plan).await?;
    Ok(tool.and_then(|tool| Ok(ReadCall::new(tool, plan.arguments?))))
}

async fn tool_of(
    asking: Asking<'_>,
    pipeline: &str,
    ToolPlan { server, tool, .. }: &ToolPlan,
) -> Result<Result<Arc<ServerTool>, String>, TurnError> {
    let wrong = |why: &str, code| {
        let message = format!("the pipeline `{pipeline}` runs the tool `{}`, {why}", shown_name(server, tool));
        Err(TurnError::coded("model", message, code))
    };
    let tools = &asking.services.tools;
    let Some(reached) = tools.server(asking.caller.account, &asking.caller.tools, server) else {
        return wrong("and this key may use no MCP server of this name", "mcp_server_not_found");
    };
    let listed = tools.list(&reached).await;
    if let Some(why) = listed.error {
        return Ok(Err(why));
    }
    let offered = listed.tools.into_iter().find(|offered| *offered.name == **tool);
    match offered.filter(|offered| offered.state == PinState::Accepted) {
        None => wrong("which is not offered, or not as it was accepted", "mcp_tool_not_found"),
        Some(offered) if offered.reads_only() && !offered.asks() => Ok(Ok(offered)),
        Some(_) => {
            wrong("and a pipeline runs only tools of `read_only` whose calls wait for no approval", "mcp_tool_asks")
        }
    }
}

//! Calls of MCP servers' tools: run, told to the client, and put into the context as far as it has room; and calls that
//! the client is asked about first.

use super::driver::{TurnDriver, count};
use super::machine::{CallOutcome, CallResult, PlannedCall, TurnEvent};
use crate::actors::request::output::{Delta, Output, ToolCallDelta, ToolRun};
use crate::actors::request::report::CallReport;
use crate::audit::AuditRecord;
use crate::holder::digest;
use crate::hosted::{AskedCall, ServerTool, ToolAnswer};
use crate::limits::MCP_READS_AT_ONCE;
use crate::metrics;
use crate::turn::caller::TurnCaller;
use crate::turn::context::room;
use crate::turn::error::EarlyEnd;
use crate::turn::hosted::{Hosted, HostedCall};
use crate::turn::services::TurnServices;
use chimere_engine::ids::KeyId;
use futures_util::StreamExt;
use futures_util::stream;
use serde_json::{Map, Value as Json};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

/// What the model reads where the context has no room for a result.
const NO_ROOM: &str = "Error: there is no room for this result; answer from what is known.";
/// What stands behind the part of a result that it has room for.
const CUT: &str = "\n[Cut off here: there is no room for more.]";
/// Tokens that a template lays around a result, at most.
const AROUND: usize = 256;

impl TurnDriver {
    /// Runs calls of MCP servers' tools: at once those that only read, else there is one.
    pub(super) async fn run_tools(
        &mut self,
        calls: &[PlannedCall],
        results: &mut Vec<CallResult>,
    ) -> Result<(), EarlyEnd> {
        let (services, caller) = (self.later.services.clone(), self.later.caller.clone());
        let runs = calls.iter().filter_map(|planned| match &planned.plan {
            Ok(HostedCall::Mcp { tool, arguments }) => {
                Some(run(&services, &caller, tool, (arguments, &planned.call.arguments), None))
            }
            _ => None,
        });
        let mut answers = pin!(stream::iter(runs).buffered(MCP_READS_AT_ONCE));
        for PlannedCall { call, tool, .. } in calls {
            let Hosted::Mcp { tool, .. } = tool else { continue };
            let told = told_run(tool, &call.arguments, None);
            self.tell(Output::Calling(told.clone())).await?;
            let begun = Instant::now();
            let Some(answer) = answers.next().await else { break };
            // Of those that run at once the others' time has passed too.
            self.helped += begun.elapsed().min(answer.took);
            self.later.report.calls.push(reported(tool, &answer));
            let outcome = CallOutcome::of(&answer);
            let ended = ToolRun { result: Some(result_of(&answer)), ..told };
            let (text, passages) = (answer.text, Vec::new());
            let result = CallResult { call: call.clone(), outcome, text, passages, taints: true };
            let result = self.with_room(result, results).await?;
            results.push(result);
            self.tell(Output::Called(ended)).await?;
        }
        Ok(())
    }

    /// The result, cut to what leaves room for the model's own words. `before` are the answers of this round so far.
    async fn with_room(&self, mut result: CallResult, before: &[CallResult]) -> Result<CallResult, EarlyEnd> {
        let room = room(self.later.services.handles.context, self.later.turn.tokens_left());
        let known = self.later.tokens.len() + before.iter().map(|result| result.text.len() + AROUND).sum::<usize>();
        // No token has less than a byte, so what is short enough need not be tokenized.
        while known + result.text.len() + AROUND > room && result.text != NO_ROOM {
            let mut results = before.to_vec();
            results.push(result.clone());
            if self.prompt(&results).await?.ids.len() <= room {
                break;
            }
            let half = result.text.floor_char_boundary(result.text.len() / 2);
            if half < NO_ROOM.len() {
                result.text = NO_ROOM.to_owned();
            } else {
                result.text.truncate(half);
                result.text.push_str(CUT);
            }
        }
        Ok(result)
    }

    /// Tells the client of calls that wait for its approval, as calls that it has to answer.
    pub(super) async fn ask(&mut self, calls: &[PlannedCall]) -> Result<TurnEvent, EarlyEnd> {
        for (index, PlannedCall { call, tool, .. }) in (0..).zip(calls) {
            count(tool, "asked");
            let Hosted::Mcp { tool, .. } = tool else { continue };
            let (services, caller) = (&self.later.services, &self.later.caller);
            let (shown, arguments, pin) = (call.name.clone(), call.arguments.clone(), tool.pin.clone());
            let asked = AskedCall { shown: shown.clone(), arguments: arguments.clone(), pin };
            record(services, caller, tool, (&arguments, "asked"));
            let id = services.tools.approvals.ask(caller.account, asked);
            let start = Some((id, shown));
            let tool_calls = vec![ToolCallDelta { index, start, arguments, incomplete: false }];
            self.tell_delta(Delta { tool_calls, ..Delta::default() }).await?;
        }
        Ok(TurnEvent::Asked)
    }
}

/// Runs a tool, with the arguments that were read of what was written, and writes it down.
pub(super) async fn run(
    services: &TurnServices,
    caller: &TurnCaller,
    tool: &ServerTool,
    (arguments, written): (&Map<String, Json>, &str),
    approved: Option<KeyId>,
) -> ToolAnswer {
    let hash = digest(written);
    // A client may leave while it runs, and the server may have done it all the same.
    let deed = services.tools.audit.begin(AuditRecord { approved, ..recorded(caller, tool, &hash, "") });
    let answer = tool.server.call(&tool.name, arguments.clone()).await;
    let server = tool.server.label().to_owned();
    ::metrics::histogram!(metrics::TOOL_SECONDS, "server" => server).record(answer.took.as_secs_f64());
    deed.ends(CallOutcome::of(&answer).name());
    answer
}

/// A call of a tool that only reads, which a step of the operator's wants.
pub(in crate::turn) struct ReadCall {
    tool: Arc<ServerTool>,
    arguments: Map<String, Json>,
    written: String,
}

impl ReadCall {
    /// A call with arguments that were read.
    pub(in crate::turn) fn new(tool: Arc<ServerTool>, arguments: Map<String, Json>) -> Self {
        let written = Json::Object(arguments.clone()).to_string();
        Self { tool, arguments, written }
    }

    /// The call as the client is told of it, before it has ended.
    pub(in crate::turn) fn told(&self) -> ToolRun {
        told_run(&self.tool, &self.written, None)
    }

    /// Runs it, writes it down and counts it.
    pub(in crate::turn) async fn run(
        &self,
        services: &TurnServices,
        caller: &TurnCaller,
    ) -> (Result<String, String>, CallReport) {
        let answer = run(services, caller, &self.tool, (&self.arguments, &self.written), None).await;
        count(&Hosted::Mcp { tool: self.tool.clone(), asks: false }, CallOutcome::of(&answer).name());
        (result_of(&answer), reported(&self.tool, &answer))
    }
}

/// Writes down what came of a call that does not run.
pub(super) fn record(
    services: &TurnServices,
    caller: &TurnCaller,
    tool: &ServerTool,
    (arguments, outcome): (&str, &str),
) {
    services.tools.audit.record(&recorded(caller, tool, &digest(arguments), outcome));
}

/// A call as the audit has it, with a hash of its arguments.
fn recorded<'a>(caller: &'a TurnCaller, tool: &'a ServerTool, arguments: &'a str, outcome: &'a str) -> AuditRecord<'a> {
    AuditRecord {
        account: Some(caller.account),
        request: Some(&caller.name),
        arguments: Some(arguments),
        ..AuditRecord::own("tool.call", Some(&tool.audited), outcome)
    }
}

/// A call as the client is told of it, before it has ended.
pub(super) fn told_run(tool: &ServerTool, arguments: &str, approval: Option<String>) -> ToolRun {
    let (server, arguments) = (tool.server.name().to_owned(), arguments.to_owned());
    ToolRun { server, tool: tool.name.clone(), arguments, approval, result: None }
}

pub(super) fn result_of(answer: &ToolAnswer) -> Result<String, String> {
    if answer.failed { Err(answer.text.clone()) } else { Ok(answer.text.clone()) }
}

pub(super) fn reported(tool: &ServerTool, answer: &ToolAnswer) -> CallReport {
    CallReport { tool: tool.shown.clone(), took: answer.took, bytes: answer.bytes, failed: answer.failed }
}

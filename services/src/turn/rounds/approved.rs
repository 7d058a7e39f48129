//! The beginning of a turn that brings the answers to what an earlier one asked: calls that were approved run before
//! the prompt is made, once, as they were shown; of those that were not the model reads that.

use super::driver::{LaterRounds, count};
use super::machine::{CallOutcome, CallResult, ModelCall, PlannedCall, TurnEvent, TurnStep};
use super::tools::{record, reported, result_of, run, told_run};
use crate::actors::request::output::ToolRun;
use crate::hosted::{AskedCall, KnownCall, is_approval_id};
use crate::text::{Message, Role};
use crate::turn::error::TurnError;
use crate::turn::hosted::{Hosted, HostedCall};

/// What the model reads of a call that nobody approved.
pub const DENIED: &str = "The user did not approve this call.";
/// What it reads of one whose result is not kept any more.
const FORGOTTEN: &str = "The result of this call is not kept any more.";

impl LaterRounds {
    /// Answers the calls of the conversation that were asked about: a result without a text is an approval.
    ///
    /// # Errors
    /// If a new approval is of a call that was never asked of this key, or that was answered before; or if the request
    /// does not offer the call's tool, in which case the call waits on.
    pub async fn answer_approved(&mut self, messages: &mut [Message]) -> Result<(), TurnError> {
        let turn_begins = messages.iter().rposition(|message| message.role == Role::Assistant).unwrap_or(0);
        let mut waiting = Vec::new();
        for (at, message) in messages.iter_mut().enumerate() {
            let Some(id) = asked_id(message) else { continue };
            match self.services.tools.approvals.find(self.caller.account, &id) {
                KnownCall::Over(outcome) => message.content = Some(outcome.to_string()),
                KnownCall::Waiting(call) if message.content.is_none() && self.hosted(&call.shown).is_none() => {
                    return Err(not_named(&id, &call.shown));
                }
                KnownCall::Waiting(call) if message.content.is_none() => waiting.push((at, id, call)),
                KnownCall::Waiting(call) => self.deny(&id, &call, message.content.as_deref().unwrap_or(DENIED)),
                KnownCall::Unknown if message.content.is_some() => {}
                KnownCall::Unknown if at < turn_begins => message.content = Some(FORGOTTEN.to_owned()),
                KnownCall::Unknown => return Err(unknown(&id)),
            }
        }
        self.run_approved(waiting, messages).await;
        Ok(())
    }

    /// Runs calls that wait no more, and puts their results into the conversation.
    async fn run_approved(&mut self, waiting: Vec<(usize, String, AskedCall)>, messages: &mut [Message]) {
        if waiting.is_empty() {
            return;
        }
        let (mut places, mut calls) = (Vec::new(), Vec::new());
        for (at, id, AskedCall { shown, arguments, pin }) in waiting {
            if self.offers(&shown, &pin) {
                places.push((at, id));
                calls.push(ModelCall { name: shown, arguments, incomplete: false });
            } else {
                let why = "Error: the tool is not offered any more as it was when this call was shown.";
                self.settle(&mut messages[at], &id, why.to_owned());
            }
        }
        let TurnStep::Call(planned) = self.turn.next(TurnEvent::Approved(calls)) else { return };
        let mut results = Vec::with_capacity(planned.len());
        for (planned, (at, id)) in planned.into_iter().zip(places) {
            let (text, outcome) = self.take_and_run(&planned, &id).await;
            messages[at].content = Some(text.clone());
            results.push(CallResult { call: planned.call, outcome, text, passages: Vec::new(), taints: true });
        }
        // The results stand in the conversation already.
        let TurnStep::Generate(_) = self.turn.next(TurnEvent::Called(results)) else { return };
    }

    /// Takes a call just before it runs: one that was taken and never run, because the client went, would be lost.
    async fn take_and_run(&mut self, planned: &PlannedCall, id: &str) -> (String, CallOutcome) {
        match self.services.tools.approvals.take(self.caller.account, id) {
            KnownCall::Waiting(_) => {
                let (text, outcome) = self.run_one(planned, id).await;
                count(&planned.tool, outcome.name());
                self.services.tools.approvals.settle(id, &text);
                (text, outcome)
            }
            KnownCall::Over(outcome) => (outcome.to_string(), CallOutcome::Refused),
            KnownCall::Unknown => (FORGOTTEN.to_owned(), CallOutcome::Refused),
        }
    }

    async fn run_one(&mut self, planned: &PlannedCall, id: &str) -> (String, CallOutcome) {
        let (tool, arguments) = match &planned.plan {
            Ok(HostedCall::Mcp { tool, arguments }) => (tool, arguments),
            Ok(HostedCall::FileSearch { .. } | HostedCall::Web(_)) => return (String::new(), CallOutcome::Refused),
            Err(why) => return (format!("Error: {why}"), CallOutcome::Refused),
        };
        let (services, caller, written) = (&self.services, &self.caller, planned.call.arguments.as_str());
        let answer = run(services, caller, tool, (arguments, written), Some(caller.account)).await;
        self.report.calls.push(reported(tool, &answer));
        let told = told_run(tool, written, Some(id.to_owned()));
        self.tell_run(ToolRun { result: Some(result_of(&answer)), ..told });
        let outcome = CallOutcome::of(&answer);
        (answer.text, outcome)
    }

    fn settle(&self, message: &mut Message, id: &str, text: String) {
        self.services.tools.approvals.settle(id, &text);
        message.content = Some(text);
    }

    fn deny(&self, id: &str, call: &AskedCall, said: &str) {
        self.services.tools.approvals.settle(id, said);
        if let Some(Hosted::Mcp { tool, .. }) = self.hosted(&call.shown) {
            record(&self.services, &self.caller, tool, (&call.arguments, "denied"));
        }
    }

    /// Whether the turn may run a tool of this name that is as it was.
    fn offers(&self, shown: &str, pin: &str) -> bool {
        matches!(self.hosted(shown), Some(Hosted::Mcp { tool, .. }) if tool.pin == pin)
    }

    fn hosted(&self, shown: &str) -> Option<&Hosted> {
        self.asked.hosted.iter().find(|hosted| hosted.name() == shown)
    }
}

/// The id of a call that was asked about, if a message answers one.
fn asked_id(message: &Message) -> Option<String> {
    message.tool_call_id.clone().filter(|id| message.role == Role::Tool && is_approval_id(id))
}

fn unknown(id: &str) -> TurnError {
    let shown: String = id.chars().take(64).collect();
    let message = format!(
        "no call {shown:?} waits for this key's approval: none was asked about, it was answered, or its time is over"
    );
    TurnError::coded("messages", message, "approval_not_found")
}

fn not_named(id: &str, shown: &str) -> TurnError {
    let message = format!("the call {id:?} is of {shown}, which no server in `tools` offers; it waits on");
    TurnError::coded("tools", message, "approval_without_tool")
}

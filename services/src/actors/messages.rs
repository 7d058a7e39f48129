//! What the actors say to each other. What goes forward may be refused; what goes back cannot block.

use crate::actors::deferred_rules::DeferredRules;
use actix::Message;
use chimere_engine::backend::{BackendError, Pending};
use chimere_engine::constraint::grammar::ForcedRun;
use chimere_engine::constraint::{Awaiting, Source};
use chimere_engine::ids::{Micros, RequestId, SeqId, StepId, TokenId};
use chimere_engine::scheduler::{Event, FlushedEntries, Rejected, Request, RequestTimes, Terms};
use chimere_engine::step::{StepOutcome, StepPlan};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Request actor to scheduler actor: please run this. The reply comes before any response header is sent.
#[derive(Message, Clone)]
#[rtype(result = "Result<(), Refusal>")]
pub struct Submit {
    /// Checked against the model's limits.
    pub request: Request,
    /// Whose it is, and by when it has to be done.
    pub terms: Terms,
    /// Sized by [`Submit::events_max`], so that its sender never blocks.
    pub events: mpsc::Sender<RequestEvent>,
    /// Its rules of deferred sources; `waits_for` in the request's spec names the sources of these.
    pub rules: DeferredRules,
    /// The service's own, before it is ready: its prompt counts for nobody.
    pub warm_up: bool,
}

impl Submit {
    /// The most messages that a request can cause in a context of this many tokens: a start, each choice's tokens, the
    /// end of its thinking and its own, a score for each piece of the prompt (one may end at each multiple of 64 and at
    /// the prompt's end), a hidden state, and one failure.
    pub fn events_max(request: &Request, context: u32) -> usize {
        let prompt = request.prompt.len();
        let spec = &request.spec;
        let tokens = spec.max_tokens.unwrap_or(context).min(context) as usize;
        let pieces = if spec.score_prompt.is_some() { prompt / chimere_engine::CHUNK_TOKENS as usize + 2 } else { 0 };
        let thoughts = usize::from(spec.thinking.is_some());
        2 + pieces + usize::from(spec.pool.is_some()) + spec.choices as usize * (tokens + 1 + thoughts)
    }
}

/// Scheduler actor to request actor.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestEvent {
    /// The first step with a row of the request was committed. Comes once, before any event.
    Started {
        /// When that was, and what came before.
        times: RequestTimes,
        /// Prompt tokens that the prefix cache spared.
        cached_tokens: u32,
    },
    /// What the scheduler said.
    Event(Event),
}

/// Why a request was not taken, and when to come back.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// The reason that the scheduler gave.
    pub reason: Rejected,
    /// For a reason that passes: the time until there should be room.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// There is no scheduler that takes anything any more, as at the very end of the service.
    pub fn unheard() -> Self {
        Self { reason: Rejected::Draining, retry_after: None }
    }
}

/// Request actor to scheduler actor: the client went away, or has all it wants.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub enum Cancel {
    /// The whole request, and when that was known.
    Request(RequestId, Micros),
    /// One choice found a stop string; the others go on.
    Choice(RequestId, u32),
}

/// Scheduler actor to the actor of a deferred source: these sequences use it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Follow<R> {
    /// The sequence of the first choice.
    pub first: SeqId,
    /// How many there are, one after the other.
    pub choices: u32,
    /// What all of them begin with.
    pub prompt: Arc<[TokenId]>,
    /// The outputs that each choice has had on another engine, by choice; empty for a request that begins here.
    pub outputs: Vec<Vec<TokenId>>,
    /// What the source does for them.
    pub rules: R,
}

impl<R> Follow<R> {
    /// The message about the same sequences to the actor of a source that does this for them.
    pub(super) fn with_rules<T>(&self, rules: T) -> Follow<T> {
        let Self { first, choices, prompt, outputs, .. } = self;
        Follow { first: *first, choices: *choices, prompt: prompt.clone(), outputs: outputs.clone(), rules }
    }
}

/// Scheduler actor to the actor of a deferred source: these sequences have ended.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct Forget {
    /// The sequence of the first choice.
    pub first: SeqId,
    /// How many there are.
    pub choices: u32,
}

/// Scheduler actor to the actor of a deferred source: a step was launched whose sampler waits.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Awaits(pub Awaiting);

/// Completion thread to the actors of deferred sources: the tokens of a finished step.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Sampled {
    /// Steps that were launched meanwhile and wait, as in [`Awaits`].
    pub launched: Vec<Awaiting>,
    /// The token that each sequence got.
    pub tokens: Vec<(SeqId, TokenId)>,
}

/// A deferred source to the scheduler actor: its rules for a step are on their way to the engine.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct RulesSent {
    /// The step whose rules they are.
    pub step: StepId,
    /// The source that says them.
    pub source: Source,
    /// When they were ready.
    pub at: Micros,
    /// Outputs of which they leave no choice.
    pub forced: Vec<ForcedRun>,
    /// Sequences that the source cannot follow any longer, and the message for the client of each.
    pub failed: Vec<(SeqId, String)>,
}

/// The last word of a deferred source's actor to the scheduler actor: it is gone, and what it knew with it.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct DeferredLost(pub Source);

/// Scheduler actor to engine actor: run this step.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Launch(pub StepPlan);

/// A deferred source to the engine actor, or the scheduler actor in its stead: rules that this step awaits are there,
/// if the backend has not found them itself. See [`crate::actors::deferred::RulesLink`].
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct RulesReady(pub StepId);

/// Engine actor to the completion thread, over a plain channel: wait for this.
pub struct WaitFor(pub Pending);

/// Completion thread, or the engine's where that has computed it, to scheduler actor: a step is done, or the engine is
/// lost.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StepDone(pub Result<StepOutcome, BackendError>);

/// Watchdog to scheduler actor: the engine is lost, because a step has not ended or none was planned; why.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct EngineOverdue(pub String);

/// Timer to scheduler actor: the running step should be over soon, so the next one may be planned.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct PlanDue;

/// Main thread to scheduler actor: the warm-up is over.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct Open;

/// Handler to scheduler actor: give up what is kept of prompts and nobody is about to go on from.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "FlushedEntries")]
pub struct FlushCache;

/// Main thread to scheduler actor: take nothing new; end what still runs when the time is over.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct Drain {
    /// How long running requests may go on.
    pub within: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::grammar::GrammarStart;
    use chimere_engine::engram::RequestTables;

    #[test]
    fn a_refusal_reads_as_its_reason() {
        let refusal = Refusal {
            reason: Rejected::QueueFull { waiting: 256, max: 256 },
            retry_after: Some(Duration::from_secs(3)),
        };
        assert_eq!(refusal.to_string(), "256 requests are waiting, at most 256 may");
    }

    #[test]
    fn messages_cross_threads() {
        fn crosses<T: Send>() {}
        crosses::<Submit>();
        crosses::<Launch>();
        crosses::<WaitFor>();
        crosses::<StepDone>();
        crosses::<RulesReady>();
        crosses::<Follow<Arc<RequestTables>>>();
        crosses::<Follow<GrammarStart>>();
    }
}

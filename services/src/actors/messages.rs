//! What the actors say to each other. What goes forward may be refused; what goes back cannot block.

use actix::Message;
use chimere_engine::backend::{BackendError, Pending};
use chimere_engine::ids::{RequestId, StepId};
use chimere_engine::scheduler::{Event, Rejected, Request};
use chimere_engine::step::{LogitEdits, StepOutcome, StepPlan};
use std::time::Duration;
use tokio::sync::mpsc;

/// Request actor to scheduler actor: please run this. The reply comes before any response header is sent.
#[derive(Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct Submit {
    /// Checked against the model's limits.
    pub request: Request,
    /// Sized to the most events that this request can cause, so that its sender never blocks.
    pub events: mpsc::Sender<Event>,
}

/// Why a request was not taken, and when to come back.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// The scheduler's reason.
    pub reason: Rejected,
    /// For a reason that passes: the time until there should be room.
    pub retry_after: Option<Duration>,
}

/// Request actor to scheduler actor: the client went away, or has all it wants.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct Cancel(pub RequestId);

/// Scheduler actor to engine actor: run this step.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Launch(pub StepPlan);

/// Engram actor to engine actor: the edits that a launched step awaits.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SampleWith {
    /// The step.
    pub step: StepId,
    /// One entry a row that awaits edits.
    pub edits: LogitEdits,
}

/// Engine actor to the completion thread, over a plain channel: wait for this.
pub struct Launched(pub Pending);

/// Completion thread to scheduler actor: a step is done, or the engine is lost.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StepDone(pub Result<StepOutcome, BackendError>);

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

    #[test]
    fn a_refusal_reads_as_its_reason() {
        let refusal = Refusal { reason: Rejected::QueueFull { waiting: 256, max: 256 }, retry_after: Some(Duration::from_secs(3)) };
        assert_eq!(refusal.to_string(), "256 requests are waiting, at most 256 may");
    }

    #[test]
    fn messages_cross_threads() {
        fn crosses<T: Send>() {}
        crosses::<Submit>();
        crosses::<Launch>();
        crosses::<Launched>();
        crosses::<StepDone>();
        crosses::<SampleWith>();
    }
}

//! What runs a step. The scheduler never sees a backend; the engine actor owns one behind [`Backend`].

mod check;
pub mod cpu;
pub mod cuda;
mod early;
mod following;
mod gathering;
mod progress;
mod steps;

use crate::constraint::StepRules;
use crate::ids::StepId;
use crate::step::{DraftRoom, StepOutcome, StepPlan};
pub use early::EarlyRules;
pub use following::Followed;
pub use progress::Progress;
use std::sync::Arc;

/// Runs steps in the order of their ids, at most two unfinished at a time.
///
/// A backend need not be `Send`: it is built on the thread that it lives on.
pub trait Backend {
    /// What it can hold; fixed after construction.
    fn info(&self) -> &BackendInfo;

    /// Enqueues copies and forward, and the sampler too when no row waits for a deferred source. May return before
    /// any of it ran.
    fn launch(&mut self, plan: StepPlan) -> Result<Pending, BackendError>;

    /// Hands over the rules of a deferred source for a launched step. The step's sampler runs when every source that a
    /// row waits for has answered, in the order of the steps.
    fn constrain(&mut self, rules: StepRules) -> Result<(), BackendError>;

    /// Where rules lie before [`Backend::constrain`] hands them over. A backend whose launching thread computes takes
    /// them from there as soon as its forward is done ([`EarlyRules::look`]); what it has taken is not handed over.
    fn look_for_rules(&mut self, _early: Arc<EarlyRules>) {}

    /// The counter that this backend advances while it computes, for a watchdog on another thread.
    fn progress(&self) -> Progress {
        Progress::default()
    }
}

/// Capacity and identity of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendInfo {
    /// Kind of the device: `cpu` or `cuda`.
    pub device: &'static str,
    /// Live sequences it has state for.
    pub slots: u32,
    /// How many pages of keys and values there are.
    pub pages: u32,
    /// Recurrent states that it keeps for the prefix cache, beside those of slots.
    pub checkpoints: u32,
    /// Blocks of the host's memory that the prefix cache will have; 0 where there is no second tier.
    pub host_blocks: u32,
    /// Rows one step may have.
    pub step_rows_max: u32,
    /// Tokens in its vocabulary.
    pub vocab: u32,
    /// Positions a sequence may have.
    pub context: u32,
    /// Drafted tokens that its steps may have.
    pub drafts: DraftRoom,
    /// Threads of the host that compute its steps; 0 if a device does.
    pub threads: u32,
    /// Different adapters that the rows of one step may have, each in a slot of its own; 0 where they are not computed.
    pub adapter_slots: usize,
}

/// A launched step. Waited for on the completion thread, never on the one that launches, unless it [is
/// there](Pending::is_there).
pub struct Pending {
    step: StepId,
    wait: Box<dyn FnOnce() -> Result<StepOutcome, BackendError> + Send>,
    there: bool,
}

impl Pending {
    /// A step whose outcome `wait` blocks for.
    pub fn new(step: StepId, wait: impl FnOnce() -> Result<StepOutcome, BackendError> + Send + 'static) -> Self {
        Self { step, wait: Box::new(wait), there: false }
    }

    /// This step, with the note whether `wait` returns at once.
    #[must_use]
    pub fn that_is(self, there: bool) -> Self {
        Self { there, ..self }
    }

    /// A step that is done already.
    pub fn ready(step: StepId, outcome: StepOutcome) -> Self {
        Self::new(step, move || Ok(outcome)).that_is(true)
    }

    /// Is the outcome known to be there, so that nobody waits for it?
    pub fn is_there(&self) -> bool {
        self.there
    }

    /// Which step this is.
    pub fn step(&self) -> StepId {
        self.step
    }

    /// Blocks until the step is done.
    pub fn wait(self) -> Result<StepOutcome, BackendError> {
        (self.wait)()
    }
}

/// Why a backend stopped. None of these is a bad request: after one of them the engine is lost.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BackendError {
    /// The plan contradicts the backend's capacity or order; a bug, reported instead of panicking on the engine thread.
    #[error("step {step} cannot run: {why}")]
    Plan {
        /// The step that was refused.
        step: StepId,
        /// What was wrong with its plan.
        why: String,
    },
    /// The device failed and does not come back.
    #[error("device failed in step {step}: {why}")]
    Device {
        /// The step that hit it.
        step: StepId,
        /// What the driver said.
        why: String,
    },
    /// The thread that would have delivered the outcome is gone.
    #[error("the engine went away before step {step} finished")]
    Lost {
        /// The step that never finished.
        step: StepId,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::StepTiming;

    #[test]
    fn a_pending_step_is_waited_for_on_another_thread() {
        let outcome = StepOutcome {
            id: Some(StepId(7)),
            timing: StepTiming { forward_us: 3, sample_us: 1, guess_us: 0 },
            ..Default::default()
        };
        let pending = Pending::ready(StepId(7), outcome);
        assert_eq!(pending.step(), StepId(7));
        let waited = std::thread::spawn(move || pending.wait()).join().unwrap().unwrap();
        assert_eq!(waited.id, Some(StepId(7)));
        assert_eq!(waited.timing.forward_us, 3);
    }

    #[test]
    fn a_lost_engine_names_the_step() {
        let (tx, rx) = std::sync::mpsc::channel::<StepOutcome>();
        let pending = Pending::new(StepId(9), move || rx.recv().map_err(|_| BackendError::Lost { step: StepId(9) }));
        drop(tx);
        assert_eq!(pending.wait().unwrap_err().to_string(), "the engine went away before step 9 finished");
    }
}

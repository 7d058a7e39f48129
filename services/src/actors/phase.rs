//! Where the service stands in its life. Written by the scheduler actor, read by everybody.

/// What a client is told whose stream was cut, or who came too late, because the service is ending.
pub const SHUTTING_DOWN: &str = "the service is shutting down";

/// What a client is told whose answer no engine will finish.
pub const ENGINE_LOST: &str = "the engine is lost";

/// What a client is told whose deadline passed before its answer was whole.
pub const DEADLINE_PASSED: &str = "the deadline of this request has passed";

/// One way only: `Starting`, `Ready`, `Draining`, `Drained`; `Lost` from any but the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The engine is there, the warm-up is not over.
    Starting,
    /// A request would be answered.
    Ready,
    /// Nothing new is taken; what runs may finish.
    Draining,
    /// Nothing runs any more.
    Drained,
    /// The engine died, and why. The process ends with an error.
    Lost(String),
}

impl Phase {
    /// The service is past this one already.
    fn rank(&self) -> u8 {
        match self {
            Phase::Starting => 0,
            Phase::Ready => 1,
            Phase::Draining => 2,
            Phase::Lost(_) => 3,
            Phase::Drained => 4,
        }
    }

    /// Goes to `next` unless that would go back. True if it went.
    pub fn advance(&mut self, next: Phase) -> bool {
        let forward = next.rank() > self.rank() && !matches!(self, Phase::Lost(_));
        if forward {
            *self = next;
        }
        forward
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_never_goes_back() {
        let mut phase = Phase::Starting;
        assert!(phase.advance(Phase::Draining));
        assert!(!phase.advance(Phase::Ready));
        assert!(phase.advance(Phase::Lost("why".into())));
        assert!(!phase.advance(Phase::Draining));
        assert_eq!(phase, Phase::Lost("why".into()));
        phase = Phase::Drained;
        assert!(!phase.advance(Phase::Lost("stopped on purpose".into())));
    }
}

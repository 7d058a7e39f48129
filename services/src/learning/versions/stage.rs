//! Where a version stands between being made and being served, and what may happen to it there.

use serde::{Deserialize, Serialize};

/// Where a version stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionStage {
    /// It was made, and nothing is known of it.
    Candidate,
    /// It has passed the gate, and answers nobody.
    Shadow,
    /// It answers a part of those who let the service learn from them.
    Canary,
    /// It answers the requests of everybody.
    Current,
    /// It answered everybody until a newer one did.
    Former,
    /// It is not served, for a reason that is kept with it, and never will be.
    Refused,
}

/// What happens to a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageEvent {
    /// The gate has let it through.
    Passed,
    /// Its answers beside the served ones were as good.
    ShadowHeld,
    /// Those whom it answered had answers as good.
    CanaryHeld,
    /// Somebody who may say so serves it without waiting for more.
    Accepted,
    /// The gate, its answers or somebody speaks against it.
    Refused,
    /// A newer one is served.
    Replaced,
    /// The one that was served after it is taken back.
    Restored,
}

/// Something that cannot happen to a version where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a version that is {} cannot be {}", .stage.name(), .event.name())]
pub struct StageError {
    /// The stage that it is in.
    pub stage: VersionStage,
    /// What was to happen.
    pub event: StageEvent,
}

impl VersionStage {
    /// Where it stands after an event.
    ///
    /// # Errors
    /// If that cannot happen to it there.
    pub fn after(self, event: StageEvent) -> Result<Self, StageError> {
        match (self, event) {
            (Self::Candidate, StageEvent::Passed) => Ok(Self::Shadow),
            (Self::Shadow, StageEvent::ShadowHeld) => Ok(Self::Canary),
            (Self::Canary, StageEvent::CanaryHeld) | (Self::Shadow | Self::Canary, StageEvent::Accepted) => {
                Ok(Self::Current)
            }
            (Self::Candidate | Self::Shadow | Self::Canary | Self::Current, StageEvent::Refused) => Ok(Self::Refused),
            (Self::Current, StageEvent::Replaced) => Ok(Self::Former),
            (Self::Former, StageEvent::Restored) => Ok(Self::Current),
            (stage, event) => Err(StageError { stage, event }),
        }
    }

    /// Whether it is on its way: made, and neither served nor refused yet.
    pub fn is_on_its_way(self) -> bool {
        matches!(self, Self::Candidate | Self::Shadow | Self::Canary)
    }

    /// The word in files and replies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Shadow => "shadow",
            Self::Canary => "canary",
            Self::Current => "current",
            Self::Former => "former",
            Self::Refused => "refused",
        }
    }
}

impl StageEvent {
    /// What it does to a version, in a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::ShadowHeld | Self::CanaryHeld => "held",
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::Replaced => "replaced",
            Self::Restored => "restored",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StageEvent as E;
    use super::*;

    const STAGES: [VersionStage; 6] = [
        VersionStage::Candidate,
        VersionStage::Shadow,
        VersionStage::Canary,
        VersionStage::Current,
        VersionStage::Former,
        VersionStage::Refused,
    ];

    #[test]
    fn a_version_goes_through_the_gate_before_anybody_is_answered_by_it() {
        let way = [E::Passed, E::ShadowHeld, E::CanaryHeld, E::Replaced, E::Restored];
        let last = way.into_iter().try_fold(VersionStage::Candidate, VersionStage::after);
        assert_eq!(last, Ok(VersionStage::Current));
        for event in [E::ShadowHeld, E::CanaryHeld, E::Accepted, E::Restored] {
            let error = VersionStage::Candidate.after(event).unwrap_err();
            assert!(error.to_string().starts_with("a version that is candidate cannot be "), "{error}");
        }
    }

    #[test]
    fn what_was_refused_stays_so_and_nothing_is_served_twice_at_once() {
        let all = [E::Passed, E::ShadowHeld, E::CanaryHeld, E::Accepted, E::Refused, E::Replaced, E::Restored];
        assert!(all.into_iter().all(|event| VersionStage::Refused.after(event).is_err()));
        let to_current = |stage: VersionStage| {
            all.into_iter().filter(|event| stage.after(*event) == Ok(VersionStage::Current)).count()
        };
        assert_eq!(STAGES.map(to_current), [0, 1, 2, 0, 1, 0]);
        assert_eq!(STAGES.map(VersionStage::is_on_its_way), [true, true, true, false, false, false]);
    }
}

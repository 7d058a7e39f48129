//! Versions of what is learned: their stages from candidate to current, and the way back. What a version's bytes mean
//! is its learner's.

mod changed;
mod kept;
mod lineage;
mod runs;
mod served;
mod stage;

pub use changed::{ChangedAnswer, ChangedAnswers};
pub use kept::{VersionError, Versions};
pub use lineage::{Lineage, LineageError, NewVersion, Version};
pub use runs::{LearnerRun, LearnerRuns, RunReport};
pub use served::{ServedError, check_own_file, publish_served};
pub use stage::{StageError, StageEvent, VersionStage};

pub(super) use kept::{are_made, make, spoil};

#[cfg(test)]
mod tests;

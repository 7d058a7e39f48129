//! What people's answers to answers are kept for: examples with their source of truth, by consent alone, in one
//! database of the service's; what may be served of that which was learned from them, and which version of it is.

mod artefacts;
mod consent;
mod example;
mod facts;
mod feedback;
pub mod gate;
pub mod jsonl;
pub mod questions;
mod recent;
mod secrets;
mod service;
mod similar;
mod sizes;
mod store;
mod stored;
mod versions;

pub use artefacts::Artefact;
pub use consent::Consent;
pub use example::{Example, ExampleSet, TruthSource};
pub use facts::{Fact, FactBatch, LeftOutFacts};
pub use feedback::Feedback;
pub use recent::GivenAnswer;
pub use service::{LearnerSettings, Learning, LearningBusy, LearningReply, LearningService, LearningSettings};
pub use store::{BroughtExample, ExampleStore, StoreBounds, Withdrawal};
pub use stored::StoredExample;
pub use versions::{
    ChangedAnswer, ChangedAnswers, LearnerRun, LearnerRuns, Lineage, LineageError, NewVersion, RunReport, ServedError,
    StageError, StageEvent, Version, VersionError, VersionStage, Versions, check_own_file, publish_served,
};

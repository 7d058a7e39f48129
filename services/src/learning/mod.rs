//! What people's answers to answers are kept for: examples with their source of truth, by consent alone, in one
//! database of the service's. Who learns from them, and what may be published of it, is not decided here.

mod artefacts;
mod consent;
mod example;
mod feedback;
pub mod gate;
pub mod jsonl;
mod recent;
mod secrets;
mod service;
mod similar;
mod sizes;
mod store;
mod stored;

pub use artefacts::Artefact;
pub use consent::Consent;
pub use example::{Example, ExampleSet, TruthSource};
pub use feedback::Feedback;
pub use recent::GivenAnswer;
pub use service::{Learning, LearningBusy, LearningReply, LearningService, LearningSettings};
pub use store::{BroughtExample, ExampleStore, StoreBounds, Withdrawal};
pub use stored::StoredExample;

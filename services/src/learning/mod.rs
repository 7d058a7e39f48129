//! What people's answers to answers are kept for: examples with their source of truth, by consent alone, in one database
//! of the service's. Who learns from them, and what may be published of it, is not decided here.

mod consent;
mod example;
mod secrets;
mod similar;
mod store;

pub use consent::Consent;
pub use example::{Example, ExampleSet, TruthSource};
pub use secrets::has_secret;
pub use store::{ExampleStore, Kept, StoreBounds, StoredExample};

//! What happens before a generation: from a conversation or from prompts to one request for the engine. Knows texts,
//! collections, tables and actors, and nothing of HTTP.

mod caller;
mod context;
pub mod decisions;
mod error;
mod grammar;
pub mod options;
pub mod prompts;
mod reader;
pub mod search;
mod self_test;
mod services;
mod stages;
mod state;
mod tables;
pub mod text_vectors;
mod thinking;
pub mod vectors;

pub use caller::TurnCaller;
pub use error::TurnError;
pub use grammar::GrammarMaker;
pub use self_test::keep_tested;
pub use services::TurnServices;
pub use state::Turn;

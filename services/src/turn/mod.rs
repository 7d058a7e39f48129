//! What happens before a generation: from a conversation or from prompts to one request for the engine. Knows texts,
//! collections, tables and actors, and nothing of HTTP.

mod caller;
mod context;
mod error;
mod grammar;
mod idle;
pub mod options;
pub mod prompts;
mod reader;
pub mod search;
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
pub use idle::{keep_stores, keep_tested, test_store};
pub use services::TurnServices;
pub use state::Turn;

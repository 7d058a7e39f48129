//! A turn of a conversation: the stages that make one request for the engine of what a client says, and the rounds of
//! generations and of the server's own calls between them. Knows texts, collections, tables and actors, and nothing of
//! HTTP.

mod caller;
mod context;
pub mod decisions;
mod error;
mod grammar;
pub mod options;
mod preparation;
pub mod prompts;
mod reader;
mod rounds;
pub mod search;
mod self_test;
mod services;
mod stages;
mod tables;
pub mod text_vectors;
mod thinking;
pub mod vectors;

pub use caller::TurnCaller;
pub use error::TurnError;
pub use grammar::GrammarMaker;
pub use preparation::Preparation;
pub use rounds::{Hosted, LaterRounds, TurnOutputs};
pub use self_test::keep_tested;
pub use services::TurnServices;

//! A turn of a conversation: the stages that make one request for the engine of what a client says, and the rounds of
//! generations and of the server's own calls between them. Knows texts, collections, tables and actors, and nothing of
//! HTTP.

mod caller;
mod context;
pub mod decisions;
mod error;
mod grammar;
mod hosted;
mod idle;
pub mod options;
mod pipeline;
mod preparation;
pub mod prompts;
mod reader;
mod rounds;
pub mod search;
mod services;
mod stages;
mod tables;
pub mod text_vectors;
mod thinking;
pub mod vectors;

pub use caller::TurnCaller;
pub use error::TurnError;
pub use grammar::GrammarMaker;
pub use hosted::{Hosted, ToolList};
pub use idle::{keep_stores, keep_tested, test_store};
pub use pipeline::{PipelineTurn, RefusedTurn, StartedTurn};
pub use preparation::Preparation;
pub use rounds::{DENIED, LaterRounds, ToldTools, TurnOutputs, host_tools};
pub use services::TurnServices;

//! A turn that a pipeline answers: the machine of `pipelines/` says which step comes next, and this carries it out.
//! Each generation is an ordinary request, and nothing of the turn holds a place in the engine between two of them.

mod asking;
mod calls;
mod checks;
mod conversation;
mod driver;
mod heard;
mod searches;

pub use driver::{PipelineTurn, RefusedTurn, StartedTurn};

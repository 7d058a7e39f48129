//! From what came to what the engine reads: bodies taken apart, prompts, vectors, the nearest items of a collection.

pub(in crate::http) mod bodies;
pub(in crate::http) mod prompts;
pub(in crate::http) mod search;
pub(in crate::http) mod vectors;

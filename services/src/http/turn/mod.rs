//! What becomes of a request in any dialect: the prompt and what is added to it, the generation, and how its outputs
//! become a stream or a whole reply.

pub(in crate::http) mod converse;
pub(in crate::http) mod dialect;
mod examples;
pub(in crate::http) mod generate;
pub(in crate::http) mod parts;
mod sse;
mod tables;
mod thinking;

//! What all dialects share of an answer: how outputs become a stream or a whole reply.

pub(in crate::http) mod dialect;
pub(in crate::http) mod parts;

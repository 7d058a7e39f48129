//! How a turn is answered in any dialect: its generation runs, and its outputs become a stream or a whole reply.

pub(in crate::http) mod citations;
pub(in crate::http) mod converse;
pub(in crate::http) mod dialect;
pub(in crate::http) mod generate;
pub(in crate::http) mod parts;
mod piped;
mod proofs;
mod remembered;
pub(in crate::http) mod server_items;
mod sse;
pub(in crate::http) mod tokens;

//! Bodies as typed, then as meant: what all dialects have in common becomes a checked request, or an error that names
//! the field. Past this point a value cannot be out of range for the model. Nothing here waits, and nothing here knows
//! the server.

pub(in crate::http) mod cache;
pub(in crate::http) mod chat;
pub(in crate::http) mod documents;
pub(in crate::http) mod embedding;
pub(in crate::http) mod engram;
pub(in crate::http) mod fields;
pub(in crate::http) mod generation;
pub(in crate::http) mod messages;
pub(in crate::http) mod model;
pub(in crate::http) mod prompt;
mod reasoning;
pub(in crate::http) mod semantic;
pub(in crate::http) mod structured;
pub(in crate::http) mod tools;
pub(in crate::http) mod turns;

#[cfg(test)]
mod tests;

//! Tokens of texts and texts of tokens: `/tokenize` and what belongs to it.

pub(in crate::http) mod request;
pub(in crate::http::endpoints) mod routes;

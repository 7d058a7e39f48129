//! Anthropic's messages.

mod answer;
mod citable;
pub(in crate::http::dialects) mod error;
pub(in crate::http) mod request;
pub(in crate::http::dialects) mod routes;
mod turns;
mod web;

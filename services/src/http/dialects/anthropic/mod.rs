//! Anthropic's messages.

pub(in crate::http) mod answer;
pub(in crate::http::dialects) mod error;
pub(in crate::http) mod request;
mod turns;

//! Ollama's API under `/api/`.

mod answer;
pub(in crate::http::dialects) mod error;
pub(in crate::http) mod request;
pub(in crate::http::dialects) mod routes;

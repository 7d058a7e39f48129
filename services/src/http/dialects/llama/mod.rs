//! llama.cpp's own endpoints.

mod answer;
pub(in crate::http::dialects) mod error;
mod lora;
pub(in crate::http) mod request;
pub(in crate::http::dialects) mod routes;

//! llama.cpp's own endpoints.

pub(in crate::http) mod answer;
pub(in crate::http::dialects) mod error;
pub(in crate::http) mod request;

//! The only place that knows the API's JSON: what comes in, what goes out, and the server around it.

mod about;
pub mod answer;
mod anthropic;
pub mod app;
mod chat;
mod collections;
mod completions;
mod console;
pub mod edge;
mod embeddings;
mod engram;
mod examples;
mod generate;
mod hints;
mod intake;
mod llama;
mod ollama;
mod openapi;
pub mod request;
pub mod request_tables;
mod responses;
pub mod server;
mod shapes;
pub mod sse;
mod steps;
mod text;
mod thinking;
mod wire;

pub use edge::keys::auth;
pub use edge::tls;

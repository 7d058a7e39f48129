//! The only place that knows the API's JSON: what comes in, what goes out, and the server around it.

mod about;
mod anthropic;
pub mod app;
mod body;
mod chat;
mod collections;
mod completions;
mod console;
mod dialects;
pub mod edge;
mod embeddings;
mod endpoints;
mod engram;
mod examples;
mod generate;
mod hints;
mod intake;
mod llama;
mod ollama;
mod openapi;
mod request_tables;
mod responses;
pub mod server;
mod sse;
mod steps;
mod text;
mod thinking;
mod turn;
mod wire;

pub use edge::keys::auth;
pub use edge::tls;

/// What each endpoint takes, and what it is checked against.
pub mod request {
    pub use super::body::cache::CacheRequest;
    pub use super::body::chat::ChatRequest;
    pub use super::body::embedding::{EmbeddingRequest, Encoding};
    pub use super::body::engram::{DocumentRequest, EngramRequest};
    pub use super::body::generation::Generation;
    pub use super::body::model::ModelLimits;
    pub use super::body::prompt::Prompt;
    pub use super::body::semantic::SemanticRequest;
    pub use super::body::structured::AskedForm;
    pub use super::dialects::anthropic::request::MessagesRequest;
    pub use super::dialects::llama::request::{LlamaReply, LlamaRequest, parse_embedding};
    pub use super::dialects::ollama::request::{OllamaRequest, parse_embed, parse_name};
    pub use super::dialects::openai::request::CompletionRequest;
    pub use super::dialects::responses::request::{ResponsesBody, ResponsesRequest, ThoughtsShown};
    pub use super::endpoints::collections::request::{SearchRequest, parse_items, parse_nothing};
    pub use super::endpoints::tables::request::TeachRequest;
    pub use super::endpoints::tokenize::request::{DetokenizeRequest, TokenizeInput, TokenizeRequest, TokensShape};
}

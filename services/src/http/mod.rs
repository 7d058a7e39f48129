//! The only place that knows the API's JSON: what comes in, what goes out, and the server around it.

pub mod app;
mod body;
mod dialects;
pub mod edge;
mod endpoints;
mod intake;
mod reply;
pub mod server;
mod wire;

pub use edge::keys::auth;
pub use edge::tls;
pub use endpoints::learning::{keep_learning, restore};

/// What each endpoint takes, and what it is checked against.
pub mod request {
    pub use crate::http::body::embedding::{AskedEmbedding, EmbeddingRequest, EncoderRequest, Encoding};
    pub use crate::http::body::model::ModelLimits;
    pub use crate::http::dialects::anthropic::request::MessagesRequest;
    pub use crate::http::dialects::llama::request::{LlamaReply, LlamaRequest, parse_embedding};
    pub use crate::http::dialects::ollama::request::{OllamaRequest, parse_embed, parse_name};
    pub use crate::http::dialects::openai::request::CompletionRequest;
    pub use crate::http::dialects::responses::request::{ResponsesBody, ResponsesRequest, ThoughtsShown};
    pub use crate::http::endpoints::collections::request::{SearchRequest, parse_items, parse_nothing};
    pub use crate::http::endpoints::tables::request::TeachRequest;
    pub use crate::http::endpoints::tokenize::request::{
        DetokenizeRequest, TokenizeInput, TokenizeRequest, TokensShape,
    };
    pub use crate::turn::options::{
        AskedForm, CacheRequest, ChatRequest, DocumentRequest, EngramRequest, Generation, Prompt, SemanticRequest,
    };
}

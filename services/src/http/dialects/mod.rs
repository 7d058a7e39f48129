//! The words of each kind of client: what its requests ask for becomes a request of ours, and its answers are written
//! as it reads them. No dialect knows another.

pub(in crate::http) mod anthropic;
pub(in crate::http) mod llama;
pub(in crate::http) mod ollama;
pub(in crate::http) mod openai;
pub(in crate::http) mod responses;
pub(in crate::http) mod shapes;
pub(in crate::http) mod token_ids;

use actix_web::web::ServiceConfig;

/// The paths of all dialects.
pub(in crate::http) fn routes(config: &mut ServiceConfig) {
    config
        .configure(openai::routes::routes)
        .configure(responses::paths::paths)
        .configure(anthropic::routes::routes)
        .configure(ollama::routes::routes)
        .configure(llama::routes::routes)
        .configure(token_ids::routes::routes);
}

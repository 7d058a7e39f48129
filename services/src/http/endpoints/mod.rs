//! What is no dialect: tables, collections, vectors, tokens, MCP, and what the service says about itself.

pub(in crate::http) mod about;
mod adapters;
pub(in crate::http) mod collections;
mod console;
pub(in crate::http) mod decisions;
mod documents;
mod embeddings;
pub(in crate::http) mod hints;
pub(in crate::http) mod learning;
mod mcp;
mod openapi;
mod pipelines;
mod steps;
pub(in crate::http) mod tables;
pub(in crate::http) mod tokenize;
mod tools;
mod worker;

use actix_web::web::ServiceConfig;

/// All of it but what [`about::probes`] has.
pub(in crate::http) fn routes(config: &mut ServiceConfig) {
    config
        .configure(about::routes)
        .configure(adapters::routes)
        .configure(collections::routes::routes)
        .configure(console::routes)
        .configure(documents::routes)
        .configure(decisions::routes::routes)
        .configure(embeddings::routes)
        .configure(learning::routes)
        .configure(mcp::routes)
        .configure(openapi::routes)
        .configure(pipelines::routes)
        .configure(steps::routes)
        .configure(tables::routes::routes)
        .configure(tokenize::routes::routes)
        .configure(tools::routes)
        .configure(worker::routes);
}

//! OpenAI's second API, whose answers are kept: responses.

mod answer;
mod compaction;
mod echo;
mod items;
mod memory;
pub(in crate::http::dialects) mod paths;
mod references;
pub(in crate::http) mod request;
mod routes;
mod socket;
mod tool_items;
mod tools;

//! OpenAI's second API, whose answers are kept: responses.

mod answer;
mod compaction;
mod echo;
mod items;
mod references;
pub(in crate::http) mod request;
pub(in crate::http::dialects) mod routes;
mod tool_items;
mod tools;

//! OpenAI's first endpoints, whose answers have choices: chat and completions.

mod chat;
mod choices;
mod completion;
mod report;
pub(in crate::http) mod request;
pub(in crate::http::dialects) mod routes;
mod token_report;

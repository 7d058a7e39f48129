//! OpenAI's first endpoints, whose answers have choices: chat and completions.

pub(in crate::http) mod chat;
mod choices;
pub(in crate::http) mod completion;
mod report;
pub(in crate::http) mod request;

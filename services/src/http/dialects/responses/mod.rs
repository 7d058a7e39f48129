//! OpenAI's second API, whose answers are kept: responses.

pub(in crate::http) mod answer;
mod items;
pub(in crate::http) mod references;
pub(in crate::http) mod request;

//! The only place that knows the API's JSON: what comes in, what goes out, and the server around it.

pub mod answer;
pub mod auth;
pub mod error;
pub mod reply;
pub mod request;
pub mod sse;

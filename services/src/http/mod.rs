//! The only place that knows the API's JSON: what comes in, what goes out, and the server around it.

pub mod error;
pub mod request;

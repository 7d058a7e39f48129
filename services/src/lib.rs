//! The streaming inference service: HTTP, text, actors, metrics and the command line around `chimere-engine`.

pub mod actors;
pub mod limits;
pub mod metrics;

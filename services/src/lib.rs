//! The streaming inference service: HTTP, text, actors and metrics around `chimere-engine`.

pub mod actors;
pub mod audit;
pub mod clock;
pub mod config;
pub mod database;
pub mod decide;
pub mod device;
pub mod engram;
pub mod gpu;
pub mod holder;
pub mod http;
pub mod limits;
pub mod locate;
pub mod memory;
pub mod metrics;
pub mod printable;
pub mod replicas;
pub mod responses;
pub mod semantic;
pub mod serve;
pub mod service;
pub mod text;
pub mod traces;
pub mod turn;

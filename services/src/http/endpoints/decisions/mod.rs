//! Decisions among given options, and documents ranked by one: `/v1/decisions` and `/v1/rerank`.

mod ranking;
pub(in crate::http) mod request;
pub(in crate::http) mod rerank;
pub(in crate::http::endpoints) mod routes;

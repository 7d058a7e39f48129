//! Tables: `/v1/engram/tables`.

pub(in crate::http) mod request;
pub(in crate::http::endpoints) mod routes;

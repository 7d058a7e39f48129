//! Collections of texts: `/v1/engram/collections`.

pub(in crate::http) mod request;
pub(in crate::http::endpoints) mod routes;

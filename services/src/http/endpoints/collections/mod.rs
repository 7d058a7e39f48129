//! Collections of texts: `/v1/engram/collections`.

pub(in crate::http) mod request;

//! Who calls: keys, what they entitle to, and what becomes of those who try some.

pub mod auth;
pub(in crate::http) mod cache;
pub(in crate::http::edge) mod ring;
pub(in crate::http) mod terms;
pub(in crate::http::edge) mod wrong_keys;

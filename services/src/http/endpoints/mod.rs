//! What is no dialect: tables, collections, tokens.

pub(in crate::http) mod collections;
pub(in crate::http) mod tables;
pub(in crate::http) mod tokenize;

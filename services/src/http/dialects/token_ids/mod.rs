//! Token ids in and out, in vLLM's words: for routers that count the tokens of prompts, for frontends that have a
//! tokenizer of their own, and for training.

mod answer;
pub(in crate::http) mod request;
pub(in crate::http::dialects) mod routes;

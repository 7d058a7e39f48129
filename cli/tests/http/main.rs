//! The service at its edge: bytes on a real socket. Behind it a backend that says what the prompt tells it to, so that
//! each test knows what must come out; in `process.rs` the program itself with the CPU backend.

#![allow(clippy::unwrap_used, reason = "a test")]

mod adapters;
mod admission;
mod answers;
mod anthropic;
mod calls;
mod citations;
mod clients;
mod collections;
mod decisions;
mod documents;
mod drafts;
mod edge;
mod embeddings;
mod encoder;
mod ending;
mod engram;
mod exact;
mod families;
mod faults;
mod file_search;
mod forged;
mod hostile;
mod learner;
mod learning;
mod leaving;
mod llama;
mod mcp;
mod metrics;
mod ollama;
mod pipelines;
mod prefix;
mod process;
mod programs;
mod refusals;
mod replicas;
mod reports;
mod requested;
mod responses;
mod rounds;
mod sockets;
mod storage;
mod store_vectors;
mod strangers;
mod structured;
mod support;
mod terminal;
mod thinking;
mod tolerance;
mod tools;
mod traces;
mod web;
mod worker;
